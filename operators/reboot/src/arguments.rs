//! The controller's command-line flags.

use clap::Args;
use windlass::prelude::ObjectKey;

use crate::state::{AnnotationKeys, DEFAULT_ANNOTATION_PREFIX};

/// The controller's command-line flags. Flatten them into a program's own arguments.
#[derive(Args, Clone, Debug)]
#[group(skip)]
#[command(about = None, long_about = None)]
pub struct Arguments {
    /// Prefix of the annotations on nodes
    #[arg(
        long = "annotation-prefix",
        value_name = "DOMAIN",
        default_value = DEFAULT_ANNOTATION_PREFIX,
        value_parser = prefix,
        help_heading = "Reboots"
    )]
    pub prefix: String,

    /// The node that this process runs on, which is rebooted last [default: the environment variable `NODE_NAME`]
    #[arg(long = "own-node", value_name = "NAME", help_heading = HEADING)]
    pub own_node: Option<String>,

    /// The pod that this process runs in, which is not evicted and stops with its node [default: the environment
    /// variables `POD_NAMESPACE` and `POD_NAME`]
    #[arg(long = "own-pod", value_name = "NAMESPACE/NAME", value_parser = pod, help_heading = HEADING)]
    pub own_pod: Option<ObjectKey>,

    /// Also run the agent of every node, on a cluster whose nodes are all simulated; implies --install
    #[arg(long = "simulated-agents", help_heading = HEADING)]
    pub simulated_agents: bool,
}

/// The heading of flags that agents do not share.
const HEADING: &str = "Reboot controller";

impl Default for Arguments {
    fn default() -> Self {
        Self {
            prefix: DEFAULT_ANNOTATION_PREFIX.to_owned(),
            own_node: None,
            own_pod: None,
            simulated_agents: false,
        }
    }
}

/// The pod that this process runs in, from `POD_NAMESPACE` and `POD_NAME`.
pub(crate) fn own_pod() -> Option<ObjectKey> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    Some(ObjectKey::namespaced(
        variable("POD_NAMESPACE")?,
        variable("POD_NAME")?,
    ))
}

fn pod(text: &str) -> Result<ObjectKey, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok(ObjectKey::namespaced(namespace, name))
        }
        _ => Err("invalid pod: expected NAMESPACE/NAME, for example `kube-system/reboot-0`".to_owned()),
    }
}

fn prefix(text: &str) -> Result<String, String> {
    AnnotationKeys::new(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

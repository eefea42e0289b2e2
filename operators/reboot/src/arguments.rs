//! What the controller can be told on the command line, as one group of flags.

use clap::Args;
use windlass::prelude::ObjectKey;

use crate::state::{Names, PREFIX};

/// What the controller can be told. Flattens into a program's own arguments.
#[derive(Args, Clone, Debug)]
#[group(skip)]
#[command(about = None, long_about = None)]
pub struct Arguments {
    /// The prefix of the annotations on nodes
    #[arg(
        long = "annotation-prefix",
        value_name = "DOMAIN",
        default_value = PREFIX,
        value_parser = prefix,
        help_heading = "Reboots"
    )]
    pub prefix: String,

    /// The node that this process runs on, which is rebooted last of all [default: what the variable `NODE_NAME` says]
    #[arg(long = "own-node", value_name = "NAME", help_heading = HEADING)]
    pub own_node: Option<String>,

    /// The pod in which this process runs, which is not evicted and goes down with its node
    /// [default: what the variables `POD_NAMESPACE` and `POD_NAME` say]
    #[arg(long = "own-pod", value_name = "NAMESPACE/NAME", value_parser = pod, help_heading = HEADING)]
    pub own_pod: Option<ObjectKey>,

    /// Is the agent of every node as well, on a cluster whose nodes are all simulated; implies --install
    #[arg(long = "simulated-agents", help_heading = HEADING)]
    pub simulated_agents: bool,
}

/// What agents have no use for; they have the prefix in common.
const HEADING: &str = "Reboot controller";

impl Default for Arguments {
    fn default() -> Self {
        Self {
            prefix: PREFIX.to_owned(),
            own_node: None,
            own_pod: None,
            simulated_agents: false,
        }
    }
}

/// The pod in which this process runs, as its manifest says.
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
        _ => Err("a pod is a namespace and a name, as in `kube-system/reboot-0`".to_owned()),
    }
}

fn prefix(text: &str) -> Result<String, String> {
    Names::new(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

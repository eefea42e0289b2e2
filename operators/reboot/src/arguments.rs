//! The controller's command-line flags.

use std::path::PathBuf;

use clap::Args;
use http::Uri;
use windlass::prelude::ObjectKey;

use crate::alerts::{Prometheus, PrometheusError};
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

    /// Namespace of the CronJobs and Jobs of hooks; it must not allow privileged pods
    #[arg(
        long = "hook-namespace",
        value_name = "NAMESPACE",
        default_value = DEFAULT_HOOK_NAMESPACE,
        help_heading = HEADING
    )]
    pub hook_namespace: String,

    /// Prometheus server, or one with its query API, whose alerts block the reboots of policies with `alerts`
    #[arg(long = "prometheus-url", value_name = "URL", value_parser = url, help_heading = HEADING)]
    pub prometheus_url: Option<Uri>,

    /// PEM file with the CAs of the Prometheus server [default: the system's]
    #[arg(long = "prometheus-ca", value_name = "FILE", requires = "prometheus_url", help_heading = HEADING)]
    pub prometheus_ca: Option<PathBuf>,

    /// File with a bearer token for the Prometheus server; needs an https:// URL
    #[arg(long = "prometheus-token-file", value_name = "FILE", requires = "prometheus_url", help_heading = HEADING)]
    pub prometheus_token_file: Option<PathBuf>,

    /// Also run the agent of every node, on a cluster whose nodes are all simulated; implies --install
    #[arg(long = "simulated-agents", help_heading = HEADING)]
    pub simulated_agents: bool,
}

/// Not the controller's own namespace: that one allows privileged pods, for the agents' host path, so the right to create
/// Jobs there would be root on every node. `hooks/` has this namespace and the rights in it.
const DEFAULT_HOOK_NAMESPACE: &str = "windlass-reboot-hooks";

/// The heading of flags that agents do not share.
const HEADING: &str = "Reboot controller";

impl Default for Arguments {
    fn default() -> Self {
        Self {
            prefix: DEFAULT_ANNOTATION_PREFIX.to_owned(),
            own_node: None,
            own_pod: None,
            hook_namespace: DEFAULT_HOOK_NAMESPACE.to_owned(),
            prometheus_url: None,
            prometheus_ca: None,
            prometheus_token_file: None,
            simulated_agents: false,
        }
    }
}

impl Arguments {
    /// The Prometheus server of these arguments.
    pub(crate) fn prometheus(&self) -> Result<Option<Prometheus>, PrometheusError> {
        let Some(url) = &self.prometheus_url else {
            return Ok(None);
        };
        let token_file = self.prometheus_token_file.clone();
        Prometheus::new(url.clone(), self.prometheus_ca.as_deref(), token_file).map(Some)
    }
}

fn url(text: &str) -> Result<Uri, String> {
    let url = text.parse::<Uri>().ok();
    let is_http = |url: &Uri| matches!(url.scheme_str(), Some("http" | "https")) && url.query().is_none();
    url.filter(is_http).ok_or_else(|| {
        "invalid URL: expected http:// or https:// with a host and no query, for example `http://prometheus.monitoring:9090`"
            .to_owned()
    })
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

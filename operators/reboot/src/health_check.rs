//! Checks whether a node is healthy after its reboot.
//!
//! ```text
//!   kubelet reports a new boot ID ─► Ready, network available ─► for minReadySeconds ─► pods ready ─► healthy
//! ```
//!
//! All of it has to hold at the same time, and depends only on the current objects. DaemonSet pods survive the
//! reboot, so it is enough to look at those on the node: a pod that is deleted meanwhile is recreated at once, and
//! has to become ready.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use windlass::{
    api::conditions,
    api_type,
    k8s_openapi::{
        api::core::v1::{Node, NodeCondition, Pod},
        apimachinery::pkg::apis::meta::v1::LabelSelector,
    },
    kube::ResourceExt,
};

use crate::{
    drain::{self, InvalidSelector},
    go_duration::GoDuration,
};

/// Maximum number of pods in a message.
const MAX_NAMED_PODS: usize = 3;

/// What a node must fulfil after its reboot to be healthy.
#[api_type]
#[serde(default)]
pub struct HealthCheckSpec {
    /// How long the node has to be Ready. Default: 10.
    pub min_ready_seconds: u32,
    /// Whether DaemonSet pods on the node have to be ready. Default: true.
    pub daemon_set_pods: bool,
    /// Further pods on the node that have to be ready, if there are any. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "windlass::schemas::label_selector", extend("nullable" = true))]
    pub pod_selector: Option<LabelSelector>,
    /// Whether the agent's health check (`--check-command`) has to have passed since the reboot. Default: false.
    pub agent_check: bool,
    /// How long the node may take to become healthy. Default: 10m.
    pub timeout: GoDuration,
}

impl Default for HealthCheckSpec {
    fn default() -> Self {
        Self {
            min_ready_seconds: 10,
            daemon_set_pods: true,
            pod_selector: None,
            agent_check: false,
            timeout: GoDuration::from_mins(10),
        }
    }
}

/// What is known about the reboot.
#[derive(Clone, Copy, Debug)]
pub struct RebootProof<'a> {
    /// The boot ID before the reboot.
    pub boot_id_before: &'a str,
    /// When the reboot was verified.
    pub proved_at: Timestamp,
    /// The boot in which the agent's health check passed.
    pub checked_boot_id: Option<&'a str>,
}

/// The result of the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthStatus {
    /// Not yet healthy.
    Waiting {
        /// What the check is waiting for, for humans.
        why: String,
        /// When that will be, if nothing changes. `None`: something has to change.
        until: Option<Timestamp>,
    },
    /// Healthy.
    Healthy,
}

/// Checks whether the node is healthy. Pods of other nodes are skipped.
pub fn check(
    node: &Node,
    pods: &[Arc<Pod>],
    spec: &HealthCheckSpec,
    booted: RebootProof<'_>,
    now: Timestamp,
) -> Result<HealthStatus, InvalidSelector> {
    let selected = drain::parse_selector("healthCheck.podSelector", spec.pod_selector.as_ref())?;
    let waiting = |why: String, until| Ok(HealthStatus::Waiting { why, until });
    let boot_id = node
        .status
        .iter()
        .find_map(|status| status.node_info.as_ref())
        .map(|info| info.boot_id.as_str());
    // The agent saw the reboot first: the node's status is still that of the old boot.
    if boot_id == Some(booted.boot_id_before) {
        return waiting("the kubelet has not reported since the reboot".to_owned(), None);
    }
    let Some(ready) = conditions::find(node, "Ready").filter(|ready| ready.status == "True") else {
        let message = conditions::find(node, "Ready")
            .and_then(|ready| ready.message.clone())
            .filter(|text| !text.is_empty());
        let why = message.map_or_else(String::new, |message| format!(": {message}"));
        return waiting(format!("the node is not Ready{why}"), None);
    };
    if conditions::is_true(node, "NetworkUnavailable") {
        return waiting("the node's network is unavailable".to_owned(), None);
    }
    if spec.agent_check && booted.checked_boot_id != boot_id {
        return waiting("the agent's health check has not passed".to_owned(), None);
    }
    let good_from = ready_since(ready, booted.proved_at, now)
        .checked_add(Duration::from_secs(spec.min_ready_seconds.into()))
        .unwrap_or(Timestamp::MAX);
    if now < good_from {
        return waiting(
            format!("the node has to be Ready for {} s", spec.min_ready_seconds),
            Some(good_from),
        );
    }
    let counts = |pod: &&Arc<Pod>| {
        let is_daemon = spec.daemon_set_pods && drain::controller_kind(pod) == Some("DaemonSet");
        let is_selected = || {
            selected
                .as_ref()
                .is_some_and(|selector| selector.matches_map(pod.labels()))
        };
        drain::node_name(pod) == Some(&*node.name_any())
            && !drain::is_finished(pod)
            && (is_daemon || is_selected())
    };
    let mut unready: Vec<_> = pods
        .iter()
        .filter(counts)
        .filter(|pod| !is_ready(pod))
        .map(pod_name)
        .collect();
    if unready.is_empty() {
        return Ok(HealthStatus::Healthy);
    }
    unready.sort();
    let more = match unready.len().saturating_sub(MAX_NAMED_PODS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    unready.truncate(MAX_NAMED_PODS);
    waiting(format!("pods are not ready: {}{more}", unready.join(", ")), None)
}

/// Since when the node counts as Ready: not before the reboot was verified, since after a quick reboot its condition
/// never changed. The kubelet uses its own clock; a time in the future is ignored.
fn ready_since(ready: &NodeCondition, proved: Timestamp, now: Timestamp) -> Timestamp {
    let changed = ready.last_transition_time.as_ref().map(|time| time.0);
    changed
        .filter(|changed| *changed <= now)
        .map_or(proved, |changed| changed.max(proved))
}

fn is_ready(pod: &Pod) -> bool {
    conditions::is_true(pod, "Ready") && pod.metadata.deletion_timestamp.is_none()
}

fn pod_name(pod: &Arc<Pod>) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

#[cfg(test)]
mod tests;

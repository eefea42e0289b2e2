//! Whether a node that was rebooted is good again.
//!
//! ```text
//!   its kubelet reports another boot ID ─► Ready, its network up ─► for minReadySeconds ─► its pods ready ─► good
//! ```
//!
//! All of it has to hold at the same time, and is judged from the objects alone: whoever asks again gets the answer that
//! holds then. A DaemonSet's pods outlive the reboot, so that those on the node are all that have to be looked at: one
//! that is deleted meanwhile is made anew at once, and waits there to become ready.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use windlass::{
    k8s_openapi::{
        api::core::v1::{Node, NodeCondition, Pod},
        apimachinery::pkg::apis::meta::v1::LabelSelector,
    },
    kube::{ResourceExt, core::SelectorExt},
    part,
};

use crate::{
    drain::{self, BadSelector},
    span::Span,
};

/// How many pods a reason names.
const NAMED: usize = 3;

/// What has to be true of a node after its reboot.
#[part]
#[serde(default)]
pub struct AfterSpec {
    /// How long it has to be Ready. Default: 10.
    pub min_ready_seconds: u32,
    /// Whether the DaemonSets' pods on it have to be ready. Default: true.
    pub daemon_set_pods: bool,
    /// Pods on it that have to be ready too, if it has such. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
    /// Whether its agent's own check (`--check-command`) has to have passed since the reboot. Default: false.
    pub agent_check: bool,
    /// How long it may take until all of that is so. Default: 10m.
    pub timeout: Span,
}

impl Default for AfterSpec {
    fn default() -> Self {
        Self {
            min_ready_seconds: 10,
            daemon_set_pods: true,
            pod_selector: None,
            agent_check: false,
            timeout: Span::from_mins(10),
        }
    }
}

/// What is known about the reboot.
#[derive(Clone, Copy, Debug)]
pub struct Booted<'a> {
    /// The boot ID from before it.
    pub before: &'a str,
    /// When it was proved.
    pub proved: Timestamp,
    /// The boot in which the agent's own check has passed.
    pub checked: Option<&'a str>,
}

/// How the node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// Not yet good.
    Waiting {
        /// What it waits for, for people.
        why: String,
        /// When that will be, if nothing else happens. `None`: something has to change.
        until: Option<Timestamp>,
    },
    /// It may work again.
    Good,
}

/// Whether the node is good. Pods of other nodes are passed over.
pub fn check(
    node: &Node,
    pods: &[Arc<Pod>],
    spec: &AfterSpec,
    booted: Booted<'_>,
    now: Timestamp,
) -> Result<After, BadSelector> {
    let selected = drain::selector("after.podSelector", spec.pod_selector.as_ref())?;
    let waiting = |why: String, until| Ok(After::Waiting { why, until });
    let boot_id = node
        .status
        .iter()
        .find_map(|status| status.node_info.as_ref())
        .map(|info| info.boot_id.as_str());
    // What the agent saw first, the kubelet has not said: all that the node's status tells is from before.
    if boot_id == Some(booted.before) {
        return waiting("its kubelet has not reported since the reboot".to_owned(), None);
    }
    let Some(ready) = condition(node, "Ready").filter(|ready| ready.status == "True") else {
        let message = condition(node, "Ready")
            .and_then(|ready| ready.message.clone())
            .filter(|text| !text.is_empty());
        let why = message.map_or_else(String::new, |message| format!(": {message}"));
        return waiting(format!("it is not Ready{why}"), None);
    };
    if condition(node, "NetworkUnavailable").is_some_and(|network| network.status == "True") {
        return waiting("its network is unavailable".to_owned(), None);
    }
    if spec.agent_check && booted.checked != boot_id {
        return waiting("its agent's check has not passed".to_owned(), None);
    }
    let good_from = ready_since(ready, booted.proved, now)
        .checked_add(Duration::from_secs(spec.min_ready_seconds.into()))
        .unwrap_or(Timestamp::MAX);
    if now < good_from {
        return waiting(
            format!("it is to be Ready for {} s", spec.min_ready_seconds),
            Some(good_from),
        );
    }
    let counts = |pod: &&Arc<Pod>| {
        let is_daemon = spec.daemon_set_pods && drain::controller_kind(pod) == Some("DaemonSet");
        let is_selected = || {
            selected
                .as_ref()
                .is_some_and(|selector| selector.matches(pod.labels()))
        };
        drain::node_of(pod) == Some(&*node.name_any())
            && !drain::is_finished(pod)
            && (is_daemon || is_selected())
    };
    let mut unready: Vec<_> = pods
        .iter()
        .filter(counts)
        .filter(|pod| !is_ready(pod))
        .map(named)
        .collect();
    if unready.is_empty() {
        return Ok(After::Good);
    }
    unready.sort();
    let more = match unready.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    unready.truncate(NAMED);
    waiting(format!("pods are not ready: {}{more}", unready.join(", ")), None)
}

fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    let mut conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|condition| condition.type_ == kind)
}

/// Since when it counts as Ready: not before the reboot was proved, since a node that is quickly back never was anything
/// else. The kubelet writes by its own clock; one that is ahead of ours says nothing.
fn ready_since(ready: &NodeCondition, proved: Timestamp, now: Timestamp) -> Timestamp {
    let changed = ready.last_transition_time.as_ref().map(|time| time.0);
    changed
        .filter(|changed| *changed <= now)
        .map_or(proved, |changed| changed.max(proved))
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

fn named(pod: &Arc<Pod>) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

#[cfg(test)]
mod tests;

//! Decides whether a DaemonSet's pods should run on a node.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Node, PodSpec, Taint},
};

use super::template;
use crate::control_plane::{
    nodes::schedule::node_matching::{term_matches, tolerated},
    workloads::name,
};

/// Whether a DaemonSet's pod should run on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// A pod should run on the node.
    Run,
    /// No new pod, but a running one may stay: the node has an untolerated `NoSchedule` taint.
    KeepRunning,
    /// No pod may run on the node.
    DoNotRun,
}

/// Returns whether the DaemonSet's pod should run on this node.
pub(super) fn placement(set: &DaemonSet, node: &Node) -> Placement {
    let mut spec = template::spec(set).clone();
    let elsewhere = spec
        .node_name
        .as_deref()
        .is_some_and(|wanted| wanted != name(node));
    if elsewhere || !selects(&spec, node) {
        return Placement::DoNotRun;
    }
    template::add_daemon_tolerations(&mut spec);
    let tolerations = spec.tolerations.unwrap_or_default();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    let keeps_off = |taint: &&Taint| !tolerated(&tolerations, taint);
    let mut untolerated = taints
        .unwrap_or_default()
        .iter()
        .filter(keeps_off)
        .map(|taint| taint.effect.as_str());
    let mut place = Placement::Run;
    for effect in &mut untolerated {
        match effect {
            "NoExecute" => return Placement::DoNotRun,
            "NoSchedule" => place = Placement::KeepRunning,
            _ => {}
        }
    }
    place
}

/// Whether the pod's node selector and required affinity match this node.
fn selects(spec: &PodSpec, node: &Node) -> bool {
    let unlabelled = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&unlabelled);
    let mut wanted = spec.node_selector.iter().flatten();
    if !wanted.all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| {
        affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    required.is_none_or(|required| {
        let mut terms = required.node_selector_terms.iter();
        terms.any(|term| term_matches(term, name(node), labels))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn placement_follows_selectors_affinity_and_taints() {
        use Placement::{DoNotRun, KeepRunning, Run};
        let zone = json!({ "key": "zone", "operator": "NotIn", "values": ["b"] });
        let affinity = |term: serde_json::Value| {
            json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution":
                { "nodeSelectorTerms": [term] } } } })
        };
        let taint =
            |key: &str, effect: &str| json!({ "taints": [{ "key": key, "value": "v", "effect": effect }] });
        for (what, pod, node, expected) in [
            ("nothing said", json!({}), json!({}), Run),
            (
                "selected",
                json!({ "nodeSelector": { "zone": "a" } }),
                json!({}),
                Run,
            ),
            (
                "not selected",
                json!({ "nodeSelector": { "zone": "b" } }),
                json!({}),
                DoNotRun,
            ),
            ("this node", json!({ "nodeName": "n" }), json!({}), Run),
            ("another node", json!({ "nodeName": "m" }), json!({}), DoNotRun),
            (
                "by affinity",
                affinity(json!({ "matchExpressions": [zone] })),
                json!({}),
                Run,
            ),
            ("by an empty term", affinity(json!({})), json!({}), DoNotRun),
            ("no new ones", json!({}), taint("t", "NoSchedule"), KeepRunning),
            ("rather not", json!({}), taint("t", "PreferNoSchedule"), Run),
            ("none at all", json!({}), taint("t", "NoExecute"), DoNotRun),
            (
                "cordoned",
                json!({}),
                taint("node.kubernetes.io/unschedulable", "NoSchedule"),
                Run,
            ),
            (
                "not ready",
                json!({}),
                taint("node.kubernetes.io/not-ready", "NoExecute"),
                Run,
            ),
            (
                "tolerated",
                json!({ "tolerations": [{ "key": "t", "value": "v", "effect": "NoExecute" }] }),
                taint("t", "NoExecute"),
                Run,
            ),
            (
                "another value",
                json!({ "tolerations": [{ "key": "t", "value": "w" }] }),
                taint("t", "NoExecute"),
                DoNotRun,
            ),
        ] {
            let mut spec = pod;
            spec["containers"] = json!([]);
            let set: DaemonSet =
                from_value(json!({ "spec": { "selector": {}, "template": { "spec": spec } } }))
                    .expect("a set");
            let node = json!({ "metadata": { "name": "n", "labels": { "zone": "a" } }, "spec": node });
            let node: Node = from_value(node).expect("a node");
            assert_eq!(placement(&set, &node), expected, "{what}");
        }
    }
}

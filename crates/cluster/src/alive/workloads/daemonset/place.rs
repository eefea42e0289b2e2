//! Whether a node is one for a DaemonSet's pods.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Node, PodSpec, Taint},
};

use super::template;
use crate::alive::{
    nodes::schedule::place::{matches, tolerated},
    workloads::name,
};

/// What a node is to a DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A pod belongs here.
    Wanted,
    /// None is put here, but one that runs may go on: the node has a taint that keeps new ones off.
    Tolerated,
    /// None may run here.
    Forbidden,
}

/// What this node is to the DaemonSet.
pub(super) fn place(set: &DaemonSet, node: &Node) -> Place {
    let mut spec = template::spec(set).clone();
    let elsewhere = spec
        .node_name
        .as_deref()
        .is_some_and(|wanted| wanted != name(node));
    if elsewhere || !selects(&spec, node) {
        return Place::Forbidden;
    }
    template::tolerate_troubles(&mut spec);
    let tolerations = spec.tolerations.unwrap_or_default();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    let keeps_off = |taint: &&Taint| !tolerated(&tolerations, taint);
    let mut untolerated = taints
        .unwrap_or_default()
        .iter()
        .filter(keeps_off)
        .map(|taint| taint.effect.as_str());
    let mut place = Place::Wanted;
    for effect in &mut untolerated {
        match effect {
            "NoExecute" => return Place::Forbidden,
            "NoSchedule" => place = Place::Tolerated,
            _ => {}
        }
    }
    place
}

/// Whether the pod's node selector and its required affinity name this node.
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
        terms.any(|term| matches(term, name(node), labels))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn a_node_is_wanted_unless_something_keeps_the_pod_off() {
        use Place::{Forbidden, Tolerated, Wanted};
        let zone = json!({ "key": "zone", "operator": "NotIn", "values": ["b"] });
        let affinity = |term: serde_json::Value| {
            json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution":
                { "nodeSelectorTerms": [term] } } } })
        };
        let taint =
            |key: &str, effect: &str| json!({ "taints": [{ "key": key, "value": "v", "effect": effect }] });
        for (what, pod, node, expected) in [
            ("nothing said", json!({}), json!({}), Wanted),
            (
                "selected",
                json!({ "nodeSelector": { "zone": "a" } }),
                json!({}),
                Wanted,
            ),
            (
                "not selected",
                json!({ "nodeSelector": { "zone": "b" } }),
                json!({}),
                Forbidden,
            ),
            ("this node", json!({ "nodeName": "n" }), json!({}), Wanted),
            ("another node", json!({ "nodeName": "m" }), json!({}), Forbidden),
            (
                "by affinity",
                affinity(json!({ "matchExpressions": [zone] })),
                json!({}),
                Wanted,
            ),
            ("by an empty term", affinity(json!({})), json!({}), Forbidden),
            ("no new ones", json!({}), taint("t", "NoSchedule"), Tolerated),
            ("rather not", json!({}), taint("t", "PreferNoSchedule"), Wanted),
            ("none at all", json!({}), taint("t", "NoExecute"), Forbidden),
            (
                "cordoned",
                json!({}),
                taint("node.kubernetes.io/unschedulable", "NoSchedule"),
                Wanted,
            ),
            (
                "not ready",
                json!({}),
                taint("node.kubernetes.io/not-ready", "NoExecute"),
                Wanted,
            ),
            (
                "tolerated",
                json!({ "tolerations": [{ "key": "t", "value": "v", "effect": "NoExecute" }] }),
                taint("t", "NoExecute"),
                Wanted,
            ),
            (
                "another value",
                json!({ "tolerations": [{ "key": "t", "value": "w" }] }),
                taint("t", "NoExecute"),
                Forbidden,
            ),
        ] {
            let mut spec = pod;
            spec["containers"] = json!([]);
            let set: DaemonSet =
                from_value(json!({ "spec": { "selector": {}, "template": { "spec": spec } } }))
                    .expect("a set");
            let node = json!({ "metadata": { "name": "n", "labels": { "zone": "a" } }, "spec": node });
            let node: Node = from_value(node).expect("a node");
            assert_eq!(place(&set, &node), expected, "{what}");
        }
    }
}

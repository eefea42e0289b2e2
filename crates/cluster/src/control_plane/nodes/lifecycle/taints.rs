//! Computes a node's taints from its conditions.

use k8s_openapi::{
    api::core::v1::{Node, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use windlass_api::conditions;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Condition, status, and the corresponding taint.
const CONDITION_TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    (
        "NetworkUnavailable",
        "True",
        "node.kubernetes.io/network-unavailable",
    ),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// Returns the taints that the node should have, or `None` if it has them already.
pub(super) fn desired(node: &Node, now: Timestamp) -> Option<Vec<Taint>> {
    let has: &[Taint] = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    let own = managed_taints(node);
    let is_ours = |taint: &Taint| match taint.effect.as_str() {
        "NoSchedule" => {
            taint.key == UNSCHEDULABLE || CONDITION_TAINTS.iter().any(|(_, _, key)| *key == taint.key)
        }
        "NoExecute" => taint.key == NOT_READY || taint.key == UNREACHABLE,
        _ => false,
    };
    let is_wanted = |taint: &Taint| {
        own.iter()
            .any(|(key, effect)| taint.key == *key && taint.effect == *effect)
    };
    let missing: Vec<_> = own
        .iter()
        .filter(|(key, effect)| {
            !has.iter()
                .any(|taint| taint.key == *key && taint.effect == *effect)
        })
        .collect();
    if missing.is_empty() && !has.iter().any(|taint| is_ours(taint) && !is_wanted(taint)) {
        return None;
    }
    let kept = has
        .iter()
        .filter(|taint| !is_ours(taint) || is_wanted(taint))
        .cloned();
    let added = missing.into_iter().map(|(key, effect)| Taint {
        key: (*key).to_owned(),
        effect: (*effect).to_owned(),
        time_added: Some(Time(now)),
        value: None,
    });
    Some(kept.chain(added).collect())
}

/// Returns key and effect of the taints that follow from the node's conditions and spec.
fn managed_taints(node: &Node) -> Vec<(&'static str, &'static str)> {
    let mut taints = Vec::new();
    for (kind, status, key) in CONDITION_TAINTS {
        if conditions::has_status(node, kind, status) {
            taints.push((key, "NoSchedule"));
            if kind == "Ready" {
                taints.push((key, "NoExecute"));
            }
        }
    }
    let cordoned = node
        .spec
        .as_ref()
        .and_then(|spec| spec.unschedulable)
        .unwrap_or(false);
    if cordoned {
        taints.push((UNSCHEDULABLE, "NoSchedule"));
    }
    // A node that never reported a status keeps its initial taint.
    let spoke = conditions::find(node, "Ready").is_some();
    if !spoke && has_taint(node, NOT_READY, "NoSchedule") {
        taints.push((NOT_READY, "NoSchedule"));
    }
    taints
}

fn has_taint(node: &Node, key: &str, effect: &str) -> bool {
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    taints
        .iter()
        .any(|taint| taint.key == key && taint.effect == effect)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    type Named = (&'static str, &'static str);

    #[test]
    fn taints_follow_conditions_and_foreign_taints_stay() {
        let theirs = json!({"key": "theirs", "effect": "NoExecute"});
        let fresh = json!({"key": NOT_READY, "effect": "NoSchedule"});
        let cases: [(&str, Value, Value, Option<&[Named]>); 6] = [
            ("True", json!({}), json!([theirs]), None),
            (
                "True",
                json!({}),
                json!([theirs, fresh]),
                Some(&[("theirs", "NoExecute")]),
            ),
            (
                "False",
                json!({}),
                json!([fresh]),
                Some(&[(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
            ),
            (
                "Unknown",
                json!({}),
                json!([fresh]),
                Some(&[(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]),
            ),
            (
                "True",
                json!({"unschedulable": true}),
                json!([]),
                Some(&[(UNSCHEDULABLE, "NoSchedule")]),
            ),
            ("", json!({}), json!([fresh]), None),
        ];
        for (ready, mut spec, taints, expected) in cases {
            spec["taints"] = taints;
            let mut status = json!({});
            if !ready.is_empty() {
                status["conditions"] = json!([{"type": "Ready", "status": ready}]);
            }
            let node: Node = serde_json::from_value(json!({"spec": spec, "status": status})).expect("a node");
            let found = desired(&node, Timestamp::UNIX_EPOCH);
            let found: Option<Vec<_>> = found
                .as_ref()
                .map(|all| all.iter().map(|t| (t.key.as_str(), t.effect.as_str())).collect());
            assert_eq!(found.as_deref(), expected, "{ready} {spec}");
        }
    }
}

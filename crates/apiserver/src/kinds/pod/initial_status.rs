//! What the server computes for a pod: its QoS class and minimum grace period.

use serde_json::{Value, json};

use crate::{object::Object, schema::quantity};

/// The initial status of a pod: pending, with a condition if it has scheduling gates.
pub(super) fn initial_status(pod: &Object, now: &str) -> Value {
    let mut status = json!({"phase": "Pending", "qosClass": qos_class(&pod.tree()["spec"])});
    let gates = pod
        .fields()
        .get("spec")
        .and_then(|spec| spec["schedulingGates"].as_array());
    if gates.is_some_and(|gates| !gates.is_empty()) {
        status["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null,
            "lastTransitionTime": now,
        }]);
    }
    status
}

/// The QoS class: `Guaranteed` if every container's limits of CPU and memory equal its requests, `BestEffort` if no
/// container has requests or limits, `Burstable` otherwise.
pub(super) fn qos_class(spec: &Value) -> &'static str {
    let containers = ["containers", "initContainers"]
        .iter()
        .filter_map(|list| spec[*list].as_array())
        .flatten();
    let (mut asks, mut guaranteed) = (false, true);
    for container in containers {
        let amount = |kind: &str, resource: &str| {
            let amount = quantity::nanos(&container["resources"][kind][resource]);
            amount.filter(|amount| *amount != 0)
        };
        for resource in ["cpu", "memory"] {
            let (request, limit) = (amount("requests", resource), amount("limits", resource));
            asks |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request == limit;
        }
    }
    match (asks, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Replaces a negative grace period by the shortest one.
pub(super) fn clamp_grace_period(pod: &mut Object) {
    if let Some(grace) = pod
        .fields_mut()
        .get_mut("spec")
        .and_then(|spec| spec.get_mut("terminationGracePeriodSeconds"))
        .filter(|grace| grace.as_i64().is_some_and(|seconds| seconds < 0))
    {
        *grace = 1.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qos_class_follows_from_requests_and_limits() {
        let all = json!({"cpu": "1", "memory": "1Gi"});
        for (resources, class) in [
            (json!([{}]), "BestEffort"),
            (json!([{"requests": {"cpu": "0"}}]), "BestEffort"),
            (json!([{"requests": all, "limits": all}]), "Guaranteed"),
            (
                json!([{"requests": all, "limits": {"cpu": "1000m", "memory": "1024Mi"}}]),
                "Guaranteed",
            ),
            (json!([{"requests": all, "limits": all}, {}]), "Burstable"),
            (json!([{"requests": {"cpu": "1"}}]), "Burstable"),
        ] {
            let containers: Vec<_> = resources
                .as_array()
                .expect("a list")
                .iter()
                .map(|r| json!({"resources": r}))
                .collect();
            assert_eq!(
                qos_class(&json!({"containers": containers})),
                class,
                "{resources}"
            );
        }
    }
}

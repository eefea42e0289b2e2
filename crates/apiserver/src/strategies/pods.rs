//! What the server works out about a pod: the class of service that its resources put it in, its shortest grace.

use serde_json::{Value, json};

use crate::{object::Object, schema::quantity};

/// A new pod waits; one with scheduling gates says for what.
pub(super) fn first_status(pod: &Object, now: &str) -> Value {
    let mut status = json!({"phase": "Pending", "qosClass": quality(pod)});
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

/// `Guaranteed` if every container has the processor and memory it asks for to itself, `BestEffort` if none asks for
/// any, `Burstable` otherwise.
fn quality(pod: &Object) -> &'static str {
    let null = Value::Null;
    let spec = pod.fields().get("spec").unwrap_or(&null);
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

/// A negative grace means the shortest.
pub(super) fn shorten_negative_grace(pod: &mut Object) {
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
    fn the_class_follows_from_requests_and_limits() {
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
            let pod = Object::new(json!({"spec": {"containers": containers}})).expect("an object");
            assert_eq!(quality(&pod), class, "{resources}");
        }
    }
}

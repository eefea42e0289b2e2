//! What may change in the pod template of a suspended job, so that a queue can decide where its pods run.

use serde_json::{Value, json};
use windlass_api::conditions;

/// Whether the template of a job may change: it is suspended, and no pod of it runs. Its labels and annotations may then be
/// any.
pub(super) fn may_change(job: &Value) -> bool {
    let status = &job["status"];
    let is_stopped = status["startTime"].is_null() || conditions::is_true(job, "Suspended");
    job["spec"]["suspend"] == true && is_stopped && status["active"].as_i64().unwrap_or(0) == 0
}

/// Whether a pod's spec differs only in what decides where it runs, and in the resources of its containers.
pub(super) fn changes_only_what_may(spec: &Value, old: &Value) -> bool {
    let mut allowed = old.clone();
    for key in ["nodeSelector", "tolerations", "schedulingGates"] {
        copy(key, spec, &mut allowed);
    }
    allow_node_affinity(spec, &mut allowed);
    for key in ["containers", "initContainers"] {
        if let Some(allowed) = allowed.get_mut(key) {
            allow_resources(&spec[key], allowed);
        }
    }
    *spec == allowed
}

fn allow_node_affinity(spec: &Value, allowed: &mut Value) {
    const KEY: &str = "nodeAffinity";
    let Some(allowed) = allowed.as_object_mut() else {
        return;
    };
    let mut affinity = allowed.remove("affinity").unwrap_or_else(|| json!({}));
    let now = spec.get("affinity");
    copy(KEY, now.unwrap_or(&Value::Null), &mut affinity);
    // Without any other affinity, it may be added and removed as a whole.
    if now.is_some() || affinity != json!({}) {
        allowed.insert("affinity".to_owned(), affinity);
    }
}

/// Takes over the resources of containers that are the same by number and name.
fn allow_resources(now: &Value, allowed: &mut Value) {
    if let (Some(now), Some(allowed)) = (now.as_array(), allowed.as_array_mut())
        && now.len() == allowed.len()
    {
        for (container, allowed) in now.iter().zip(allowed) {
            if container["name"] == allowed["name"] {
                copy("resources", container, allowed);
            }
        }
    }
}

/// Makes a field what it is in another object, also if it is absent there.
fn copy(key: &str, from: &Value, to: &mut Value) {
    let Some(to) = to.as_object_mut() else { return };
    match from.get(key) {
        Some(value) => drop(to.insert(key.to_owned(), value.clone())),
        None => drop(to.remove(key)),
    }
}

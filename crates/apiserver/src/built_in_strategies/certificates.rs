//! Certificate signing requests: approved or denied in `approval`, issued in `status`.

use serde_json::{Value, json};

use crate::object::Object;

/// The conditions that only `approval` writes.
const APPROVAL_CONDITIONS: [&str; 2] = ["Approved", "Denied"];

/// Completes an update of a subresource, and keeps what this subresource may not change.
pub(super) fn complete_update(part: &str, object: &mut Object, old: &Object, now: &str) {
    let before = old.fields().get("status").unwrap_or(&Value::Null);
    match part {
        "approval" => {
            let status = object.fields_mut().remove("status").unwrap_or_default();
            let mut conditions = status["conditions"].clone();
            set_missing_times(&mut conditions, before, now);
            let mut status = if before.is_object() {
                before.clone()
            } else {
                json!({})
            };
            match conditions {
                Value::Array(_) => status["conditions"] = conditions,
                _ => drop(status.as_object_mut().map(|status| status.remove("conditions"))),
            }
            object.fields_mut().insert("status".into(), status);
        }
        "status" => {
            let Some(conditions) = object
                .fields_mut()
                .get_mut("status")
                .and_then(|status| status.get_mut("conditions"))
            else {
                return;
            };
            for kind in APPROVAL_CONDITIONS {
                keep_conditions(conditions, before, kind);
            }
            set_missing_times(conditions, before, now);
        }
        _ => {}
    }
}

/// Keeps the conditions of a type, unless some were added or removed, which validation rejects.
fn keep_conditions(conditions: &mut Value, before: &Value, kind: &str) {
    let known = conditions_of_type(&before["conditions"], kind);
    if conditions_of_type(conditions, kind).len() != known.len() {
        return;
    }
    let current = conditions.as_array_mut().into_iter().flatten();
    for (current, known) in current.filter(|current| current["type"] == kind).zip(known) {
        *current = known.clone();
    }
}

/// Sets missing times of conditions.
fn set_missing_times(conditions: &mut Value, before: &Value, now: &str) {
    let is_missing = |condition: &Value, key: &str| condition[key].as_str().is_none_or(str::is_empty);
    for condition in conditions.as_array_mut().into_iter().flatten() {
        if !condition.is_object() {
            continue;
        }
        if is_missing(condition, "lastUpdateTime") {
            condition["lastUpdateTime"] = now.into();
        }
        if is_missing(condition, "lastTransitionTime") {
            let known = conditions_of_type(
                &before["conditions"],
                condition["type"].as_str().unwrap_or_default(),
            );
            let known = known.into_iter().find(|known| {
                known["status"] == condition["status"] && !is_missing(known, "lastTransitionTime")
            });
            condition["lastTransitionTime"] =
                known.map_or_else(|| now.into(), |known| known["lastTransitionTime"].clone());
        }
    }
}

fn conditions_of_type<'a>(conditions: &'a Value, kind: &str) -> Vec<&'a Value> {
    let all = conditions.as_array().into_iter().flatten();
    all.filter(|condition| condition["type"] == kind).collect()
}

//! Requests for certificates: decided about in `approval`, answered in `status`.

use serde_json::{Value, json};

use crate::object::Object;

/// What only `approval` writes.
const DECISIONS: [&str; 2] = ["Approved", "Denied"];

/// Completes what a part says of a request, and keeps what is not that part's to say.
pub(super) fn decide(part: &str, object: &mut Object, old: &Object, now: &str) {
    let before = old.fields().get("status").unwrap_or(&Value::Null);
    match part {
        "approval" => {
            let status = object.fields_mut().remove("status").unwrap_or_default();
            let mut conditions = status["conditions"].clone();
            note_times(&mut conditions, before, now);
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
            for kind in DECISIONS {
                keep(conditions, before, kind);
            }
            note_times(conditions, before, now);
        }
        _ => {}
    }
}

/// Leaves the conditions of a type as they were; where some came or went, that is for the rules to refuse.
fn keep(conditions: &mut Value, before: &Value, kind: &str) {
    let known = of_kind(&before["conditions"], kind);
    if of_kind(conditions, kind).len() != known.len() {
        return;
    }
    let said = conditions.as_array_mut().into_iter().flatten();
    for (said, known) in said.filter(|said| said["type"] == kind).zip(known) {
        *said = known.clone();
    }
}

/// Fills in when a condition came to be, where nobody said.
fn note_times(conditions: &mut Value, before: &Value, now: &str) {
    let is_missing = |condition: &Value, key: &str| condition[key].as_str().is_none_or(str::is_empty);
    for condition in conditions.as_array_mut().into_iter().flatten() {
        if !condition.is_object() {
            continue;
        }
        if is_missing(condition, "lastUpdateTime") {
            condition["lastUpdateTime"] = now.into();
        }
        if is_missing(condition, "lastTransitionTime") {
            let known = of_kind(
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

fn of_kind<'a>(conditions: &'a Value, kind: &str) -> Vec<&'a Value> {
    let all = conditions.as_array().into_iter().flatten();
    all.filter(|condition| condition["type"] == kind).collect()
}

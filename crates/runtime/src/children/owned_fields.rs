//! The part of a status that a field manager has applied, from the object's managed fields. No I/O.

use kube::core::DynamicObject;
use serde_json::{Map, Value};

/// Returns the status fields that this manager has applied, with their current values. An apply that changes one of them
/// must repeat the others: the server removes those that it omits.
pub(super) fn applied_status(object: &DynamicObject, manager: &str) -> Value {
    let entries = object.metadata.managed_fields.iter().flatten();
    let mut ours = entries.filter(|entry| {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref() == Some("status")
    });
    let fields = ours.next().and_then(|entry| entry.fields_v1.as_ref());
    let status = fields.and_then(|fields| fields.0.get("f:status"));
    status.map_or(Value::Null, |fields| {
        owned(fields, object.data.get("status").unwrap_or(&Value::Null))
    })
}

/// The parts of a value that a set of fields in the format `FieldsV1` names.
fn owned(fields: &Value, value: &Value) -> Value {
    let members = fields.as_object().filter(|members| !members.is_empty());
    match (members, value) {
        // A leaf: a scalar, or a map or list that is owned as a whole.
        (None, value) => value.clone(),
        (Some(members), Value::Object(value)) => {
            let fields = members.iter().filter_map(|(member, fields)| {
                let name = member.strip_prefix("f:")?;
                Some((name.to_owned(), owned(fields, value.get(name)?)))
            });
            Value::Object(fields.collect::<Map<_, _>>())
        }
        (Some(members), Value::Array(items)) => {
            let owned = items.iter().filter_map(|item| {
                let (_, fields) = members.iter().find(|(member, _)| names_item(member, item))?;
                Some(owned(fields, item))
            });
            Value::Array(owned.collect())
        }
        // The value has another shape than when it was applied.
        (Some(_), _) => Value::Null,
    }
}

/// Whether a member of a set of fields names this item: by its keys (`k:{"type":"Ready"}`) or its value (`v:"a"`).
fn names_item(member: &str, item: &Value) -> bool {
    let parse = |text: &str| serde_json::from_str::<Value>(text).ok();
    if let Some(keys) = member.strip_prefix("k:").and_then(parse) {
        let mut keys = keys.as_object().into_iter().flatten();
        return keys.all(|(name, value)| item.get(name) == Some(value));
    }
    member.strip_prefix("v:").and_then(parse).as_ref() == Some(item)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_fields_that_the_manager_applied_are_returned() {
        let entry = |manager: &str, operation: &str, fields: Value| {
            json!({
                "manager": manager, "operation": operation, "subresource": "status",
                "fieldsType": "FieldsV1", "fieldsV1": fields,
            })
        };
        let ours = json!({ "f:status": {
            "f:phase": {},
            "f:nested": { ".": {}, "f:a": {} },
            "f:atomic": {},
            "f:set": { "v:\"x\"": {} },
            "f:gone": {},
            "f:conditions": {
                ".": {},
                "k:{\"type\":\"Ready\"}": { ".": {}, "f:type": {}, "f:status": {} },
            },
        }});
        let object: DynamicObject = serde_json::from_value(json!({
            "metadata": { "name": "web", "managedFields": [
                entry("ours", "Update", json!({ "f:status": { "f:theirs": {} } })),
                entry("theirs", "Apply", json!({ "f:status": { "f:theirs": {} } })),
                entry("ours", "Apply", ours),
            ]},
            "status": {
                "phase": "Up", "theirs": 1, "nested": { "a": 1, "b": 2 }, "atomic": [1, 2], "set": ["x", "y"],
                "conditions": [{ "type": "Other", "status": "True" }, { "type": "Ready", "status": "True", "x": 1 }],
            },
        }))
        .expect("an object");
        assert_eq!(
            applied_status(&object, "ours"),
            json!({
                "phase": "Up", "nested": { "a": 1 }, "atomic": [1, 2], "set": ["x"],
                "conditions": [{ "type": "Ready", "status": "True" }],
            })
        );
        assert_eq!(applied_status(&object, "nobody"), Value::Null);
    }

    #[test]
    fn fields_of_another_shape_are_left_out() {
        assert_eq!(
            owned(&json!({ "f:a": { "f:b": {} } }), &json!({ "a": 1 })),
            json!({ "a": null })
        );
        assert_eq!(owned(&json!({ "k:broken": {} }), &json!([{ "a": 1 }])), json!([]));
    }
}

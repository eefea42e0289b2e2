//! Immutable fields.

use serde_json::Value;

use super::error_list::ErrorList;

/// Rejects changes of fields that may not change at all.
pub(super) fn check(fields: &[&str], value: &Value, old: &Value, errors: &mut ErrorList) {
    for path in fields {
        let now = value_at(value, path);
        if now != value_at(old, path) {
            errors.invalid(*path, now.clone(), "field is immutable");
        }
    }
}

pub(super) fn value_at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |value, part| &value[part])
}

/// Absent fields and nulls are equal.
pub(super) fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, field)| !field.is_null())
            .map(|(key, field)| (key.clone(), without_nulls(field)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

/// If `immutable` is set, neither the data nor `immutable` itself may change.
pub(super) fn check_immutable_data(value: &Value, old: &Value, errors: &mut ErrorList) {
    if old["immutable"] != true {
        return;
    }
    let why = "field is immutable when `immutable` is set";
    if value["immutable"] != true {
        errors.forbidden("immutable", why);
    }
    for key in ["data", "binaryData"] {
        if value[key] != old[key] {
            errors.forbidden(key, why);
        }
    }
}

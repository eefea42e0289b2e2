//! Parts of objects that no type knows, and values that are absent.

use serde_json::{Map, Value};

/// The top level fields that are not converted.
pub(super) const NOT_CONTENT: [&str; 3] = ["apiVersion", "kind", "metadata"];

pub(super) fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(fields) => fields.values().any(has_null),
        _ => false,
    }
}

/// The value without entries that are `null`. Items of lists stay, since they are counted.
pub(super) fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.clone(), without_nulls(value)))
            .collect(),
        other => other.clone(),
    }
}

/// `converted`, with the fields of `object` that its type did not know, where there is room for them.
pub(super) fn with_unknown(object: &Value, known: &Value, converted: &Value) -> Value {
    let (Value::Object(object), Value::Object(known), Value::Object(converted)) = (object, known, converted)
    else {
        return converted.clone();
    };
    let mut result = converted.clone();
    for (key, value) in object {
        if !NOT_CONTENT.contains(&key.as_str()) {
            add_unknown(key, value, known, &mut result);
        }
    }
    result.into()
}

fn add_unknown(key: &str, value: &Value, known: &Map<String, Value>, result: &mut Map<String, Value>) {
    match (known.get(key), result.get_mut(key)) {
        (None, None) if !is_empty(value) => {
            result.insert(key.to_owned(), value.clone());
        }
        (Some(Value::Object(known)), Some(Value::Object(result))) => {
            for (key, value) in value.as_object().into_iter().flatten() {
                add_unknown(key, value, known, result);
            }
        }
        _ => {}
    }
}

/// Whether a type may have left the value out because it is the default.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

//! The cells of custom resources, from their definition's printer columns.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{JsonPath, age, text};
use crate::registry::Resource;

pub(super) fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = json!(text(object, "/metadata/name"));
    if resource.printer_columns.is_empty() {
        return vec![
            name,
            age::since(text(object, "/metadata/creationTimestamp"), now).into(),
        ];
    }
    let own = resource.printer_columns.iter().map(|column| {
        let found = JsonPath::parse(&column.json_path)
            .map(|path| path.find(object))
            .unwrap_or_default();
        match found.first() {
            None => Value::Null,
            Some(value) => typed_cell(value, &column.kind, now),
        }
    });
    std::iter::once(name).chain(own).collect()
}

/// A value as shown in a column of a type; `null` if it has another type.
fn typed_cell(value: &Value, kind: &str, now: Timestamp) -> Value {
    match (kind, value) {
        ("integer", Value::Number(number)) if number.is_i64() => value.clone(),
        #[expect(clippy::cast_possible_truncation, reason = "as Go converts it")]
        ("integer", Value::Number(number)) => (number.as_f64().unwrap_or_default() as i64).into(),
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("string", Value::String(text)) => text.as_str().into(),
        ("string", Value::Null) => "<no value>".into(),
        ("string", other) => other.to_string().into(),
        ("date", Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(_) => age::since(text, now).into(),
            Err(_) => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}

//! Dropping what no schema describes.

use serde_json::Value;

use super::View;

/// Removes the fields of `value` that its schema does not describe, and returns their paths.
pub(crate) fn prune(schema: View<'_>, value: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    walk(schema, value, "", &mut unknown);
    unknown
}

fn walk(schema: View<'_>, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let open = schema.is_open();
            fields.retain(|name, field| {
                let here = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                if let Some(inner) = schema.field(name) {
                    walk(inner, field, &here, unknown);
                    return true;
                }
                let kept = open
                    || (schema.facts().embedded && matches!(&**name, "apiVersion" | "kind" | "metadata"));
                if !kept {
                    unknown.push(here);
                }
                kept
            });
        }
        Value::Array(items) => {
            if let Some(inner) = schema.items() {
                for (index, item) in items.iter_mut().enumerate() {
                    walk(inner, item, &format!("{path}[{index}]"), unknown);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::Schema, *};

    #[test]
    fn unknown_fields_go_and_are_named() {
        let schema = Schema::of_crd(&json!({"type": "object", "properties": {
            "known": {"type": "string"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}))
        .expect("valid");
        let mut value = json!({
            "known": "x", "other": 1, "list": [{"a": "1"}, {"b": "2"}], "map": {"k": "v"}, "any": {"x": {"y": 1}},
        });
        assert_eq!(prune(schema.view(), &mut value), ["list[1].b", "other"]);
        assert_eq!(
            value,
            json!({"known": "x", "list": [{"a": "1"}, {}], "map": {"k": "v"}, "any": {"x": {"y": 1}}})
        );
    }
}

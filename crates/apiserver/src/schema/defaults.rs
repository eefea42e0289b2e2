//! Filling in what a schema says about absent fields.

use serde_json::Value;

use super::View;

/// Sets absent fields to their schema's default, at every depth. A field that is `null` and must not be counts as absent.
pub(crate) fn fill_defaults(schema: View<'_>, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, property) in schema.properties() {
                let Some(default) = &property.here().default else {
                    continue;
                };
                let absent = match fields.get(name) {
                    None => true,
                    Some(Value::Null) => !property.facts().nullable,
                    Some(_) => false,
                };
                if absent {
                    fields.insert(name.to_owned(), default.clone());
                }
            }
            for (name, field) in fields.iter_mut() {
                if let Some(inner) = schema.field(name) {
                    fill_defaults(inner, field);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = schema.items() {
                for item in items {
                    fill_defaults(inner, item);
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
    fn absent_fields_take_their_default_at_every_depth() {
        let schema = Schema::of_crd(&json!({"type": "object", "properties": {
            "color": {"type": "string", "default": "red"},
            "size": {"type": "integer", "nullable": true, "default": 3},
            "nested": {"type": "object", "default": {}, "properties": {"deep": {"type": "boolean", "default": true}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}},
        }}))
        .expect("valid");
        let mut value = json!({"color": null, "size": null, "list": [{}, {"a": "y"}]});
        fill_defaults(schema.view(), &mut value);
        assert_eq!(
            value,
            json!({"color": "red", "size": null, "nested": {"deep": true}, "list": [{"a": "x"}, {"a": "y"}]})
        );
    }
}

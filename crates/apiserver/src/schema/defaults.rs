//! Filling in what a CRD's schema says about absent fields, and dropping nulls that it does not allow.

use serde_json::{Map, Value};

use super::View;

/// Sets absent fields to their schema's default, at every depth. A `null` that must not be counts as absent.
pub(crate) fn fill_defaults(schema: View<'_>, object: &mut Map<String, Value>) {
    for (name, property) in schema.properties() {
        let Some(default) = &property.here().default else {
            continue;
        };
        if object
            .get(name)
            .is_none_or(|field| is_wrong_null(property, field))
        {
            object.insert(name.to_owned(), default.clone());
        }
    }
    for (name, field) in object {
        match schema.property(name) {
            Some(property) => fill_inside(property, field),
            None => {
                if let Some(additional) = schema.additional() {
                    fill_value(additional, field);
                }
            }
        }
    }
}

fn fill_value(schema: View<'_>, value: &mut Value) {
    if is_wrong_null(schema, value)
        && let Some(default) = &schema.here().default
    {
        *value = default.clone();
    }
    fill_inside(schema, value);
}

fn fill_inside(schema: View<'_>, value: &mut Value) {
    match value {
        Value::Object(object) => fill_defaults(schema, object),
        Value::Array(items) => {
            if let Some(inner) = schema.items() {
                for item in items {
                    fill_value(inner, item);
                }
            }
        }
        _ => {}
    }
}

fn is_wrong_null(schema: View<'_>, value: &Value) -> bool {
    value.is_null() && !schema.facts().nullable
}

/// Drops fields that are `null` and must not be, unless a default will take their place. Items of lists stay.
pub(crate) fn drop_nulls(schema: View<'_>, object: &mut Map<String, Value>) {
    object.retain(
        |name, field| match schema.field(name).filter(|field| !field.is_unsaid()) {
            Some(inner) if is_wrong_null(inner, field) => inner.here().default.is_some(),
            Some(inner) => {
                drop_inside(inner, field);
                true
            }
            None => true,
        },
    );
}

fn drop_inside(schema: View<'_>, value: &mut Value) {
    match value {
        Value::Object(object) => drop_nulls(schema, object),
        Value::Array(items) => {
            if let Some(inner) = schema.items() {
                for item in items {
                    drop_inside(inner, item);
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
            "plain": {"type": "string"},
            "nested": {"type": "object", "default": {}, "properties": {"deep": {"type": "boolean", "default": true}}},
            "list": {"type": "array", "items": {"type": "object", "default": {"a": "z"}, "properties": {"a": {"type": "string", "default": "x"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "string", "default": "m"}},
        }}))
        .expect("valid");
        let mut value = json!({"color": null, "size": null, "plain": null, "list": [{}, {"a": "y"}, null], "map": {"k": null}});
        let object = value.as_object_mut().expect("an object");
        drop_nulls(schema.view(), object);
        fill_defaults(schema.view(), object);
        assert_eq!(
            value,
            json!({
                "color": "red", "size": null, "nested": {"deep": true},
                "list": [{"a": "x"}, {"a": "y"}, {"a": "z"}], "map": {"k": "m"},
            })
        );
    }
}

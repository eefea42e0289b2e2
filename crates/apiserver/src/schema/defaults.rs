//! Defaulting by a CRD's schema, and dropping of nulls that it does not allow.

use serde_json::{Map, Value};

use super::SchemaView;

/// Sets absent fields to their schema's default, at every depth. A `null` that is not nullable counts as absent.
pub(crate) fn fill_defaults(schema: SchemaView<'_>, object: &mut Map<String, Value>) {
    for (name, property) in schema.properties() {
        let Some(default) = &property.own_node().default else {
            continue;
        };
        if object
            .get(name)
            .is_none_or(|field| is_disallowed_null(property, field))
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

fn fill_value(schema: SchemaView<'_>, value: &mut Value) {
    if is_disallowed_null(schema, value)
        && let Some(default) = &schema.own_node().default
    {
        *value = default.clone();
    }
    fill_inside(schema, value);
}

fn fill_inside(schema: SchemaView<'_>, value: &mut Value) {
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

fn is_disallowed_null(schema: SchemaView<'_>, value: &Value) -> bool {
    value.is_null() && !schema.node().nullable
}

/// Drops fields that are `null` but not nullable, unless they have a default. List items are kept.
pub(crate) fn drop_nulls(schema: SchemaView<'_>, object: &mut Map<String, Value>) {
    object.retain(
        |name, field| match schema.field(name).filter(|field| !field.is_boolean_additional()) {
            Some(inner) if is_disallowed_null(inner, field) => inner.own_node().default.is_some(),
            Some(inner) => {
                drop_inside(inner, field);
                true
            }
            None => true,
        },
    );
}

fn drop_inside(schema: SchemaView<'_>, value: &mut Value) {
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
    fn absent_fields_are_defaulted_at_every_depth() {
        let schema = Schema::from_crd(&json!({"type": "object", "properties": {
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

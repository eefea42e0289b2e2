//! Pruning of fields that a CRD's schema does not specify.

use serde_json::{Map, Value};

use super::SchemaView;
use crate::{field_path::FieldPath, json::ReportedPaths};

/// Fields that every resource has, whether its schema specifies them or not.
const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Prunes a whole resource, except for its kind and metadata. Returns the sorted paths of pruned fields, as many as
/// are reported.
pub(crate) fn prune_object(schema: SchemaView<'_>, object: &mut Map<String, Value>) -> Vec<String> {
    let mut unknown = ReportedPaths::default();
    prune_fields(schema, object, &FieldPath::Root, true, &mut unknown);
    unknown.into_sorted_paths()
}

/// Prunes a part of a resource. Returns the sorted paths of pruned fields, as many as are reported.
pub(crate) fn prune(schema: SchemaView<'_>, value: &mut Value) -> Vec<String> {
    let mut unknown = ReportedPaths::default();
    prune_value(Some(schema), value, &FieldPath::Root, &mut unknown);
    unknown.into_sorted_paths()
}

fn prune_value(
    schema: Option<SchemaView<'_>>,
    value: &mut Value,
    path: &FieldPath<'_>,
    unknown: &mut ReportedPaths,
) {
    let open = schema.is_some_and(SchemaView::preserves_unknown);
    match value {
        Value::Object(object) => match schema {
            Some(schema) => prune_fields(schema, object, path, schema.node().embedded, unknown),
            None => {
                object.keys().for_each(|name| unknown.add(&path.child(name)));
                object.clear();
            }
        },
        Value::Array(items) if open => {
            prune_open_items(schema.and_then(SchemaView::items), items, path, unknown);
        }
        Value::Array(items) => {
            let inner = schema.and_then(SchemaView::items);
            for (index, item) in items.iter_mut().enumerate() {
                prune_value(inner, item, &path.index(index), unknown);
            }
        }
        _ => {}
    }
}

/// Items of a list that preserves unknown fields preserve them too; only specified fields inside are pruned.
fn prune_open_items(
    schema: Option<SchemaView<'_>>,
    items: &mut [Value],
    path: &FieldPath<'_>,
    unknown: &mut ReportedPaths,
) {
    let Some(schema) = schema else { return };
    for (index, item) in items.iter_mut().enumerate() {
        let here = path.index(index);
        match item {
            Value::Object(object) => prune_specified(schema, object, &here, schema.node().embedded, unknown),
            Value::Array(items) => prune_open_items(schema.items(), items, &here, unknown),
            _ => {}
        }
    }
}

fn prune_fields(
    schema: SchemaView<'_>,
    object: &mut Map<String, Value>,
    path: &FieldPath<'_>,
    is_resource: bool,
    unknown: &mut ReportedPaths,
) {
    if !schema.preserves_unknown() {
        object.retain(|name, _| {
            let known = (is_resource && META.contains(&&**name)) || schema.field(name).is_some();
            if !known {
                unknown.add(&path.child(name));
            }
            known
        });
    }
    prune_specified(schema, object, path, is_resource, unknown);
}

/// Prunes inside the fields that a schema specifies.
fn prune_specified(
    schema: SchemaView<'_>,
    object: &mut Map<String, Value>,
    path: &FieldPath<'_>,
    is_resource: bool,
    unknown: &mut ReportedPaths,
) {
    for (name, field) in object {
        if is_resource && META.contains(&&**name) {
            continue;
        }
        if let Some(inner) = schema.field(name) {
            let said = Some(inner).filter(|inner| !inner.is_boolean_additional());
            prune_value(said, field, &path.child(name), unknown);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::Schema, *};

    #[test]
    fn pruned_fields_below_a_long_key_are_limited() {
        let inner = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let schema =
            Schema::from_crd(&json!({"type": "object", "additionalProperties": inner})).expect("valid");
        let fields: Map<_, _> = (0..2000).map(|index| (format!("k{index}"), 1.into())).collect();
        let mut value = json!({"x".repeat(100_000): fields});
        let unknown = prune_object(schema.view(), value.as_object_mut().expect("an object"));
        assert_eq!(unknown.len(), 1);
        assert_eq!(value["x".repeat(100_000)], json!({}));
    }

    #[test]
    fn unknown_fields_are_pruned_and_reported() {
        let schema = Schema::from_crd(&json!({"type": "object", "properties": {
            "known": {"type": "string"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "some": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                     "properties": {"typed": {"type": "object", "properties": {"in": {"type": "string"}}}}},
            "loose": {"type": "object", "additionalProperties": true},
            "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
        }}))
        .expect("valid");
        let mut value = json!({
            "apiVersion": "v1", "metadata": {"x": 1},
            "known": "x", "other": 1, "list": [{"a": "1"}, {"b": "2"}], "map": {"k": "v"}, "any": {"x": {"y": 1}},
            "some": {"x": {"y": [1]}, "typed": {"in": "a", "out": "b"}}, "loose": {"a": {"b": 1}, "c": 1},
            "pod": {"kind": "Pod", "metadata": {"x": 1}, "spec": {"y": 1}, "status": 1},
        });
        let object = value.as_object_mut().expect("an object");
        assert_eq!(
            prune_object(schema.view(), object),
            [
                "list[1].b",
                "loose.a.b",
                "other",
                "pod.spec.y",
                "pod.status",
                "some.typed.out"
            ]
        );
        assert_eq!(
            value,
            json!({
                "apiVersion": "v1", "metadata": {"x": 1},
                "known": "x", "list": [{"a": "1"}, {}], "map": {"k": "v"}, "any": {"x": {"y": 1}},
                "some": {"x": {"y": [1]}, "typed": {"in": "a"}}, "loose": {"a": {}, "c": 1},
                "pod": {"kind": "Pod", "metadata": {"x": 1}, "spec": {}},
            })
        );
    }
}

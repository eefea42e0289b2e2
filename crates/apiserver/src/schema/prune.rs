//! Dropping what a CRD's schema does not describe.

use serde_json::{Map, Value};

use super::View;
use crate::trail::Trail;

/// What every resource has, whether its schema says so or not.
const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes what the schema of a whole resource does not describe, but for its kind and metadata. Returns the paths of
/// what went, in order.
pub(crate) fn prune_object(schema: View<'_>, object: &mut Map<String, Value>) -> Vec<String> {
    let mut unknown = Vec::new();
    fields(schema, object, &Trail::Root, true, &mut unknown);
    unknown.sort_unstable();
    unknown
}

/// Removes what the schema of a part of a resource does not describe. Returns the paths of what went, in order.
pub(crate) fn prune(schema: View<'_>, value: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    walk(Some(schema), value, &Trail::Root, &mut unknown);
    unknown.sort_unstable();
    unknown
}

fn walk(schema: Option<View<'_>>, value: &mut Value, path: &Trail<'_>, unknown: &mut Vec<String>) {
    let open = schema.is_some_and(View::is_open);
    match value {
        Value::Object(object) => match schema {
            Some(schema) => fields(schema, object, path, schema.facts().embedded, unknown),
            None => {
                unknown.extend(object.keys().map(|name| path.at(name).to_string()));
                object.clear();
            }
        },
        Value::Array(items) if open => open_items(schema.and_then(View::items), items, path, unknown),
        Value::Array(items) => {
            let inner = schema.and_then(View::items);
            for (index, item) in items.iter_mut().enumerate() {
                walk(inner, item, &path.item(index), unknown);
            }
        }
        _ => {}
    }
}

/// The items of a list that keeps what is unknown keep it too; only what is described inside is pruned.
fn open_items(schema: Option<View<'_>>, items: &mut [Value], path: &Trail<'_>, unknown: &mut Vec<String>) {
    let Some(schema) = schema else { return };
    for (index, item) in items.iter_mut().enumerate() {
        let here = path.item(index);
        match item {
            Value::Object(object) => described(schema, object, &here, schema.facts().embedded, unknown),
            Value::Array(items) => open_items(schema.items(), items, &here, unknown),
            _ => {}
        }
    }
}

fn fields(
    schema: View<'_>,
    object: &mut Map<String, Value>,
    path: &Trail<'_>,
    is_resource: bool,
    unknown: &mut Vec<String>,
) {
    if !schema.is_open() {
        object.retain(|name, _| {
            let known = (is_resource && META.contains(&&**name)) || schema.field(name).is_some();
            if !known {
                unknown.push(path.at(name).to_string());
            }
            known
        });
    }
    described(schema, object, path, is_resource, unknown);
}

/// Prunes inside the fields that a schema describes.
fn described(
    schema: View<'_>,
    object: &mut Map<String, Value>,
    path: &Trail<'_>,
    is_resource: bool,
    unknown: &mut Vec<String>,
) {
    for (name, field) in object {
        if is_resource && META.contains(&&**name) {
            continue;
        }
        if let Some(inner) = schema.field(name) {
            let said = Some(inner).filter(|inner| !inner.is_unsaid());
            walk(said, field, &path.at(name), unknown);
        }
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

//! Published schemas of custom resources.

use serde_json::{Map, Value, json};

use super::dialect::Dialect;
use crate::registry::Resource;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// `io.example.v1.Foo` for the kind Foo of `example.io/v1`.
pub(super) fn name(group: &str, version: &str, kind: &str) -> String {
    let reversed: Vec<_> = group.split('.').rev().collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}

/// The schemas of a custom kind and of its list, under their names.
pub(super) fn schemas(resource: &Resource, names: &[String; 2], dialect: Dialect) -> [(String, Value); 2] {
    let gvk = |kind: &str| json!([{"group": &*resource.group, "version": &*resource.version, "kind": kind}]);
    let mut object = object(resource.crd_schema.as_deref(), dialect);
    object["x-kubernetes-group-version-kind"] = gvk(&resource.kind);
    let mut list = json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": reference_with_description(LIST_META, dialect),
            "items": {"type": "array", "items": dialect.reference(&names[0])},
        },
        "x-kubernetes-group-version-kind": gvk(&resource.list_kind),
    });
    let selectable = resource
        .selectable_fields
        .iter()
        .filter(|field| !field.name.starts_with("metadata."));
    let selectable: Vec<_> = selectable.map(|field| json!({"fieldPath": field.name})).collect();
    if !selectable.is_empty() {
        for schema in [&mut object, &mut list] {
            schema["x-kubernetes-selectable-fields"] = selectable.clone().into();
        }
    }
    let [object_name, list_name] = names.clone();
    [(object_name, object), (list_name, list)]
}

fn object(document: Option<&Value>, dialect: Dialect) -> Value {
    let Some(document) = document else {
        return json!({"type": "object"});
    };
    if dialect == Dialect::V2 && document[PRESERVE] == true {
        return json!({"type": "object"});
    }
    let mut schema = document.clone();
    match dialect {
        Dialect::V2 => simplify(&mut schema),
        Dialect::V3 => expand_int_or_string(&mut schema),
    }
    add_embedded(&mut schema, dialect);
    add_meta(&mut schema, dialect);
    schema
}

/// A reference that has a description in the real document.
fn reference_with_description(name: &str, dialect: Dialect) -> Value {
    let reference = dialect.reference(name);
    match dialect {
        Dialect::V2 => reference,
        Dialect::V3 => json!({"allOf": [reference]}),
    }
}

/// Adds the fields that every resource has.
fn add_meta(schema: &mut Value, dialect: Dialect) {
    schema["properties"]["apiVersion"] = json!({"type": "string"});
    schema["properties"]["kind"] = json!({"type": "string"});
    schema["properties"]["metadata"] = reference_with_description(OBJECT_META, dialect);
}

/// Adds them to embedded resources too.
fn add_embedded(schema: &mut Value, dialect: Dialect) {
    for_each_subschema(schema, &mut |inner| add_embedded(inner, dialect));
    // Clients of version 2 would reject every field that is not listed.
    if dialect == Dialect::V2 && schema[PRESERVE] == true {
        return;
    }
    if schema["x-kubernetes-embedded-resource"] == true {
        add_meta(schema, dialect);
        let mut required = schema["required"].as_array().cloned().unwrap_or_default();
        for key in ["kind", "apiVersion"] {
            if !required.contains(&key.into()) {
                required.push(key.into());
            }
        }
        schema["required"] = required.into();
    }
}

/// Expands `x-kubernetes-int-or-string` for clients that do not know it.
fn expand_int_or_string(schema: &mut Value) {
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    if schema["x-kubernetes-int-or-string"] == true
        && schema["anyOf"] != either
        && schema["allOf"][0]["anyOf"] != either
    {
        if schema["anyOf"].is_null() {
            schema["anyOf"] = either;
        } else {
            let others = schema["allOf"].as_array().cloned().unwrap_or_default();
            let first = json!({"anyOf": either});
            schema["allOf"] = std::iter::once(first).chain(others).collect();
        }
    }
    for_each_subschema(schema, &mut expand_int_or_string);
}

/// Removes what version 2 cannot express, and what its clients handle incorrectly.
fn simplify(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    for key in ["allOf", "oneOf", "anyOf", "not", "default"] {
        fields.remove(key);
    }
    let nullable = is_nullable(fields);
    let preserves = fields.get(PRESERVE) == Some(&true.into());
    if nullable {
        fields.remove("nullable");
        fields.remove("type");
    }
    // A value of any type must not have `items` or `properties`, and neither must one with unknown fields.
    if nullable || preserves {
        fields.remove("items");
        fields.remove("properties");
    }
    let is = |fields: &Map<String, Value>, name: &str| fields.get("type") == Some(&name.into());
    if is(fields, "array") && !fields.contains_key("items") || preserves && is(fields, "object") {
        fields.remove("type");
    }
    // A nullable field is not required.
    let any_null = fields
        .get("additionalProperties")
        .and_then(Value::as_object)
        .is_some_and(is_nullable);
    if any_null {
        fields.remove("required");
    }
    let mut optional = Vec::new();
    if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
        let nullable = properties
            .iter()
            .filter(|(_, property)| property.as_object().is_some_and(is_nullable));
        optional.extend(nullable.map(|(name, _)| Value::from(name.as_str())));
    }
    if let Some(required) = fields.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !optional.contains(name));
        if required.is_empty() {
            fields.remove("required");
        }
    }
    for_each_subschema(schema, &mut simplify);
}

fn is_nullable(fields: &Map<String, Value>) -> bool {
    fields.get("nullable") == Some(&true.into())
}

/// Applies a change to each schema directly inside of one.
fn for_each_subschema(schema: &mut Value, change: &mut impl FnMut(&mut Value)) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    for key in ["items", "additionalProperties"] {
        if let Some(part) = fields.get_mut(key).filter(|part| part.is_object()) {
            change(part);
        }
    }
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(change);
    }
}

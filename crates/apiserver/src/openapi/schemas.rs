//! The schemas of a document: what its operations name, and whatever that reaches.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value, json};

use crate::registry::{Resource, schema_facts};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Collects the schemas of one document.
pub(super) struct Components {
    done: BTreeMap<String, Value>,
    /// Named somewhere, and not looked at yet.
    wanted: Vec<String>,
    seen: HashSet<String>,
    /// The kinds of subresources, by the names of their schemas.
    parts: HashMap<String, Value>,
}

impl Components {
    pub(super) fn new() -> Self {
        Self {
            done: BTreeMap::new(),
            wanted: Vec::new(),
            seen: HashSet::new(),
            parts: HashMap::new(),
        }
    }

    /// A reference to a schema of `meta/v1`.
    pub(super) fn meta(&mut self, name: &str) -> Value {
        self.reference(&format!("{META}.{name}"))
    }

    /// References to a resource's kind and to its list.
    pub(super) fn kind(&mut self, resource: &Resource) -> (Value, Value) {
        if let Some(document) = &resource.document {
            let name = custom_name(&resource.group, &resource.version, &resource.kind);
            let list = custom_name(&resource.group, &resource.version, &resource.list_kind);
            self.add_custom(resource, document, &name, &list);
            return (to(&name), to(&list));
        }
        let mut of = |kind: &str| {
            let key = format!("{}/{}/{kind}", resource.group, resource.version);
            schema_facts()
                .kinds
                .get(&key)
                .map_or(Value::Null, |name| self.reference(name))
        };
        (of(&resource.kind), of(&resource.list_kind))
    }

    /// A reference to the kind that a subresource answers with.
    pub(super) fn named_kind(&mut self, group: &str, version: &str, kind: &str) -> Value {
        let facts = schema_facts();
        if let Some(name) = facts.kinds.get(&format!("{group}/{version}/{kind}")) {
            return self.reference(name);
        }
        // A kind that is no resource is known by the name of its schema alone.
        let package = match group.split('.').next() {
            None | Some("") => "core",
            Some(package) => package,
        };
        let name = format!("io.k8s.api.{package}.{version}.{kind}");
        if !facts.schemas.contains_key(&name) {
            return Value::Null;
        }
        let gvk = json!({"group": group, "version": version, "kind": kind});
        self.parts.insert(name.clone(), gvk);
        self.reference(&name)
    }

    fn reference(&mut self, name: &str) -> Value {
        if self.seen.insert(name.to_owned()) {
            self.wanted.push(name.to_owned());
        }
        to(name)
    }

    /// Everything that was named, and everything that this names.
    pub(super) fn finish(mut self) -> Value {
        let facts = schema_facts();
        while let Some(name) = self.wanted.pop() {
            let Some(reduced) = facts.schemas.get(&name) else {
                continue;
            };
            let mut schema = self.expanded(reduced);
            let kinds: Vec<_> = facts
                .kinds
                .iter()
                .filter(|(_, schema)| **schema == name)
                .filter_map(|(key, _)| {
                    let mut parts = key.splitn(3, '/');
                    Some(json!({"group": parts.next()?, "version": parts.next()?, "kind": parts.next()?}))
                })
                .chain(self.parts.get(&name).cloned())
                .collect();
            if !kinds.is_empty() {
                schema["x-kubernetes-group-version-kind"] = kinds.into();
            }
            self.done.insert(name, schema);
        }
        self.done.into_iter().collect::<Map<_, _>>().into()
    }

    /// The published form of a reduced schema.
    fn expanded(&mut self, reduced: &Value) -> Value {
        let mut schema = Map::new();
        for (key, value) in reduced.as_object().into_iter().flatten() {
            let value = value.clone();
            match key.as_str() {
                "ref" => {
                    let reference = self.reference(value.as_str().unwrap_or_default());
                    // A reference with facts of its own stands in an `allOf`.
                    if reduced.as_object().is_some_and(|fields| fields.len() == 1) {
                        return reference;
                    }
                    schema.insert("allOf".into(), json!([reference]));
                }
                "oneOf" => {
                    let types = value
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(|name| json!({"type": name}));
                    schema.insert("oneOf".into(), types.collect());
                }
                "properties" => {
                    let properties = value.as_object().into_iter().flatten();
                    let expanded = properties.map(|(name, property)| (name.clone(), self.expanded(property)));
                    schema.insert("properties".into(), expanded.collect::<Map<_, _>>().into());
                }
                "items" | "additionalProperties" => {
                    let expanded = self.expanded(&value);
                    schema.insert(key.clone(), expanded);
                }
                "listType"
                | "listMapKeys"
                | "mapType"
                | "patchStrategy"
                | "patchMergeKey"
                | "intOrString"
                | "preserveUnknownFields"
                | "unions" => {
                    schema.insert(extension(key), value);
                }
                _ => {
                    schema.insert(key.clone(), value);
                }
            }
        }
        schema.into()
    }

    fn add_custom(&mut self, resource: &Resource, document: &Value, name: &str, list: &str) {
        let gvk =
            |kind: &str| json!([{"group": &*resource.group, "version": &*resource.version, "kind": kind}]);
        let mut schema = document.clone();
        let object_meta = self.meta("ObjectMeta");
        unfold(&mut schema, &object_meta);
        add_meta(&mut schema, &object_meta);
        schema["x-kubernetes-group-version-kind"] = gvk(&resource.kind);
        let list_meta = self.meta("ListMeta");
        let mut schemas = [
            schema,
            json!({
                "type": "object",
                "required": ["items"],
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {"allOf": [list_meta]},
                    "items": {"type": "array", "items": to(name)},
                },
                "x-kubernetes-group-version-kind": gvk(&resource.list_kind),
            }),
        ];
        let selectable = resource
            .selectable
            .iter()
            .filter(|field| !field.starts_with("metadata."));
        let selectable: Vec<_> = selectable.map(|field| json!({"fieldPath": &**field})).collect();
        if !selectable.is_empty() {
            for schema in &mut schemas {
                schema["x-kubernetes-selectable-fields"] = selectable.clone().into();
            }
        }
        for (name, schema) in [name, list].into_iter().zip(schemas) {
            self.done.insert(name.to_owned(), schema);
        }
    }
}

/// Gives the schema of a resource what all resources have.
fn add_meta(schema: &mut Value, object_meta: &Value) {
    schema["properties"]["apiVersion"] = json!({"type": "string"});
    schema["properties"]["kind"] = json!({"type": "string"});
    schema["properties"]["metadata"] = json!({"allOf": [object_meta]});
}

/// Spells out what extensions of a CRD's schema say, for those who do not know them.
fn unfold(schema: &mut Value, object_meta: &Value) {
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
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            unfold(&mut schema[key], object_meta);
        }
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties
            .values_mut()
            .for_each(|property| unfold(property, object_meta));
    }
    if schema["x-kubernetes-embedded-resource"] == true {
        add_meta(schema, object_meta);
        let mut required = schema["required"].as_array().cloned().unwrap_or_default();
        for key in ["kind", "apiVersion"] {
            if !required.contains(&key.into()) {
                required.push(key.into());
            }
        }
        schema["required"] = required.into();
    }
}

fn to(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// `listMapKeys` → `x-kubernetes-list-map-keys`
fn extension(key: &str) -> String {
    let mut name = "x-kubernetes-".to_owned();
    for c in key.chars() {
        if c.is_ascii_uppercase() {
            name.push('-');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

/// `io.example.v1.Foo` for the kind Foo of `example.io/v1`.
fn custom_name(group: &str, version: &str, kind: &str) -> String {
    let reversed: Vec<_> = group.split('.').rev().collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}

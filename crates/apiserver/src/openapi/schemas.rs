//! The schemas of a document: those its operations refer to, directly or indirectly.

use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

use serde_json::{Map, Value, json};

use super::{custom, descriptions, dialect::Dialect, groups, operations::BodySchema, roots};
use crate::registry::{Resource, Subresource, built_in_schemas};

/// The prefix of the schemas of `meta/v1`.
pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Collects the schemas of one document and yields them one by one.
pub(super) struct Schemas {
    dialect: Dialect,
    /// The group versions listed in the schemas of `DeleteOptions` and `WatchEvent`.
    versions: Vec<(&'static str, &'static str)>,
    /// Complete schemas: those of CRDs.
    ready: Vec<(String, Value)>,
    /// Referred to, but not expanded yet.
    pending: Vec<String>,
    seen: HashSet<String>,
}

impl Iterator for Schemas {
    type Item = (String, Value);

    /// Expands the next pending schema, which may refer to others.
    fn next(&mut self) -> Option<(String, Value)> {
        if let Some(ready) = self.ready.pop() {
            return Some(ready);
        }
        loop {
            let name = self.pending.pop()?;
            let reduced = built_in_schemas().schemas.get(&name);
            if let Some(reduced) = reduced.or_else(|| roots::schema(&name)) {
                let mut schema = self.expand(reduced, &name);
                let kinds = self.kinds(&name);
                descriptions::describe(&name, !kinds.is_empty(), &mut schema);
                if !kinds.is_empty() {
                    schema["x-kubernetes-group-version-kind"] = kinds.into();
                }
                return Some((name, schema));
            }
        }
    }
}

impl Schemas {
    pub(super) fn new(dialect: Dialect, versions: Vec<(&'static str, &'static str)>) -> Self {
        Self {
            dialect,
            versions,
            ready: Vec::new(),
            pending: Vec::new(),
            seen: HashSet::new(),
        }
    }

    /// A schema of `meta/v1`.
    pub(super) fn meta(&mut self, name: &str) -> BodySchema {
        self.named(&format!("{META}.{name}"))
    }

    /// Refers to the schema of this name.
    pub(super) fn named(&mut self, name: &str) -> BodySchema {
        self.enqueue(name);
        BodySchema::Named(name.to_owned())
    }

    /// The schema names of a resource's kind and of its list.
    pub(super) fn kind(&mut self, resource: &Resource) -> (String, String) {
        if resource.is_custom {
            let names = [&resource.kind, &resource.list_kind]
                .map(|kind| custom::name(&resource.group, &resource.version, kind));
            if self.seen.insert(names[0].clone()) {
                for part in ["ObjectMeta", "ListMeta"] {
                    self.meta(part);
                }
                self.ready.extend(custom::schemas(resource, &names, self.dialect));
            }
            let [kind, list] = names;
            return (kind, list);
        }
        let mut of = |kind: &str| {
            let key = format!("{}/{}/{kind}", resource.group, resource.version);
            let name = built_in_schemas().kinds.get(&key).cloned().unwrap_or_default();
            self.enqueue(&name);
            name
        };
        (of(&resource.kind), of(&resource.list_kind))
    }

    /// The response schema of a subresource of another kind.
    pub(super) fn subresource_schema(
        &mut self,
        resource: &Resource,
        subresource: &Subresource,
    ) -> BodySchema {
        let or = |text: &str, own: &str| {
            if subresource.group.is_empty() && subresource.version.is_empty() {
                own.to_owned()
            } else {
                text.to_owned()
            }
        };
        let group = or(&subresource.group, &resource.group);
        let version = or(&subresource.version, &resource.version);
        let kind = &subresource.kind;
        let facts = built_in_schemas();
        let known = facts.kinds.get(&format!("{group}/{version}/{kind}")).cloned();
        // A kind without a resource is known by the name of its schema only.
        let name = known.unwrap_or_else(|| format!("io.k8s.api.{}.{version}.{kind}", package(&group)));
        self.named(&name)
    }

    fn enqueue(&mut self, name: &str) {
        if self.seen.insert(name.to_owned()) {
            self.pending.push(name.to_owned());
        }
    }

    /// The kinds that a schema describes.
    fn kinds(&self, name: &str) -> Vec<Value> {
        /// By the name of their schema.
        static KINDS: LazyLock<HashMap<&str, Vec<Value>>> = LazyLock::new(|| {
            let mut kinds: HashMap<_, Vec<_>> = HashMap::new();
            for (key, name) in &built_in_schemas().kinds {
                let mut parts = key.splitn(3, '/');
                let [group, version, kind] = [(); 3].map(|()| parts.next().unwrap_or_default());
                let kind = json!({"group": group, "version": version, "kind": kind});
                kinds.entry(name.as_str()).or_default().push(kind);
            }
            kinds
        });
        for kind in ["DeleteOptions", "WatchEvent"] {
            if name.strip_prefix(META) == Some(&format!(".{kind}")) {
                let versions = self.versions.iter();
                return versions
                    .map(|(group, version)| json!({"group": group, "version": version, "kind": kind}))
                    .collect();
            }
        }
        if let Some(kinds) = KINDS.get(name) {
            return kinds.clone();
        }
        groups::subresource_kind(name)
            .or_else(|| roots::kind(name))
            .into_iter()
            .collect()
    }

    /// Expands a reduced schema, `name` or a part of it, to its published form.
    fn expand(&mut self, reduced: &Value, name: &str) -> Value {
        let mut schema = Map::new();
        for (key, value) in reduced.as_object().into_iter().flatten() {
            match (key.as_str(), self.dialect) {
                ("ref", dialect) => {
                    let target = value.as_str().unwrap_or_default();
                    self.enqueue(target);
                    let reference = dialect.reference(target);
                    // In version 3, a reference beside other fields is wrapped in an `allOf`.
                    match (dialect, reference) {
                        (Dialect::V3, reference) if reduced.as_object().is_some_and(|all| all.len() > 1) => {
                            schema.insert("allOf".into(), json!([reference]));
                        }
                        (_, Value::Object(reference)) => schema.extend(reference),
                        _ => {}
                    }
                }
                ("oneOf", Dialect::V3) => {
                    let types = ["integer", "string", "number"]
                        .into_iter()
                        .filter(|name| value.as_array().is_some_and(|all| all.contains(&(*name).into())))
                        .map(|name| json!({"type": name}));
                    schema.insert("oneOf".into(), types.collect());
                }
                // Version 2 has no alternatives.
                ("oneOf", Dialect::V2) => {
                    schema.insert("type".into(), "string".into());
                }
                ("default", Dialect::V2) => {}
                ("properties", _) => {
                    let properties = value.as_object().into_iter().flatten();
                    let expanded = properties.map(|(key, property)| {
                        let property = self.property(property, name, key);
                        (key.clone(), property)
                    });
                    schema.insert("properties".into(), expanded.collect::<Map<_, _>>().into());
                }
                ("items" | "additionalProperties", _) => {
                    let expanded = self.expand(value, "");
                    schema.insert(key.clone(), expanded);
                }
                (
                    "listType"
                    | "listMapKeys"
                    | "mapType"
                    | "patchStrategy"
                    | "patchMergeKey"
                    | "intOrString"
                    | "preserveUnknownFields"
                    | "unions",
                    _,
                ) => {
                    schema.insert(extension(key), value.clone());
                }
                _ => {
                    schema.insert(key.clone(), value.clone());
                }
            }
        }
        schema.into()
    }

    /// A property, whose reference has a description beside it in the real document.
    fn property(&mut self, property: &Value, schema: &str, name: &str) -> Value {
        let expanded = self.expand(property, "");
        let described = match schema.rsplit('.').next() {
            Some("IngressRule") => name != "http",
            Some("JSONSchemaProps") => name == "default",
            _ => true,
        };
        if self.dialect == Dialect::V3 && described && expanded.get("$ref").is_some() {
            return json!({"allOf": [expanded]});
        }
        expanded
    }
}

/// The Go package of a group's types.
fn package(group: &str) -> &str {
    match group.split('.').next() {
        None | Some("") => "core",
        Some(package) => package,
    }
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

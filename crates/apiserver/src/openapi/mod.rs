//! OpenAPI documents.
//!
//! ```text
//!   /openapi/v3              index of the documents, each with its hash
//!   /openapi/v3/apis/apps/v1 one document per group version: operations and the schemas they refer to
//!   /openapi/v2              everything in one document, in OpenAPI v2
//! ```
//!
//! kubectl reads a document to learn whether the server validates fields (`fieldValidation`), to explain kinds, and to
//! build strategic merge patches. Documents are built on request from the registry, and contain the descriptions of CRDs
//! and, for built-in kinds, short ones of our own (`descriptions`). A document's hash is computed from its inputs, so it is not built just for its entity tag.

mod custom;
mod descriptions;
mod dialect;
mod gnostic;
mod groups;
mod operations;
mod parameters;
mod roots;
mod schemas;
mod v2;

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Map, Value, json};

pub(crate) use v2::{DocumentCache, DocumentFormat, v2_document};

use self::{dialect::Dialect, operations::Paths, schemas::Schemas};
use crate::registry::{Catalogue, Resource, group_version};

/// A document as sent.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) bytes: Bytes,
    pub(crate) hash: String,
}

impl Document {
    /// A document whose hash is that of its content.
    pub(crate) fn new(content: &impl Serialize) -> Self {
        let json = serde_json::to_string(content).expect("keys are strings");
        let hash = hash(&json);
        Self {
            bytes: json.into(),
            hash,
        }
    }
}

/// A hash for entity tags: equal content has an equal hash within a process.
fn hash(content: impl Hash) -> String {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, &content).hash(&mut hasher);
        hasher.finish()
    };
    format!("{:016X}{:016X}", half(0), half(1))
}

/// The inputs of a resource to documents: its name if it is built in, otherwise its definition.
fn fingerprint(resource: &Resource) -> impl Hash {
    let definition = resource.crd_schema.as_deref().map(Value::to_string);
    let facts = format!(
        "{} {} {} {:?} {:?} {:?}",
        resource.kind,
        resource.list_kind,
        resource.namespaced,
        resource.selectable_fields,
        resource.verbs,
        resource.subresources
    );
    (resource.plural.clone(), facts, definition)
}

/// The path of a group version's document below `/openapi/v3/`.
fn path(group: &str, version: &str) -> String {
    let prefix = if group.is_empty() { "api" } else { "apis" };
    format!("{prefix}/{}", group_version(group, version))
}

/// `/openapi/v3`
pub(crate) fn index(catalogue: &Catalogue) -> Value {
    let mut paths = Map::new();
    for root in roots::all(catalogue) {
        let path = root.path();
        let hash = hash(&path);
        paths.insert(
            path.clone(),
            json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}),
        );
    }
    for group in &catalogue.groups {
        for version in &group.versions {
            let path = path(&group.name, version);
            let hash = etag(catalogue, &group.name, version);
            paths.insert(
                path.clone(),
                json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}),
            );
        }
    }
    json!({"paths": paths})
}

/// The document at a path below `/openapi/v3/`.
pub(crate) fn find(catalogue: &Catalogue, wanted: &str) -> Option<Arc<Document>> {
    let mut roots = roots::all(catalogue).into_iter();
    if let Some(root) = roots.find(|root| root.path() == wanted) {
        let mut schemas = Schemas::new(Dialect::V3, Vec::new());
        let operation = root.operation(&mut schemas);
        let paths = Paths::from([(format!("/{wanted}/"), vec![operation])]);
        let mut document = assemble(paths, schemas);
        document["info"] = info();
        document["components"]["securitySchemes"] = security();
        return Some(Arc::new(Document {
            bytes: document.to_string().into(),
            hash: hash(wanted),
        }));
    }
    let versions = catalogue
        .groups
        .iter()
        .flat_map(|g| g.versions.iter().map(move |v| (&*g.name, &**v)));
    let (group, version) = versions
        .into_iter()
        .find(|(group, version)| path(group, version) == wanted)?;
    Some(cached_document(catalogue, group, version))
}

/// A group version's document. Documents of built-in kinds are built once per process.
fn cached_document(catalogue: &Catalogue, group: &str, version: &str) -> Arc<Document> {
    static BUILT_IN: LazyLock<Mutex<HashMap<String, Arc<Document>>>> = LazyLock::new(Mutex::default);
    if is_custom(catalogue, group, version) {
        return Arc::new(build_document(catalogue, group, version));
    }
    let mut made = BUILT_IN.lock();
    made.entry(path(group, version))
        .or_insert_with(|| Arc::new(build_document(catalogue, group, version)))
        .clone()
}

fn is_custom(catalogue: &Catalogue, group: &str, version: &str) -> bool {
    let mut resources = catalogue.in_group_version(group, version);
    resources.any(|resource| resource.is_custom)
}

/// The hash of a group version's document.
fn etag(catalogue: &Catalogue, group: &str, version: &str) -> String {
    let resources = catalogue.in_group_version(group, version);
    let resources: Vec<_> = resources.map(|resource| fingerprint(resource)).collect();
    hash((group, version, resources))
}

fn build_document(catalogue: &Catalogue, group: &str, version: &str) -> Document {
    let mut paths = Paths::new();
    let is_custom = is_custom(catalogue, group, version);
    let versions = if is_custom {
        groups::known_to_clients()
    } else {
        groups::listed_in_document(group, version)
    };
    let mut schemas = Schemas::new(Dialect::V3, versions);
    for resource in catalogue.in_group_version(group, version) {
        operations::add(resource, &mut paths, &mut schemas);
    }
    if !is_custom {
        let operation = roots::version_operation(group, version, &mut schemas);
        paths.insert(format!("/{}/", path(group, version)), vec![operation]);
    }
    let mut document = assemble(paths, schemas);
    if is_custom {
        document["info"] = json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"});
    } else {
        document["info"] = info();
        document["components"]["securitySchemes"] = security();
    }
    Document {
        bytes: document.to_string().into(),
        hash: etag(catalogue, group, version),
    }
}

fn assemble(paths: Paths, schemas: Schemas) -> Value {
    let paths = paths
        .into_iter()
        .map(|(path, operations)| (path, Dialect::V3.item(&operations)));
    json!({
        "openapi": "3.0.0",
        "paths": paths.collect::<Map<_, _>>(),
        "components": {"schemas": schemas.collect::<Map<_, _>>()},
    })
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": "1.36"})
}

fn security() -> Value {
    json!({"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn every_reference_resolves_to_a_schema() {
        fn references(value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                    fields.values().for_each(|v| references(v, found));
                }
                Value::Array(items) => items.iter().for_each(|v| references(v, found)),
                _ => {}
            }
        }
        let catalogue = Registry::new().catalogue();
        let mut documents = 0;
        for path in index(&catalogue)["paths"].as_object().expect("an object").keys() {
            let document = find(&catalogue, path).expect("the index names it");
            let value: Value = serde_json::from_slice(&document.bytes).expect("JSON");
            let mut found = Vec::new();
            references(&value, &mut found);
            assert!(
                !found.is_empty() || value["paths"].as_object().is_some_and(Map::is_empty),
                "{path}"
            );
            for reference in found {
                let pointer = reference.trim_start_matches('#');
                assert!(value.pointer(pointer).is_some(), "{path}: {reference}");
            }
            documents += 1;
        }
        assert!(documents > 20, "{documents}");
    }

    #[test]
    fn patch_operation_has_field_validation() {
        let catalogue = Registry::new().catalogue();
        let document = find(&catalogue, "apis/apps/v1").expect("served");
        let value: Value = serde_json::from_slice(&document.bytes).expect("JSON");
        let patch = &value["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Deployment");
        let parameters = patch["parameters"].as_array().expect("a list");
        assert!(
            parameters
                .iter()
                .any(|p| p["name"] == "fieldValidation" && p["in"] == "query")
        );
    }
}

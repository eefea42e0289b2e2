//! `/openapi/v2`: all operations and all schemas in one document of about a megabyte.
//!
//! It is written piece by piece, one path and one schema at a time, so it never exists as a tree. The format requested
//! last is cached as long as the catalogue it was built from: kubectl requests protobuf, most other clients JSON, and
//! hardly any client both.

use std::{collections::BTreeMap, fmt::Write, sync::Arc};

use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::{
    Document,
    dialect::Dialect,
    fingerprint,
    gnostic::{self, Message},
    groups, hash, info, operations,
    operations::Paths,
    path, roots,
    schemas::Schemas,
    security,
};
use crate::registry::Catalogue;

/// The formats of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentFormat {
    Json,
    Protobuf,
}

/// The last document built from a catalogue. Cloning a catalogue, which happens before a change, clears the cache.
#[derive(Debug, Default)]
pub(crate) struct DocumentCache(Mutex<Option<(DocumentFormat, Arc<Document>)>>);

impl Clone for DocumentCache {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// The whole document in a format.
pub(crate) fn v2_document(catalogue: &Catalogue, form: DocumentFormat) -> Arc<Document> {
    let mut cached = catalogue.openapi_v2.0.lock();
    match &*cached {
        Some((known, document)) if *known == form => document.clone(),
        _ => {
            // Drop the document in the other format before building this one.
            *cached = None;
            let custom = catalogue.resources.iter().filter(|resource| resource.is_custom);
            let custom: Vec<_> = custom.map(|r| (r.api_version(), fingerprint(r))).collect();
            let bytes = match form {
                DocumentFormat::Json => to_json(catalogue).into(),
                DocumentFormat::Protobuf => to_protobuf(catalogue).into(),
            };
            let hash = hash(custom);
            let document = Arc::new(Document { bytes, hash });
            *cached = Some((form, document.clone()));
            document
        }
    }
}

/// The paths of a catalogue, and the schemas they refer to.
fn paths_and_schemas(catalogue: &Catalogue) -> (Paths, Schemas) {
    let mut paths = Paths::new();
    let mut schemas = Schemas::new(Dialect::V2, groups::known_to_servers());
    for group in &catalogue.groups {
        for version in &group.versions {
            let mut custom = false;
            for resource in catalogue.in_group_version(&group.name, version) {
                custom |= resource.is_custom;
                operations::add(resource, &mut paths, &mut schemas);
            }
            if !custom {
                let operation = roots::version_operation(&group.name, version, &mut schemas);
                paths.insert(format!("/{}/", path(&group.name, version)), vec![operation]);
            }
        }
    }
    for root in roots::all(catalogue) {
        let operation = root.operation(&mut schemas);
        paths.insert(format!("/{}/", root.path()), vec![operation]);
    }
    (paths, schemas)
}

fn to_json(catalogue: &Catalogue) -> String {
    let (paths, schemas) = paths_and_schemas(catalogue);
    let mut shared = SharedParameters::default();
    let mut text = format!("{{\"swagger\":\"2.0\",\"info\":{},\"paths\":{{", info());
    let entry = |text: &mut String, name: &str, value: &Value| {
        if !text.ends_with('{') {
            text.push(',');
        }
        text.push_str(&Value::from(name).to_string());
        text.push(':');
        text.push_str(&value.to_string());
    };
    for (path, operations) in paths {
        let item = shared.extract_from(Dialect::V2.item(&operations));
        entry(&mut text, &path, &item);
    }
    text.push_str("},\"definitions\":{");
    for (name, schema) in schemas {
        entry(&mut text, &name, &schema);
    }
    let parameters: Map<_, _> = shared.by_name.into_iter().collect();
    let _ = write!(
        text,
        "}},\"parameters\":{},\"securityDefinitions\":{},\"security\":{}}}",
        Value::from(parameters),
        security(),
        security_requirements()
    );
    text
}

fn to_protobuf(catalogue: &Catalogue) -> Vec<u8> {
    let (paths, schemas) = paths_and_schemas(catalogue);
    let mut shared = SharedParameters::default();
    let mut items = Message::default();
    for (path, operations) in paths {
        let item = shared.extract_from(Dialect::V2.item(&operations));
        items.map_entry(2, &path, &gnostic::path_item(&item));
    }
    let mut definitions = Message::default();
    for (name, schema) in schemas {
        definitions.map_entry(1, &name, &gnostic::schema(&schema));
    }
    let mut parameters = Message::default();
    for (name, parameter) in &shared.by_name {
        parameters.map_entry(1, name, &gnostic::parameter(parameter));
    }
    let mut document = Message::default();
    document.text(1, "2.0");
    document.message(2, &gnostic::info(&info()));
    document.message(8, &items);
    drop(items);
    document.message(9, &definitions);
    document.message(10, &parameters);
    document.message(12, &gnostic::requirement("BearerToken"));
    document.message(13, &gnostic::api_key("BearerToken", &security()["BearerToken"]));
    document.into_bytes()
}

fn security_requirements() -> Value {
    json!([{"BearerToken": []}])
}

/// Parameters defined once in the document and referred to by paths.
#[derive(Default)]
struct SharedParameters {
    by_name: BTreeMap<String, Value>,
}

impl SharedParameters {
    /// Replaces shared parameters of a path item by references.
    fn extract_from(&mut self, mut item: Value) -> Value {
        let fields = item.as_object_mut().into_iter().flatten();
        for (key, part) in fields {
            let parameters = if key == "parameters" {
                Some(part)
            } else {
                part.get_mut("parameters")
            };
            let parameters = parameters.and_then(Value::as_array_mut).into_iter().flatten();
            for parameter in parameters.filter(|parameter| is_shared(parameter)) {
                let name = parameter["name"].as_str().unwrap_or_default();
                let name = format!("{name}-{}", &hash(parameter.to_string())[..8]);
                let reference = json!({"$ref": format!("#/parameters/{name}")});
                self.by_name.insert(name, std::mem::replace(parameter, reference));
            }
        }
        item
    }
}

/// Clients before 1.27 expect some parameters in place; others concern one kind only.
fn is_shared(parameter: &Value) -> bool {
    match parameter["name"].as_str() {
        Some("name" | "fieldValidation" | "dryRun") => false,
        Some("body") => parameter["schema"]["$ref"]
            .as_str()
            .is_some_and(|schema| schema.starts_with("#/definitions/io.k8s.apimachinery")),
        _ => true,
    }
}

//! `/openapi/v2`: all operations and all schemas in one document of about a megabyte.
//!
//! It is put together piece by piece, a path and a schema at a time, so that it is never there as a tree. It is kept in the
//! form that was asked for last, as long as the catalogue that it was made from: kubectl asks for protobuf, most others for
//! JSON, and hardly anybody for both.

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

/// What the document can be sent in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Protobuf,
}

/// The document that was made last from a catalogue. A copy of a catalogue, which is about to change, has none.
#[derive(Debug, Default)]
pub(crate) struct Cached(Mutex<Option<(Form, Arc<Document>)>>);

impl Clone for Cached {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// The whole document in a form.
pub(crate) fn whole(catalogue: &Catalogue, form: Form) -> Arc<Document> {
    let mut cached = catalogue.published.0.lock();
    match &*cached {
        Some((known, document)) if *known == form => document.clone(),
        _ => {
            // The other form is not needed any more, and goes before this one is made.
            *cached = None;
            let custom = catalogue.resources.iter().filter(|resource| resource.custom);
            let custom: Vec<_> = custom.map(|r| (r.api_version(), fingerprint(r))).collect();
            let bytes = match form {
                Form::Json => as_json(catalogue).into(),
                Form::Protobuf => as_protobuf(catalogue).into(),
            };
            let hash = hash(custom);
            let document = Arc::new(Document { bytes, hash });
            *cached = Some((form, document.clone()));
            document
        }
    }
}

/// The paths of a catalogue, and the schemas that they name.
fn parts(catalogue: &Catalogue) -> (Paths, Schemas) {
    let mut paths = Paths::new();
    let mut schemas = Schemas::new(Dialect::V2, groups::of_servers());
    for group in &catalogue.groups {
        for version in &group.versions {
            let mut custom = false;
            for resource in catalogue.of_version(&group.name, version) {
                custom |= resource.custom;
                operations::add(resource, &mut paths, &mut schemas);
            }
            if !custom {
                let operation = roots::of_version(&group.name, version, &mut schemas);
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

fn as_json(catalogue: &Catalogue) -> String {
    let (paths, schemas) = parts(catalogue);
    let mut shared = Shared::default();
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
        let item = shared.taken_out_of(Dialect::V2.item(&operations));
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
        needed()
    );
    text
}

fn as_protobuf(catalogue: &Catalogue) -> Vec<u8> {
    let (paths, schemas) = parts(catalogue);
    let mut shared = Shared::default();
    let mut items = Message::default();
    for (path, operations) in paths {
        let item = shared.taken_out_of(Dialect::V2.item(&operations));
        items.named(2, &path, &gnostic::path_item(&item));
    }
    let mut definitions = Message::default();
    for (name, schema) in schemas {
        definitions.named(1, &name, &gnostic::schema(&schema));
    }
    let mut parameters = Message::default();
    for (name, parameter) in &shared.by_name {
        parameters.named(1, name, &gnostic::parameter(parameter));
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

fn needed() -> Value {
    json!([{"BearerToken": []}])
}

/// The parameters that stand in one place of the document, where every path that has them points.
#[derive(Default)]
struct Shared {
    by_name: BTreeMap<String, Value>,
}

impl Shared {
    /// A path's item with references instead of what is shared.
    fn taken_out_of(&mut self, mut item: Value) -> Value {
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

/// Clients before 1.27 look for some parameters where they are used; others are about one kind only.
fn is_shared(parameter: &Value) -> bool {
    match parameter["name"].as_str() {
        Some("name" | "fieldValidation" | "dryRun") => false,
        Some("body") => parameter["schema"]["$ref"]
            .as_str()
            .is_some_and(|schema| schema.starts_with("#/definitions/io.k8s.apimachinery")),
        _ => true,
    }
}

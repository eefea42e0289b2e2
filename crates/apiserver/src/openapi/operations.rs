//! The operations of a document: which verbs a resource has, at which paths, with which parameters.

use serde_json::{Map, Value, json};

use super::schemas::Components;
use crate::registry::{Resource, Subresource, group_version};

/// The forms that objects travel in.
const OBJECT: [&str; 3] = [
    "application/json",
    "application/vnd.kubernetes.protobuf",
    "application/yaml",
];
const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

const LIST: [(&str, &str); 10] = [
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const WRITE: [(&str, &str); 3] = [
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
];
const PATCH: [(&str, &str); 4] = [
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
    ("force", "boolean"),
];
const DELETE: [(&str, &str); 4] = [
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];

/// Adds a resource's paths, and names the schemas that they need.
pub(super) fn add(resource: &Resource, paths: &mut Map<String, Value>, components: &mut Components) {
    let (object, list) = components.kind(resource);
    let prefix = if resource.group.is_empty() {
        "/api"
    } else {
        "/apis"
    };
    let base = format!("{prefix}/{}", resource.api_version());
    let plural = &resource.plural;
    let collection = if resource.namespaced {
        format!("{base}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("{base}/{plural}")
    };
    let gvk = json!({"group": &*resource.group, "version": &*resource.version, "kind": &*resource.kind});
    let mut make = Maker {
        resource,
        gvk,
        components,
    };

    let mut on_collection = Map::new();
    if resource.allows("list") {
        on_collection.insert("get".into(), make.operation("list", &LIST, None, &list));
    }
    if resource.allows("create") {
        on_collection.insert(
            "post".into(),
            make.operation("post", &WRITE, Some(&object), &object),
        );
    }
    if resource.allows("deletecollection") {
        let options = make.components.meta("DeleteOptions");
        let status = make.components.meta("Status");
        on_collection.insert(
            "delete".into(),
            make.operation("deletecollection", &DELETE, Some(&options), &status),
        );
    }
    put(paths, &collection, on_collection);

    let mut on_object = Map::new();
    make.object_verbs(&resource.verbs, &object, &mut on_object);
    put(paths, &format!("{collection}/{{name}}"), on_object);

    for subresource in &resource.subresources {
        let mut operations = Map::new();
        let answer = make.subresource_kind(subresource, &object);
        make.object_verbs(&subresource.verbs, &answer, &mut operations);
        if subresource.verbs.iter().any(|verb| **verb == *"create") {
            operations.insert(
                "post".into(),
                make.operation("post", &WRITE, Some(&answer), &answer),
            );
        }
        put(
            paths,
            &format!("{collection}/{{name}}/{}", subresource.name),
            operations,
        );
    }

    if resource.namespaced && resource.allows("list") {
        let mut across = Map::new();
        across.insert("get".into(), make.operation("list", &LIST, None, &list));
        put(paths, &format!("{base}/{plural}"), across);
    }
}

struct Maker<'a> {
    resource: &'a Resource,
    gvk: Value,
    components: &'a mut Components,
}

impl Maker<'_> {
    fn object_verbs(&mut self, verbs: &[Box<str>], object: &Value, operations: &mut Map<String, Value>) {
        let has = |verb: &str| verbs.iter().any(|v| **v == *verb);
        if has("get") {
            operations.insert("get".into(), self.operation("get", &[], None, object));
        }
        if has("update") {
            operations.insert("put".into(), self.operation("put", &WRITE, Some(object), object));
        }
        if has("patch") {
            let patch = self.components.meta("Patch");
            operations.insert(
                "patch".into(),
                self.operation("patch", &PATCH, Some(&patch), object),
            );
        }
        if has("delete") {
            let options = self.components.meta("DeleteOptions");
            let status = self.components.meta("Status");
            operations.insert(
                "delete".into(),
                self.operation("delete", &DELETE, Some(&options), &status),
            );
        }
    }

    fn subresource_kind(&mut self, subresource: &Subresource, object: &Value) -> Value {
        if subresource.kind == self.resource.kind {
            return object.clone();
        }
        let or = |text: &str, own: &str| {
            if text.is_empty() {
                own.to_owned()
            } else {
                text.to_owned()
            }
        };
        let group = or(&subresource.group, &self.resource.group);
        let version = or(&subresource.version, &self.resource.version);
        self.components.named_kind(&group, &version, &subresource.kind)
    }

    fn operation(
        &self,
        action: &str,
        parameters: &[(&str, &str)],
        body: Option<&Value>,
        answer: &Value,
    ) -> Value {
        let content = |types: &[&str], schema: &Value| -> Map<String, Value> {
            let schema = |name: &&str| {
                let entry = if schema.is_null() {
                    json!({})
                } else {
                    json!({"schema": schema})
                };
                ((*name).to_owned(), entry)
            };
            types.iter().map(schema).collect()
        };
        let patches = if self.resource.custom {
            &PATCHES[..3]
        } else {
            &PATCHES[..]
        };
        let objects: &[&str] = if self.resource.custom {
            &["application/json", "application/yaml"]
        } else {
            &OBJECT
        };
        let mut operation = json!({
            "tags": [group_version(&self.resource.group, &self.resource.version).replace(['.', '/'], "_")],
            "responses": {"200": {"content": content(objects, answer)}, "401": {}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": self.gvk,
        });
        if !parameters.is_empty() {
            operation["parameters"] = parameters.iter().map(|(name, kind)| query(name, kind)).collect();
        }
        if let Some(body) = body {
            let types = if action == "patch" { patches } else { objects };
            operation["requestBody"] = json!({"content": content(types, body)});
        }
        operation
    }
}

/// Adds a path with its own parameters; one without operations is none.
fn put(paths: &mut Map<String, Value>, path: &str, operations: Map<String, Value>) {
    if operations.is_empty() {
        return;
    }
    let mut item = operations;
    let in_path = ["namespace", "name"]
        .into_iter()
        .filter(|name| path.contains(&format!("{{{name}}}")))
        .map(|name| {
            json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}})
        });
    let parameters = in_path.chain([query("pretty", "string")]);
    item.insert("parameters".into(), parameters.collect());
    paths.insert(path.to_owned(), item.into());
}

fn query(name: &str, kind: &str) -> Value {
    json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
}

//! Which verbs a resource has, at which paths, with which parameters: what both versions of OpenAPI tell in their own ways.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    parameters::{self, Parameter},
    schemas::Schemas,
};
use crate::registry::{Resource, Subresource};

/// The operations of a document, by path.
pub(super) type Paths = BTreeMap<String, Vec<Operation>>;

/// One verb at one path.
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) id: String,
    pub(super) tag: String,
    /// What the verb is called; empty for those that are no resource's.
    pub(super) action: &'static str,
    /// The kind that it is about, as `x-kubernetes-group-version-kind` has it.
    pub(super) kind: Value,
    /// Those of the path included.
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<Payload>,
    pub(super) consumes: &'static [&'static str],
    pub(super) produces: &'static [&'static str],
    /// The codes of success, all with the same answer.
    pub(super) codes: &'static [u16],
    pub(super) answer: Shape,
}

/// What an operation takes.
pub(super) struct Payload {
    pub(super) shape: Shape,
    pub(super) required: bool,
}

/// What a body looks like.
#[derive(Clone)]
pub(super) enum Shape {
    /// As the schema of this name says.
    Named(String),
    Text,
}

const ANYTHING: [&str; 1] = ["*/*"];
const LOG: [&str; 4] = [
    "text/plain",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
/// The forms that objects travel in; custom ones in the first two only.
pub(super) const OBJECT: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
const WATCHED: [&str; 5] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
const CUSTOM_PATCHES: [&str; 3] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];

/// Adds a resource's operations, and names the schemas that they need.
pub(super) fn add(resource: &Resource, paths: &mut Paths, schemas: &mut Schemas) {
    let (object, list) = schemas.kind(resource);
    let (object, list) = (Shape::Named(object), Shape::Named(list));
    let prefix = if resource.group.is_empty() {
        "/api"
    } else {
        "/apis"
    };
    let base = format!("{prefix}/{}", resource.api_version());
    let plural = &resource.plural;
    let below = if resource.namespaced {
        format!("namespaces/{{namespace}}/{plural}")
    } else {
        plural.to_string()
    };
    let mut maker = Maker {
        resource,
        names: Names::of(&resource.group, &resource.version),
        kind: json!({"group": &*resource.group, "version": &*resource.version, "kind": &*resource.kind}),
        subject: resource.kind.to_string(),
        suffix: String::new(),
        paths,
        path: format!("{base}/{below}"),
    };
    maker.collection(&object, &list, schemas);
    if resource.namespaced && resource.allows("list") {
        maker.path = format!("{base}/{plural}");
        maker.list(&list, "ForAllNamespaces");
    }
    maker.path = format!("{base}/{below}/{{name}}");
    maker.object_verbs(&resource.verbs, &object, schemas);
    if resource.allows("watch") && !resource.custom {
        let event = schemas.meta("WatchEvent");
        maker.watches(&base, &below, &event);
    }
    for subresource in &resource.subresources {
        maker.path = format!("{base}/{below}/{{name}}/{}", subresource.name);
        maker.suffix = capitalized(&subresource.name);
        maker.subresource(subresource, &object, schemas);
    }
}

/// What a group version is called in operations.
pub(super) struct Names {
    /// `AppsV1`
    pub(super) both: String,
    /// `apps_v1`
    pub(super) tag: String,
}

impl Names {
    pub(super) fn of(group: &str, version: &str) -> Self {
        let group = match group.strip_suffix(".k8s.io").unwrap_or(group) {
            "" => "core",
            group => group,
        };
        let group = camel_case(group);
        Self {
            both: format!("{}{}", capitalized(&group), capitalized(version)),
            tag: format!("{group}_{version}"),
        }
    }
}

struct Maker<'a> {
    resource: &'a Resource,
    names: Names,
    /// Of the operations that are added next, as what follows.
    kind: Value,
    subject: String,
    /// What a subresource adds to the names of operations.
    suffix: String,
    paths: &'a mut Paths,
    path: String,
}

impl Maker<'_> {
    fn collection(&mut self, object: &Shape, list: &Shape, schemas: &mut Schemas) {
        if self.resource.allows("list") {
            self.list(list, "");
        }
        if self.resource.allows("create") {
            self.write("create", object, &[200, 201, 202]);
        }
        if self.resource.allows("deletecollection") {
            let status = schemas.meta("Status");
            let mut operation = self.operation("delete", "delete", "deletecollection", "Collection", &status);
            if self.resource.custom {
                operation.parameters.extend(parameters::LIST);
            } else {
                operation.parameters.extend(parameters::DELETE_COLLECTION);
                operation.body = Some(Payload {
                    shape: schemas.meta("DeleteOptions"),
                    required: false,
                });
            }
            self.put(operation);
        }
    }

    fn list(&mut self, list: &Shape, suffix: &str) {
        let mut operation = self.operation("get", "list", "list", "", list);
        if !suffix.is_empty() {
            operation.id = format!("list{}{}{suffix}", self.names.both, self.subject);
        }
        operation.parameters.extend(parameters::LIST);
        if !self.resource.custom {
            operation.produces = &WATCHED;
        }
        self.put(operation);
    }

    fn object_verbs(&mut self, verbs: &[Box<str>], object: &Shape, schemas: &mut Schemas) {
        let has = |verb: &str| verbs.iter().any(|v| **v == *verb);
        if has("get") {
            let mut operation = self.operation("get", "read", "get", "", object);
            if self.resource.custom {
                operation.parameters.push(parameters::REVISION);
            }
            self.put(operation);
        }
        if has("update") {
            self.write("replace", object, &[200, 201]);
        }
        if has("patch") {
            let mut operation = self.operation("patch", "patch", "patch", "", object);
            operation.parameters.extend(parameters::PATCH);
            operation.body = Some(Payload {
                shape: schemas.meta("Patch"),
                required: true,
            });
            if self.resource.custom {
                operation.consumes = &CUSTOM_PATCHES;
            } else {
                operation.consumes = &PATCHES;
                operation.codes = &[200, 201];
            }
            self.put(operation);
        }
        if has("delete") {
            let answer = if answers_with_the_deleted(self.resource) {
                object.clone()
            } else {
                schemas.meta("Status")
            };
            let mut operation = self.operation("delete", "delete", "delete", "", &answer);
            operation.parameters.extend(parameters::DELETE);
            operation.body = Some(Payload {
                shape: schemas.meta("DeleteOptions"),
                required: false,
            });
            operation.codes = &[200, 202];
            self.put(operation);
        }
    }

    fn write(&mut self, verb: &str, object: &Shape, codes: &'static [u16]) {
        let method = if verb == "create" { "post" } else { "put" };
        let mut operation = self.operation(method, verb, method, "", object);
        operation.parameters.extend(parameters::WRITE);
        operation.body = Some(Payload {
            shape: object.clone(),
            required: true,
        });
        operation.codes = codes;
        self.put(operation);
    }

    fn watches(&mut self, base: &str, below: &str, event: &Shape) {
        let plural = &self.resource.plural;
        let across = format!("{base}/watch/{plural}");
        let within = format!("{base}/watch/{below}");
        let one = format!("{within}/{{name}}");
        let Names { both, .. } = &self.names;
        let Self { subject, .. } = self;
        let mut all = vec![];
        if self.resource.namespaced {
            all.push((
                across,
                "watchlist",
                format!("watch{both}{subject}ListForAllNamespaces"),
            ));
            all.push((within, "watchlist", format!("watch{both}Namespaced{subject}List")));
            all.push((one, "watch", format!("watch{both}Namespaced{subject}")));
        } else {
            all.push((within, "watchlist", format!("watch{both}{subject}List")));
            all.push((one, "watch", format!("watch{both}{subject}")));
        }
        for (path, action, id) in all {
            self.path = path;
            let mut operation = self.operation("get", "watch", action, "", event);
            operation.id = id;
            operation.parameters.extend(parameters::LIST);
            operation.produces = &WATCHED;
            self.put(operation);
        }
    }

    fn subresource(&mut self, subresource: &Subresource, object: &Shape, schemas: &mut Schemas) {
        if !self.resource.custom {
            let or = |text: &str, own: &str| {
                if subresource.group.is_empty() && subresource.version.is_empty() {
                    own.to_owned()
                } else {
                    text.to_owned()
                }
            };
            self.kind = json!({
                "group": or(&subresource.group, &self.resource.group),
                "version": or(&subresource.version, &self.resource.version),
                "kind": &*subresource.kind,
            });
        }
        if &*subresource.name == "log" {
            let mut operation = self.operation("get", "read", "get", "", &Shape::Text);
            operation.parameters.extend(parameters::of_connection("log"));
            operation.produces = &LOG;
            self.put(operation);
            return;
        }
        // What is no object is a connection, of which only the options have a kind.
        if subresource.kind.ends_with("Options") {
            self.connection(subresource);
            return;
        }
        let answer = if subresource.kind == self.resource.kind {
            object.clone()
        } else {
            schemas.of_subresource(self.resource, subresource)
        };
        self.object_verbs(&subresource.verbs, &answer, schemas);
        if subresource.verbs.iter().any(|verb| **verb == *"create") {
            self.write("create", &answer, &[200, 201, 202]);
        }
    }

    fn connection(&mut self, subresource: &Subresource) {
        let is_proxy = &*subresource.name == "proxy";
        let methods: &[&str] = if is_proxy {
            &["delete", "get", "head", "options", "patch", "post", "put"]
        } else {
            &["get", "post"]
        };
        let (path, suffix) = (self.path.clone(), self.suffix.clone());
        let ends: &[(&str, &str)] = if is_proxy {
            &[("", ""), ("/{path}", "WithPath")]
        } else {
            &[("", "")]
        };
        for (end, name) in ends {
            self.path = format!("{path}{end}");
            self.suffix = format!("{suffix}{name}");
            for method in methods {
                let infix = capitalized(method);
                let mut operation = self.operation(method, "connect", "connect", &infix, &Shape::Text);
                operation
                    .parameters
                    .retain(|parameter| parameter.name != parameters::PRETTY.name);
                operation
                    .parameters
                    .extend(parameters::of_connection(&subresource.name));
                operation.produces = &ANYTHING;
                self.put(operation);
            }
        }
    }

    fn operation(
        &self,
        method: &'static str,
        verb: &str,
        action: &'static str,
        infix: &str,
        answer: &Shape,
    ) -> Operation {
        let namespaced = if self.resource.namespaced {
            "Namespaced"
        } else {
            ""
        };
        let objects: &[&str] = if self.resource.custom {
            &OBJECT[..2]
        } else {
            &OBJECT
        };
        Operation {
            method,
            id: format!(
                "{verb}{}{infix}{namespaced}{}{}",
                self.names.both, self.subject, self.suffix
            ),
            tag: self.names.tag.clone(),
            action,
            kind: self.kind.clone(),
            parameters: parameters::of_path(&self.path),
            body: None,
            consumes: if self.resource.custom { objects } else { &ANYTHING },
            produces: objects,
            codes: &[200],
            answer: answer.clone(),
        }
    }

    fn put(&mut self, operation: Operation) {
        self.paths.entry(self.path.clone()).or_default().push(operation);
    }
}

/// The kinds whose deletion answers with what was deleted.
fn answers_with_the_deleted(resource: &Resource) -> bool {
    match &*resource.group {
        "" => matches!(
            &*resource.kind,
            "PersistentVolume"
                | "PersistentVolumeClaim"
                | "Pod"
                | "PodTemplate"
                | "ResourceQuota"
                | "Service"
                | "ServiceAccount"
        ),
        "resource.k8s.io" => true,
        "storage.k8s.io" => &*resource.kind != "CSIStorageCapacity",
        _ => false,
    }
}

/// `flowcontrol.apiserver` → `flowcontrolApiserver`
fn camel_case(text: &str) -> String {
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let mut name = words.next().unwrap_or_default().to_owned();
    words.for_each(|word| name.push_str(&capitalized(word)));
    name
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_ascii_uppercase())
        .into_iter()
        .chain(letters)
        .collect()
}

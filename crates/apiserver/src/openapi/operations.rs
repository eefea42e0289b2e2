//! The operations of resources: verbs, paths and parameters, independent of the OpenAPI version.

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
    /// The action (`x-kubernetes-action`); empty for operations that are not a resource's.
    pub(super) action: &'static str,
    /// The value of `x-kubernetes-group-version-kind`.
    pub(super) kind: Value,
    /// Including path parameters.
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<RequestBody>,
    pub(super) consumes: &'static [&'static str],
    pub(super) produces: &'static [&'static str],
    /// The status codes of success, all with the same response.
    pub(super) codes: &'static [u16],
    pub(super) response: BodySchema,
}

/// A request body.
pub(super) struct RequestBody {
    pub(super) schema: BodySchema,
    pub(super) required: bool,
}

/// The schema of a body.
#[derive(Clone)]
pub(super) enum BodySchema {
    /// The schema of this name.
    Named(String),
    Text,
}

const ANY_MEDIA_TYPE: [&str; 1] = ["*/*"];
const LOG_MEDIA_TYPES: [&str; 4] = [
    "text/plain",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
/// The media types of objects; custom resources have the first two only.
pub(super) const OBJECT_MEDIA_TYPES: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
const WATCH_MEDIA_TYPES: [&str; 5] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
const PATCH_MEDIA_TYPES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
const CUSTOM_PATCH_MEDIA_TYPES: [&str; 3] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];

/// Adds a resource's operations and requests the schemas they refer to.
pub(super) fn add(resource: &Resource, paths: &mut Paths, schemas: &mut Schemas) {
    let (object, list) = schemas.kind(resource);
    let (object, list) = (BodySchema::Named(object), BodySchema::Named(list));
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
    let mut maker = OperationBuilder {
        resource,
        names: OperationNames::new(&resource.group, &resource.version),
        kind: json!({"group": &*resource.group, "version": &*resource.version, "kind": &*resource.kind}),
        subject: resource.kind.to_string(),
        suffix: String::new(),
        paths,
        path: format!("{base}/{below}"),
    };
    maker.collection(&object, &list, schemas);
    if resource.namespaced && resource.supports("list") {
        maker.path = format!("{base}/{plural}");
        maker.list(&list, "ForAllNamespaces");
    }
    maker.path = format!("{base}/{below}/{{name}}");
    maker.object_verbs(&resource.verbs, &object, schemas);
    if resource.supports("watch") && !resource.is_custom {
        let event = schemas.meta("WatchEvent");
        maker.watches(&base, &below, &event);
    }
    for subresource in &resource.subresources {
        maker.path = format!("{base}/{below}/{{name}}/{}", subresource.name);
        maker.suffix = capitalized(&subresource.name);
        maker.subresource(subresource, &object, schemas);
    }
}

/// Names of a group version in operation IDs and tags.
pub(super) struct OperationNames {
    /// `AppsV1`
    pub(super) id_part: String,
    /// `apps_v1`
    pub(super) tag: String,
}

impl OperationNames {
    pub(super) fn new(group: &str, version: &str) -> Self {
        let group = match group.strip_suffix(".k8s.io").unwrap_or(group) {
            "" => "core",
            group => group,
        };
        let group = camel_case(group);
        Self {
            id_part: format!("{}{}", capitalized(&group), capitalized(version)),
            tag: format!("{group}_{version}"),
        }
    }
}

struct OperationBuilder<'a> {
    resource: &'a Resource,
    names: OperationNames,
    /// For the operations added next, like the following fields.
    kind: Value,
    subject: String,
    /// What a subresource appends to operation IDs.
    suffix: String,
    paths: &'a mut Paths,
    path: String,
}

impl OperationBuilder<'_> {
    fn collection(&mut self, object: &BodySchema, list: &BodySchema, schemas: &mut Schemas) {
        if self.resource.supports("list") {
            self.list(list, "");
        }
        if self.resource.supports("create") {
            self.write("create", object, &[200, 201, 202]);
        }
        if self.resource.supports("deletecollection") {
            let status = schemas.meta("Status");
            let mut operation = self.operation("delete", "delete", "deletecollection", "Collection", &status);
            if self.resource.is_custom {
                operation.parameters.extend(parameters::LIST);
            } else {
                operation.parameters.extend(parameters::DELETE_COLLECTION);
                operation.body = Some(RequestBody {
                    schema: schemas.meta("DeleteOptions"),
                    required: false,
                });
            }
            self.push(operation);
        }
    }

    fn list(&mut self, list: &BodySchema, suffix: &str) {
        let mut operation = self.operation("get", "list", "list", "", list);
        if !suffix.is_empty() {
            operation.id = format!("list{}{}{suffix}", self.names.id_part, self.subject);
        }
        operation.parameters.extend(parameters::LIST);
        if !self.resource.is_custom {
            operation.produces = &WATCH_MEDIA_TYPES;
        }
        self.push(operation);
    }

    fn object_verbs(&mut self, verbs: &[Box<str>], object: &BodySchema, schemas: &mut Schemas) {
        let has = |verb: &str| verbs.iter().any(|v| **v == *verb);
        if has("get") {
            let mut operation = self.operation("get", "read", "get", "", object);
            if self.resource.is_custom {
                operation.parameters.push(parameters::RESOURCE_VERSION);
            }
            self.push(operation);
        }
        if has("update") {
            self.write("replace", object, &[200, 201]);
        }
        if has("patch") {
            let mut operation = self.operation("patch", "patch", "patch", "", object);
            operation.parameters.extend(parameters::PATCH);
            operation.body = Some(RequestBody {
                schema: schemas.meta("Patch"),
                required: true,
            });
            if self.resource.is_custom {
                operation.consumes = &CUSTOM_PATCH_MEDIA_TYPES;
            } else {
                operation.consumes = &PATCH_MEDIA_TYPES;
                operation.codes = &[200, 201];
            }
            self.push(operation);
        }
        if has("delete") {
            let answer = if self.resource.facts.documents_returned {
                object.clone()
            } else {
                schemas.meta("Status")
            };
            let mut operation = self.operation("delete", "delete", "delete", "", &answer);
            operation.parameters.extend(parameters::DELETE);
            operation.body = Some(RequestBody {
                schema: schemas.meta("DeleteOptions"),
                required: false,
            });
            operation.codes = &[200, 202];
            self.push(operation);
        }
    }

    fn write(&mut self, verb: &str, object: &BodySchema, codes: &'static [u16]) {
        let method = if verb == "create" { "post" } else { "put" };
        let mut operation = self.operation(method, verb, method, "", object);
        operation.parameters.extend(parameters::WRITE);
        operation.body = Some(RequestBody {
            schema: object.clone(),
            required: true,
        });
        operation.codes = codes;
        self.push(operation);
    }

    fn watches(&mut self, base: &str, below: &str, event: &BodySchema) {
        let plural = &self.resource.plural;
        let across = format!("{base}/watch/{plural}");
        let within = format!("{base}/watch/{below}");
        let one = format!("{within}/{{name}}");
        let OperationNames { id_part, .. } = &self.names;
        let Self { subject, .. } = self;
        let mut all = vec![];
        if self.resource.namespaced {
            all.push((
                across,
                "watchlist",
                format!("watch{id_part}{subject}ListForAllNamespaces"),
            ));
            all.push((
                within,
                "watchlist",
                format!("watch{id_part}Namespaced{subject}List"),
            ));
            all.push((one, "watch", format!("watch{id_part}Namespaced{subject}")));
        } else {
            all.push((within, "watchlist", format!("watch{id_part}{subject}List")));
            all.push((one, "watch", format!("watch{id_part}{subject}")));
        }
        for (path, action, id) in all {
            self.path = path;
            let mut operation = self.operation("get", "watch", action, "", event);
            operation.id = id;
            operation.parameters.extend(parameters::LIST);
            operation.produces = &WATCH_MEDIA_TYPES;
            self.push(operation);
        }
    }

    fn subresource(&mut self, subresource: &Subresource, object: &BodySchema, schemas: &mut Schemas) {
        if !self.resource.is_custom {
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
            let mut operation = self.operation("get", "read", "get", "", &BodySchema::Text);
            operation
                .parameters
                .extend(parameters::connection_parameters("log"));
            operation.produces = &LOG_MEDIA_TYPES;
            self.push(operation);
            return;
        }
        // A subresource that is not an object is a connection; only its options have a kind.
        if subresource.kind.ends_with("Options") {
            self.connection(subresource);
            return;
        }
        let answer = if subresource.kind == self.resource.kind {
            object.clone()
        } else {
            schemas.subresource_schema(self.resource, subresource)
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
                let mut operation = self.operation(method, "connect", "connect", &infix, &BodySchema::Text);
                operation
                    .parameters
                    .retain(|parameter| parameter.name != parameters::PRETTY.name);
                operation
                    .parameters
                    .extend(parameters::connection_parameters(&subresource.name));
                operation.produces = &ANY_MEDIA_TYPE;
                self.push(operation);
            }
        }
    }

    fn operation(
        &self,
        method: &'static str,
        verb: &str,
        action: &'static str,
        infix: &str,
        answer: &BodySchema,
    ) -> Operation {
        let namespaced = if self.resource.namespaced {
            "Namespaced"
        } else {
            ""
        };
        let objects: &[&str] = if self.resource.is_custom {
            &OBJECT_MEDIA_TYPES[..2]
        } else {
            &OBJECT_MEDIA_TYPES
        };
        Operation {
            method,
            id: format!(
                "{verb}{}{infix}{namespaced}{}{}",
                self.names.id_part, self.subject, self.suffix
            ),
            tag: self.names.tag.clone(),
            action,
            kind: self.kind.clone(),
            parameters: parameters::path_parameters(&self.path),
            body: None,
            consumes: if self.resource.is_custom {
                objects
            } else {
                &ANY_MEDIA_TYPE
            },
            produces: objects,
            codes: &[200],
            response: answer.clone(),
        }
    }

    fn push(&mut self, operation: Operation) {
        self.paths.entry(self.path.clone()).or_default().push(operation);
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

//! What the server answers when it does not do what was asked: `Status` objects, with the real server's texts.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use windlass_rights::{Access, Object};

use crate::{fields::Conflicts, registry::Resource, schema::FieldError};

/// How many causes a refusal lists, and of how many bytes together (the last one may exceed them). The real server has no
/// such limit: a list of empty strings in a body comes back as a hundred times as many bytes.
const CAUSES: usize = 1_000;
const CAUSE_BYTES: usize = 256 * 1024;

/// A refusal: an HTTP status with a `Status` object as its body.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Status {
    pub(crate) code: u16,
    /// The machine-readable reason; the real server leaves it out in a few places, and so do we.
    reason: Option<&'static str>,
    message: String,
    /// Apart, so that a refusal stays small on its way.
    details: Option<Box<Map<String, Value>>>,
    /// What the client should know besides.
    pub(crate) warnings: Box<[String]>,
    /// Where a list could go on all the same.
    continue_token: Option<Box<str>>,
}

/// What a client is told that has to come again, in the words of the real server's priority and fairness.
pub(crate) const BUSY: &str = "Too many requests, please try again later.";

impl Status {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: Some(reason),
            message: message.into(),
            details: None,
            warnings: Box::default(),
            continue_token: None,
        }
    }

    /// The refusal with what was remarked on before it; a refusal that has remarks keeps its own.
    pub(crate) fn with_warnings(mut self, warnings: &[String]) -> Self {
        if self.warnings.is_empty() {
            self.warnings = warnings.into();
        }
        self
    }

    /// Names the resource and the object, as most refusals do.
    fn about(mut self, resource: &Resource, name: &str) -> Self {
        let details = self.details.get_or_insert_default();
        if !name.is_empty() {
            details.insert("name".into(), name.into());
        }
        if !resource.group.is_empty() {
            details.insert("group".into(), resource.group.to_string().into());
        }
        details.insert("kind".into(), resource.plural.to_string().into());
        self
    }

    fn with_causes(mut self, causes: Vec<Value>) -> Self {
        self.details
            .get_or_insert_default()
            .insert("causes".into(), causes.into());
        self
    }

    fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details
            .get_or_insert_default()
            .insert("retryAfterSeconds".into(), seconds.into());
        self
    }

    /// The seconds after which the client may try again.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.details.as_ref()?.get("retryAfterSeconds")?.as_u64()
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
            "code": self.code,
        });
        if let Some(reason) = self.reason {
            status["reason"] = reason.into();
        }
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = (**token).into();
        }
        if let Some(details) = &self.details {
            status["details"] = Value::Object((**details).clone());
        }
        status
    }

    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        Self::new(
            404,
            "NotFound",
            format!("{} \"{name}\" not found", resource.qualified()),
        )
        .about(resource, name)
    }

    /// A path that names no resource of a known group.
    pub(crate) fn no_such_resource() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
        .bare()
    }

    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} \"{name}\" already exists", resource.qualified()),
        )
        .about(resource, name)
    }

    /// A generated name was taken, and the next ones too.
    pub(crate) fn no_unique_name(resource: &Resource, name: &str) -> Self {
        let mut status = Self::already_exists(resource, name).with_retry_after(1);
        status
            .message
            .push_str(", the server was not able to generate a unique name for the object");
        status
    }

    pub(crate) fn being_deleted(resource: &Resource, name: &str) -> Self {
        let message = format!(
            "object is being deleted: {} \"{name}\" already exists",
            resource.qualified()
        );
        Self::new(409, "AlreadyExists", message).about(resource, name)
    }

    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            resource.qualified()
        );
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// An apply that would change what others own.
    pub(crate) fn apply_conflicts(Conflicts(conflicts): &Conflicts) -> Self {
        let cause = |manager: &str, field: &str| {
            let message = format!("conflict with {manager}");
            json!({"reason": "FieldManagerConflict", "message": message, "field": field})
        };
        let causes: Vec<_> = conflicts
            .iter()
            .flat_map(|(manager, fields)| fields.iter().map(|field| cause(manager, field)))
            .collect();
        let message = match (&conflicts[..], causes.len()) {
            ([(manager, fields)], 1) => {
                format!(
                    "Apply failed with 1 conflict: conflict with {manager}: {}",
                    fields[0]
                )
            }
            (_, count) => {
                let mut lines = Vec::new();
                for (manager, fields) in conflicts {
                    lines.push(format!("conflicts with {manager}:"));
                    lines.extend(fields.iter().map(|field| format!("- {field}")));
                }
                format!("Apply failed with {count} conflicts: {}", lines.join("\n"))
            }
        };
        Self::new(409, "Conflict", message).with_causes(causes)
    }

    /// A deletion whose precondition does not hold: names the kind where others name the resource.
    pub(crate) fn precondition(resource: &Resource, name: &str, why: &str) -> Self {
        let kind = &resource.kind;
        let mut status = Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {kind} \"{name}\": {why}"),
        )
        .about(resource, name);
        status
            .details
            .get_or_insert_default()
            .insert("kind".into(), kind.to_string().into());
        status
    }

    /// The state changed since the client read it.
    pub(crate) fn modified(resource: &Resource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let qualified = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let (mut texts, mut seen) = (Vec::new(), HashSet::new());
        let (mut causes, mut length) = (Vec::new(), 0);
        for error in errors {
            if causes.len() >= CAUSES || length >= CAUSE_BYTES {
                texts.push(format!("and {} more errors", errors.len() - causes.len()));
                break;
            }
            let message = error.message();
            let text = format!("{}: {message}", error.field);
            length += text.len();
            if seen.insert(text.clone()) {
                texts.push(text);
            }
            causes.push(json!({"reason": error.reason(), "message": message, "field": error.field}));
        }
        let said = if texts.len() == 1 {
            texts[0].clone()
        } else {
            format!("[{}]", texts.join(", "))
        };
        let mut status = Self::new(
            422,
            "Invalid",
            format!("{qualified} \"{name}\" is invalid: {said}"),
        );
        let details = status.details.get_or_insert_default();
        if !name.is_empty() {
            details.insert("name".into(), name.into());
        }
        if !group.is_empty() {
            details.insert("group".into(), group.into());
        }
        if !kind.is_empty() {
            details.insert("kind".into(), kind.into());
        }
        status.with_causes(causes)
    }

    /// A patch that does not apply: the real server says no more than this.
    pub(crate) fn patch_rejected() -> Self {
        Self::new(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
        .bare()
    }

    /// With `details: {}`, where the real server has nothing to say but says it.
    fn bare(mut self) -> Self {
        self.details = Some(Box::default());
        self
    }

    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        Self::new(
            403,
            "Forbidden",
            if name.is_empty() {
                format!("{} is forbidden: {why}", resource.qualified())
            } else {
                format!("{} \"{name}\" is forbidden: {why}", resource.qualified())
            },
        )
        .about(resource, name)
    }

    /// A request for a token that means an account of another uid.
    pub(crate) fn token_conflict(name: &str, said: &str, uid: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io {name:?}: the UID in the token request \
             ({said}) does not match the UID of the service account ({uid})"
        );
        Self::new(409, "Conflict", message).of("authentication.k8s.io", "TokenRequest", name)
    }

    /// No credentials, or none that are good.
    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// Something that a user has no right to do.
    pub(crate) fn not_allowed(user: &str, access: &Access, reason: &str) -> Self {
        let verb = &access.verb;
        let (what, details) = match &access.object {
            Object::Path(path) => (format!("User {user:?} cannot {verb} path {path:?}"), ["", "", ""]),
            Object::Resource {
                group,
                resource,
                subresource,
                namespace,
                name,
                ..
            } => {
                let part = match subresource.as_str() {
                    "" => resource.clone(),
                    part => format!("{resource}/{part}"),
                };
                let place = match namespace.as_str() {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {namespace:?}"),
                };
                let what =
                    format!("User {user:?} cannot {verb} resource {part:?} in API group {group:?} {place}");
                (what, [group.as_str(), resource.as_str(), name.as_str()])
            }
        };
        // Nothing that a browser could take for a page.
        let what = what
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let why = if reason.is_empty() {
            what
        } else {
            format!("{what}: {reason}")
        };
        let [group, resource, name] = details;
        let qualified = match group {
            "" => resource.to_owned(),
            group => format!("{resource}.{group}"),
        };
        let message = match (resource, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{qualified} is forbidden: {why}"),
            (_, name) => format!("{qualified} {name:?} is forbidden: {why}"),
        };
        Self::new(403, "Forbidden", message)
            .bare()
            .of(group, resource, name)
    }

    /// Names what it is about, as far as there is something to name.
    fn of(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details = self.details.get_or_insert_default();
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key.into(), value.into());
            }
        }
        self
    }

    /// New content for a namespace that is going away.
    pub(crate) fn namespace_terminating(resource: &Resource, name: &str, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        Self::forbidden(resource, name, &why).with_causes(vec![json!({
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        })])
    }

    /// A pod that cannot be put on a node.
    pub(crate) fn binding_conflict(name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on pods/binding \"{name}\": {why}");
        let mut status = Self::new(409, "Conflict", message);
        let details = status.details.get_or_insert_default();
        details.insert("name".into(), name.into());
        details.insert("kind".into(), "pods/binding".into());
        status
    }

    /// An eviction that a disruption budget does not allow now.
    pub(crate) fn eviction_refused(why: &str, retry_after: Option<u32>) -> Self {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let status = Self::new(429, "TooManyRequests", message)
            .with_causes(vec![json!({"reason": "DisruptionBudget", "message": why})]);
        match retry_after {
            Some(seconds) => status.with_retry_after(seconds),
            None => status,
        }
    }

    /// An eviction that more than one budget would have to allow.
    pub(crate) fn several_budgets() -> Self {
        Self::unexplained(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )
    }

    /// A request that took longer than it may.
    /// More than the server does at once; answered as plain text.
    pub(crate) fn busy() -> Self {
        Self::new(429, "TooManyRequests", BUSY).with_retry_after(1)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.message == BUSY
    }

    pub(crate) fn timeout() -> Self {
        let mut status = Self::new(
            504,
            "Timeout",
            "Timeout: request did not complete within the allotted timeout",
        );
        status.details.get_or_insert_default();
        status
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .bare()
    }

    /// A verb that a custom resource's part does not have.
    pub(crate) fn not_supported(resource: &Resource, verb: &str) -> Self {
        let message = format!(
            "{verb} is not supported on resources of kind {:?}",
            resource.qualified()
        );
        Self::new(405, "MethodNotAllowed", message).about(resource, "")
    }

    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                accepted.join(", ")
            ),
        )
    }

    /// A patch whose content type is none that any kind takes.
    pub(crate) fn unknown_patch_type() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").bare()
    }

    pub(crate) fn not_acceptable(offered: &[&str]) -> Self {
        let message = format!(
            "406: Not Acceptable\n\nAvailable representations: {}",
            offered.join(", ")
        );
        Self::new(406, "NotAcceptable", message).bare()
    }

    /// A view that the answer does not have.
    pub(crate) fn wrong_shape(message: &str) -> Self {
        Self::new(406, "NotAcceptable", message)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit}"),
        )
    }

    pub(crate) fn too_many_operations(limit: usize, count: usize) -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is {limit}, got {count}"
            ),
        )
    }

    /// A list or watch from before the history window.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// Gives the client a token to go on with.
    pub(crate) fn with_continue(mut self, token: String) -> Self {
        self.continue_token = Some(token.into());
        self
    }

    /// A list or get that asks for a revision that has not come yet.
    pub(crate) fn revision_too_large(requested: u64, current: u64) -> Self {
        Self::new(
            504,
            "Timeout",
            format!("Timeout: Too large resource version: {requested}, current: {current}"),
        )
        .with_causes(vec![
            json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}),
        ])
        .with_retry_after(1)
    }

    /// The few refusals for which the real server gives a 500 with no reason.
    pub(crate) fn unexplained(message: impl Into<String>) -> Self {
        Self {
            code: 500,
            reason: None,
            message: message.into(),
            details: None,
            warnings: Box::default(),
            continue_token: None,
        }
    }

    /// A bug in this server.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        Self::new(
            500,
            "InternalError",
            format!("Internal error occurred: {message}"),
        )
        .with_causes(vec![json!({"message": message})])
    }
}

//! Error responses: `Status` objects with the real server's messages.

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use windlass_api::{
    field_error::{InvalidReport, MAX_CAUSE_BYTES, cut},
    request::{Access, AccessTarget},
};

use crate::{
    crd::Unconverted,
    fields::Conflicts,
    registry::Resource,
    schema::{FieldError, MAX_ERRORS},
    webhook::Call,
};

/// The maximum length of a message, in bytes. The real server has no such limit: a message quotes what the client sent, and
/// escaping makes that several times as long.
const MAX_MESSAGE_BYTES: usize = 256 * 1024;

/// An error: an HTTP status with a `Status` object as its body.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    pub(crate) code: u16,
    /// The machine-readable reason; absent where the real server has none.
    reason: Option<Cow<'static, str>>,
    message: String,
    /// Boxed to keep results small.
    details: Option<Box<Map<String, Value>>>,
    /// Warnings for the client.
    pub(crate) warnings: Box<[String]>,
    /// The metadata; boxed to keep results small. Of an expired list, the token with which it can continue.
    metadata: Option<Box<Map<String, Value>>>,
    /// What the verb needs before it can run to its end. A status with it is never sent.
    missing: Option<Box<Missing>>,
}

/// What a verb needs before it can run to its end.
#[derive(Clone, Debug)]
pub(crate) enum Missing {
    /// The answers to these calls.
    Answers(Vec<Call>),
    /// These entries, converted.
    Converted(Unconverted),
    /// Nothing, but time: it is large work.
    Time,
}

/// The message of the real server's priority and fairness.
pub(crate) const BUSY_MESSAGE: &str = "Too many requests, please try again later.";

/// The message about a request that took too long.
pub(crate) const TIMEOUT_MESSAGE: &str = "Timeout: request did not complete within the allotted timeout";

impl Status {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: Some(reason.into()),
            message: message.into(),
            details: None,
            warnings: Box::default(),
            metadata: None,
            missing: None,
        }
    }

    /// Adds warnings, unless the status has some already.
    pub(crate) fn with_warnings(mut self, warnings: &[String]) -> Self {
        if self.warnings.is_empty() {
            self.warnings = warnings.into();
        }
        self
    }

    /// Adds the resource and the object's name to the details.
    fn with_object(mut self, resource: &Resource, name: &str) -> Self {
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

    /// The seconds after which the client may retry.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.details.as_ref()?.get("retryAfterSeconds")?.as_u64()
    }

    /// What ends a verb that needs the answers of webhooks.
    pub(crate) fn unanswered(calls: Vec<Call>) -> Self {
        Self::missing(Missing::Answers(calls))
    }

    /// What ends a verb that needs entries which a webhook has to convert first.
    pub(crate) fn unconverted(entries: Unconverted) -> Self {
        Self::missing(Missing::Converted(entries))
    }

    /// What ends a verb that must not take so long on the thread on which it runs.
    pub(crate) fn needs_time() -> Self {
        Self::missing(Missing::Time)
    }

    fn missing(missing: Missing) -> Self {
        Self {
            missing: Some(Box::new(missing)),
            ..Self::internal("a webhook was not asked")
        }
    }

    /// Whether this says that a conversion webhook has failed, which it would for other readers too.
    pub(crate) fn is_failed_conversion(&self) -> bool {
        self.code == 500 && !self.is_unfinished()
    }

    /// The entries that a webhook has to convert first, or the status itself if it is another.
    pub(crate) fn into_unconverted(mut self) -> Result<Unconverted, Self> {
        match self.take_missing() {
            Some(Missing::Converted(entries)) => Ok(entries),
            other => {
                self.missing = other.map(Box::new);
                Err(self)
            }
        }
    }

    /// Whether the verb has to run again, and not answer with this.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.missing.is_some()
    }

    /// What the verb needs; `None` for an error.
    pub(crate) fn take_missing(&mut self) -> Option<Missing> {
        self.missing.take().map(|missing| *missing)
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The message, or as much of it as is sent.
    fn shown_message(&self) -> Cow<'_, str> {
        cut(&self.message, MAX_MESSAGE_BYTES)
    }

    pub(crate) fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.shown_message(), "code": self.code,
        });
        if let Some(reason) = &self.reason {
            status["reason"] = (**reason).into();
        }
        if let Some(metadata) = &self.metadata {
            status["metadata"] = Value::Object((**metadata).clone());
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
            format!("{} \"{name}\" not found", resource.qualified_name()),
        )
        .with_object(resource, name)
    }

    /// The path has an unknown resource of a known group.
    pub(crate) fn no_such_resource() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
        .with_empty_details()
    }

    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} \"{name}\" already exists", resource.qualified_name()),
        )
        .with_object(resource, name)
    }

    /// Several generated names exist already.
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
            resource.qualified_name()
        );
        Self::new(409, "AlreadyExists", message).with_object(resource, name)
    }

    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            resource.qualified_name()
        );
        Self::new(409, "Conflict", message).with_object(resource, name)
    }

    /// An apply conflicts with other field managers.
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

    /// A deletion's precondition failed. Has the kind where other errors have the resource.
    pub(crate) fn precondition(resource: &Resource, name: &str, why: &str) -> Self {
        let kind = &resource.kind;
        let mut status = Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {kind} \"{name}\": {why}"),
        )
        .with_object(resource, name);
        status
            .details
            .get_or_insert_default()
            .insert("kind".into(), kind.to_string().into());
        status
    }

    /// The object was modified since the client read it.
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
        let report = InvalidReport::new(group, kind, name, errors);
        let mut status = Self::new(422, "Invalid", report.message);
        status.details = Some(Box::new(report.details));
        status
    }

    /// A patch cannot be applied. The real server does not say why.
    pub(crate) fn patch_rejected() -> Self {
        Self::new(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
        .with_empty_details()
    }

    /// Sets `details: {}`, as the real server does in some errors.
    fn with_empty_details(mut self) -> Self {
        self.details = Some(Box::default());
        self
    }

    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        Self::new(
            403,
            "Forbidden",
            if name.is_empty() {
                format!("{} is forbidden: {why}", resource.qualified_name())
            } else {
                format!("{} \"{name}\" is forbidden: {why}", resource.qualified_name())
            },
        )
        .with_object(resource, name)
    }

    /// A ValidatingAdmissionPolicy denies a request, with this code and reason.
    pub(crate) fn denied_by_policy(
        resource: &Resource,
        name: &str,
        message: &str,
        (code, reason): (u16, &'static str),
    ) -> Self {
        let mut status = Self::forbidden(resource, name, message)
            .with_causes(vec![json!({"message": cut(message, MAX_CAUSE_BYTES)})]);
        status.code = code;
        status.reason = Some(reason.into());
        status
    }

    /// A webhook denies a request. Its status is passed on, with a code of at least 400.
    pub(crate) fn denied_by_webhook(webhook: &str, status: Option<&Map<String, Value>>) -> Self {
        let field = |key: &str| status.and_then(|status| status.get(key));
        let text = |key: &str| field(key).and_then(Value::as_str).unwrap_or_default();
        let denied = format!("admission webhook {webhook:?} denied the request");
        let message = match (text("message"), text("reason")) {
            ("", "") => format!("{denied} without explanation"),
            ("", why) | (why, _) => format!("{denied}: {why}"),
        };
        let code = field("code").and_then(Value::as_u64).unwrap_or(0);
        let mut denial = Self::without_reason(message);
        denial.code = u16::try_from(code)
            .ok()
            .filter(|code| (400..=999).contains(code))
            .unwrap_or(400);
        denial.reason = Some(text("reason"))
            .filter(|reason| !reason.is_empty())
            .map(|reason| reason.to_owned().into());
        let metadata = field("metadata").and_then(Value::as_object);
        denial.metadata = metadata.map(|metadata| {
            let texts = texts_of(metadata, &["continue", "resourceVersion"]);
            let number = numbers_of(metadata, &["remainingItemCount"]);
            Box::new(texts.chain(number).collect())
        });
        let details = field("details").and_then(Value::as_object);
        denial.details = details.map(|details| Box::new(details_of_webhook(details)));
        denial
    }

    /// MutatingAdmissionPolicies deny a request. The first message is the status'.
    pub(crate) fn denied_by_mutating_policy(
        resource: &Resource,
        name: &str,
        messages: &[&str],
        is_invalid: bool,
    ) -> Self {
        let causes = messages.iter().take(MAX_ERRORS);
        let causes = causes.map(|message| json!({"message": message})).collect();
        let mut status = Self::forbidden(resource, name, "").with_causes(causes);
        status.message = messages
            .first()
            .map_or_else(String::new, |first| (*first).to_owned());
        if is_invalid {
            status.reason = Some("Invalid".into());
        }
        status
    }

    /// A token request has another uid than the service account.
    pub(crate) fn token_conflict(name: &str, requested: &str, uid: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io {name:?}: the UID in the token request \
             ({requested}) does not match the UID of the service account ({uid})"
        );
        Self::new(409, "Conflict", message).with_details("authentication.k8s.io", "TokenRequest", name)
    }

    /// Credentials are missing or invalid.
    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// The user is not authorized.
    pub(crate) fn not_allowed(user: &str, access: &Access, reason: &str) -> Self {
        let verb = &access.verb;
        let (what, details) = match &access.target {
            AccessTarget::Path(path) => (format!("User {user:?} cannot {verb} path {path:?}"), ["", "", ""]),
            AccessTarget::Resource {
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
        // Escaped like in the real server, in case a browser shows it.
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
            .with_empty_details()
            .with_details(group, resource, name)
    }

    /// Adds the non-empty values to the details.
    fn with_details(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details = self.details.get_or_insert_default();
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key.into(), value.into());
            }
        }
        self
    }

    /// An object cannot be created in a namespace that is being deleted.
    pub(crate) fn namespace_terminating(resource: &Resource, name: &str, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        Self::forbidden(resource, name, &why).with_causes(vec![json!({
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        })])
    }

    /// A pod cannot be bound to a node.
    pub(crate) fn binding_conflict(name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on pods/binding \"{name}\": {why}");
        let mut status = Self::new(409, "Conflict", message);
        let details = status.details.get_or_insert_default();
        details.insert("name".into(), name.into());
        details.insert("kind".into(), "pods/binding".into());
        status
    }

    /// A disruption budget does not allow an eviction now.
    pub(crate) fn eviction_refused(why: &str, retry_after: Option<u32>) -> Self {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let status = Self::new(429, "TooManyRequests", message)
            .with_causes(vec![json!({"reason": "DisruptionBudget", "message": why})]);
        match retry_after {
            Some(seconds) => status.with_retry_after(seconds),
            None => status,
        }
    }

    /// The server holds too many reviews and responses of webhooks for the user, or objects that they have converted.
    pub(crate) fn too_many_responses() -> Self {
        let message =
            "The server holds too many responses of webhooks. Try again later; a list may need a limit.";
        Self::new(429, "TooManyRequests", message).with_retry_after(1)
    }

    /// Whether this says that the server holds too much for webhooks.
    pub(crate) fn is_without_room(&self) -> bool {
        self.code == 429 && self.reason.as_deref() == Some("TooManyRequests")
    }

    /// More than one disruption budget covers the pod.
    pub(crate) fn multiple_budgets() -> Self {
        Self::without_reason(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )
    }

    /// Too many concurrent requests. Sent as plain text.
    pub(crate) fn busy() -> Self {
        Self::new(429, "TooManyRequests", BUSY_MESSAGE).with_retry_after(1)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.message == BUSY_MESSAGE
    }

    /// A request took too long. Sent like errors of a real server's filters, which know no media types.
    pub(crate) fn timeout() -> Self {
        Self::new(504, "Timeout", TIMEOUT_MESSAGE).with_empty_details()
    }

    pub(crate) fn is_timeout(&self) -> bool {
        self.message == TIMEOUT_MESSAGE
    }

    /// A write took too long.
    pub(crate) fn write_timeout() -> Self {
        let message =
            "Timeout: request did not complete within requested timeout - context deadline exceeded";
        Self::new(504, "Timeout", message).with_empty_details()
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .with_empty_details()
    }

    /// A custom resource's subresource does not support the verb.
    pub(crate) fn not_supported(resource: &Resource, verb: &str) -> Self {
        let message = format!(
            "{verb} is not supported on resources of kind {:?}",
            resource.qualified_name()
        );
        Self::new(405, "MethodNotAllowed", message).with_object(resource, "")
    }

    /// The request needs something that this server does not have.
    pub(crate) fn not_implemented(message: String) -> Self {
        Self::new(501, "NotImplemented", message)
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

    /// No kind supports the content type of the patch.
    pub(crate) fn unknown_patch_type() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").with_empty_details()
    }

    pub(crate) fn not_acceptable(offered: &[&str]) -> Self {
        let message = format!(
            "406: Not Acceptable\n\nAvailable representations: {}",
            offered.join(", ")
        );
        Self::new(406, "NotAcceptable", message).with_empty_details()
    }

    /// The requested representation does not exist.
    pub(crate) fn unsupported_representation(message: &str) -> Self {
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

    /// The revision of a list or watch is older than the history window.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// Adds a token with which the client can continue.
    pub(crate) fn with_continue(mut self, token: String) -> Self {
        self.metadata
            .get_or_insert_default()
            .insert("continue".into(), token.into());
        self
    }

    /// A list or get requests a revision that the server has not reached yet.
    pub(crate) fn resource_version_too_large(requested: u64, current: u64) -> Self {
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

    /// A 500 without a reason, which the real server returns for errors that are not a `Status`.
    pub(crate) fn without_reason(message: impl Into<String>) -> Self {
        Self {
            code: 500,
            reason: None,
            message: message.into(),
            details: None,
            warnings: Box::default(),
            metadata: None,
            missing: None,
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
        .with_causes(vec![json!({"message": cut(&message, MAX_CAUSE_BYTES)})])
    }
}

/// The fields of `StatusDetails` in what a webhook says, which may be anything.
fn details_of_webhook(details: &Map<String, Value>) -> Map<String, Value> {
    let texts = texts_of(details, &["name", "group", "kind", "uid"]);
    let numbers = numbers_of(details, &["retryAfterSeconds"]);
    let mut shown: Map<_, _> = texts.chain(numbers).collect();
    if let Some(causes) = details.get("causes").and_then(Value::as_array) {
        let causes = causes.iter().filter_map(Value::as_object).take(MAX_ERRORS);
        let causes = causes.map(|cause| texts_of(cause, &["reason", "message", "field"]).collect());
        shown.insert("causes".to_owned(), causes.collect::<Vec<Map<_, _>>>().into());
    }
    shown
}

/// Those of these fields that are texts.
fn texts_of<'a>(
    object: &'a Map<String, Value>,
    keys: &'a [&str],
) -> impl Iterator<Item = (String, Value)> + 'a {
    fields_of(object, keys).filter(|(_, value)| value.is_string())
}

/// Those of these fields that are whole numbers.
fn numbers_of<'a>(
    object: &'a Map<String, Value>,
    keys: &'a [&str],
) -> impl Iterator<Item = (String, Value)> + 'a {
    fields_of(object, keys).filter(|(_, value)| value.is_i64())
}

fn fields_of<'a>(
    object: &'a Map<String, Value>,
    keys: &'a [&str],
) -> impl Iterator<Item = (String, Value)> + 'a {
    let field = |key: &&str| Some(((*key).to_owned(), object.get(*key)?.clone()));
    keys.iter().filter_map(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_cut_where_it_is_too_long() {
        let shown = |length: usize| {
            let status = Status::bad_request("é".repeat(length / 2)).to_value();
            status["message"].as_str().map(str::to_owned).unwrap_or_default()
        };
        assert_eq!(shown(MAX_MESSAGE_BYTES).len(), MAX_MESSAGE_BYTES);
        let cut = shown(MAX_MESSAGE_BYTES + 10);
        assert!(cut.ends_with("é… and 10 more bytes"), "{}", cut.len());
        assert!(cut.len() < MAX_MESSAGE_BYTES + 100);
    }
}

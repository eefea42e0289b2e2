//! What failed, in words for a condition: bounded, and the same at each attempt. No I/O.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

use kube::core::Status;
use windlass_api::status::StatusClass;

use super::error::ChildError;
use crate::{
    error::Error,
    text::truncate,
    writer::{WriteError, WriteErrorKind},
};

/// Problems that a message lists, and the length of one of them. A condition is read by people, and stored in each
/// object.
const MAX_LISTED: usize = 8;
const MAX_TEXT: usize = 400;

/// A reconcile was cancelled.
#[derive(Debug, thiserror::Error)]
#[error("timed out after {0:?}")]
pub(super) struct TimedOut(pub(super) Duration);

/// Why a child is not as desired.
#[derive(Debug)]
pub(super) struct Problem {
    /// Kind and name.
    pub(super) child: String,
    pub(super) why: Cause,
}

#[derive(Debug)]
pub(super) enum Cause {
    Failed(Error),
    /// It is being deleted, and is created again afterwards, or it is unwanted.
    Terminating,
    /// A child that must be applied first is not.
    Waiting {
        predecessor: String,
    },
}

impl Problem {
    pub(super) fn failed(child: &dyn fmt::Display, error: Error) -> Self {
        let (child, why) = (child.to_string(), Cause::Failed(error));
        Self { child, why }
    }

    pub(super) fn terminating(child: &dyn fmt::Display) -> Self {
        let (child, why) = (child.to_string(), Cause::Terminating);
        Self { child, why }
    }

    /// Whether a quota of the namespace refuses the child.
    pub(super) fn is_quota(&self) -> bool {
        let status = self
            .error()
            .and_then(|error| error.find::<WriteError>()?.status());
        status.is_some_and(|status| {
            StatusClass::of(status) == StatusClass::Forbidden && status.message.contains("exceeded quota: ")
        })
    }

    pub(super) fn error(&self) -> Option<&Error> {
        match &self.why {
            Cause::Failed(error) => Some(error),
            Cause::Terminating | Cause::Waiting { .. } => None,
        }
    }
}

/// All problems in one message.
pub(super) fn listed(problems: &[Problem]) -> String {
    let mut message = String::new();
    for problem in problems.iter().take(MAX_LISTED) {
        if !message.is_empty() {
            message.push_str("; ");
        }
        let child = &problem.child;
        let written = match &problem.why {
            Cause::Terminating => write!(message, "{child} is being deleted"),
            Cause::Waiting { predecessor } => write!(message, "{child} waits for {predecessor}"),
            Cause::Failed(error) => {
                let text = text(error);
                // A write's error names the object already.
                if text.contains(child.as_str()) {
                    write!(message, "{text}")
                } else {
                    write!(message, "{child}: {text}")
                }
            }
        };
        written.expect("writing to a string does not fail");
    }
    if let Some(more @ 1..) = problems.len().checked_sub(MAX_LISTED) {
        write!(message, "; and {more} more").expect("writing to a string does not fail");
    }
    message
}

/// The error's text, bounded, and without numbers that differ at each attempt: a status that changed with each retry
/// would be written with each retry.
pub(super) fn text(error: &Error) -> String {
    if let Some(write) = error
        .find::<WriteError>()
        .filter(|write| is_concurrent_change(write))
    {
        return write.describe(&"it was changed concurrently");
    }
    truncate(error.to_string(), MAX_TEXT)
}

fn is_concurrent_change(error: &WriteError) -> bool {
    match error.class() {
        // The server's message names the other manager.
        Some(StatusClass::Conflict) => !error.is_field_conflict(),
        Some(StatusClass::UidMismatch | StatusClass::VersionTooLarge) => true,
        _ => false,
    }
}

/// The kind of a failure, as the reason of a condition.
pub(super) fn failure_reason(error: &Error) -> &'static str {
    if error.find::<TimedOut>().is_some() {
        return "TimedOut";
    }
    if let Some(child) = error.find::<ChildError>() {
        return match child {
            ChildError::AlreadyExists { .. } => "AlreadyExists",
            _ => "Invalid",
        };
    }
    if let Some(write) = error.find::<WriteError>() {
        return match write.kind() {
            WriteErrorKind::Server(status) => status_reason(status),
            WriteErrorKind::Invalid(_) => "Invalid",
            WriteErrorKind::Client(error) => request_reason(error),
        };
    }
    error
        .find::<kube::Error>()
        .map_or("ReconcileFailed", request_reason)
}

fn request_reason(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) => status_reason(status),
        kube::Error::HyperError(_) | kube::Error::Service(_) => "Unavailable",
        _ => "ReconcileFailed",
    }
}

fn status_reason(status: &Status) -> &'static str {
    match StatusClass::of(status) {
        StatusClass::Forbidden => "Forbidden",
        StatusClass::Invalid => "Invalid",
        StatusClass::AlreadyExists => "AlreadyExists",
        StatusClass::NotFound => "NotFound",
        StatusClass::NamespaceTerminating => "NamespaceTerminating",
        StatusClass::Conflict | StatusClass::UidMismatch => "Conflict",
        StatusClass::TooManyRequests | StatusClass::ServerError | StatusClass::VersionTooLarge => {
            "Unavailable"
        }
        _ => "ReconcileFailed",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_cache::{GroupVersionKind, ObjectKey};

    use super::*;

    fn refused(code: u16, reason: &str, message: &str) -> Error {
        let status = Status::failure(message, reason).with_code(code);
        let why = WriteErrorKind::Server(Box::new(status));
        let key = ObjectKey::namespaced("shop", "web");
        WriteError::new("apply", "Ingress".to_owned(), key, why).into()
    }

    #[test]
    fn reason_is_the_kind_of_failure() {
        let kind = GroupVersionKind::of::<k8s_openapi::api::core::v1::Pod>(&());
        let exists = ChildError::AlreadyExists {
            kind: kind.clone(),
            key: ObjectKey::cluster_scoped("a"),
            owner: "Foo".to_owned(),
        };
        let api = |code, reason| {
            let status = Status::failure("m", reason).with_code(code);
            Error::from(kube::Error::Api(Box::new(status)))
        };
        for (error, expected) in [
            (TimedOut(Duration::from_secs(1)).into(), "TimedOut"),
            (exists.into(), "AlreadyExists"),
            (Error::terminal(ChildError::NoName { kind }), "Invalid"),
            (refused(403, "Forbidden", "m"), "Forbidden"),
            (refused(422, "Invalid", "m"), "Invalid"),
            (refused(404, "NotFound", "m"), "NotFound"),
            (refused(409, "Conflict", "m"), "Conflict"),
            (refused(429, "TooManyRequests", "m"), "Unavailable"),
            (refused(500, "InternalError", "m"), "Unavailable"),
            (api(503, "ServiceUnavailable"), "Unavailable"),
            (api(403, "Forbidden"), "Forbidden"),
            (Error::from("anything"), "ReconcileFailed"),
        ] {
            assert_eq!(failure_reason(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn message_is_bounded_and_does_not_change_with_each_attempt() {
        let long = "é".repeat(10_000);
        let problems: Vec<_> = (0..100)
            .map(|n| Problem::failed(&n, long.as_str().into()))
            .collect();
        let message = listed(&problems);
        assert!(message.len() < MAX_LISTED * (MAX_TEXT + 20), "{}", message.len());
        assert!(message.ends_with("; and 92 more"), "{message}");

        let conflict = |version: u32| {
            let message = format!("the ResourceVersion in the precondition ({version}) does not match");
            text(&refused(409, "Conflict", &message))
        };
        assert_eq!(conflict(1), conflict(2));
        let cause = json!({ "code": 409, "reason": "Conflict", "message": "conflict with \"kubectl\"",
            "details": { "causes": [{ "reason": "FieldManagerConflict", "message": "", "field": ".data" }] } });
        let status: Status = serde_json::from_value(cause).expect("a status");
        let why = WriteErrorKind::Server(Box::new(status));
        let key = ObjectKey::namespaced("shop", "web");
        let error = WriteError::new("apply", "Ingress".to_owned(), key, why).into();
        assert!(
            text(&error).contains("conflict with \"kubectl\""),
            "{}",
            text(&error)
        );
    }
}

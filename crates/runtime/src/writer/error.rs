//! Write errors.

use std::{error::Error as StdError, fmt, time::Duration};

use kube::core::Status;
use windlass_api::status::{StatusClass, retry_after};
use windlass_cache::ObjectKey;

/// A failed write: verb, object and cause.
#[derive(Debug)]
pub struct WriteError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    verb: &'static str,
    kind: String,
    key: ObjectKey,
    why: WriteErrorKind,
}

/// Where a write failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteErrorKind {
    /// The write is invalid and was not sent.
    Invalid(InvalidWrite),
    /// The server answered with a failure.
    Server(Box<Status>),
    /// The request could not be sent, or its response could not be read. The write may have happened.
    Client(Box<kube::Error>),
}

/// Why a write was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidWrite {
    /// The object has no name.
    #[error("missing name: set metadata.name")]
    NoName,
    /// The name would change the request path.
    #[error("invalid name {0:?}: use letters, digits, `-` and `.`")]
    InvalidName(String),
    /// The object has no namespace, and its kind is namespaced.
    #[error("missing namespace: set metadata.namespace")]
    NoNamespace,
    /// Without a resource version the write could undo concurrent changes.
    #[error("missing resource version: start from an object read from the API")]
    NoResourceVersion,
    /// Without a UID the write could reach a recreated object of the same name.
    #[error("missing uid: start from an object read from the API")]
    NoUid,
    /// There is no status to write.
    #[error("missing status: set it before writing it")]
    NoStatus,
    /// The server accepts no new finalizers for an object that is being deleted.
    #[error("the object is being deleted: add finalizer `{0}` earlier, in its first reconcile")]
    Deleting(String),
    /// The server would reject the finalizer.
    #[error(transparent)]
    Finalizer(#[from] super::InvalidFinalizer),
    /// The object cannot be serialized.
    #[error("cannot serialize the object: {0}")]
    Serialization(#[source] serde_json::Error),
}

impl WriteError {
    pub(crate) fn new(verb: &'static str, kind: String, key: ObjectKey, why: WriteErrorKind) -> Self {
        Self(Box::new(Inner { verb, kind, key, why }))
    }

    /// Where the write failed, and why.
    pub fn kind(&self) -> &WriteErrorKind {
        &self.0.why
    }

    /// The object's key.
    pub fn key(&self) -> &ObjectKey {
        &self.0.key
    }

    /// The server's status, if it answered.
    pub fn status(&self) -> Option<&Status> {
        match &self.0.why {
            WriteErrorKind::Server(status) => Some(status),
            WriteErrorKind::Invalid(_) | WriteErrorKind::Client(_) => None,
        }
    }

    /// The class of the server's status, if it answered.
    pub fn class(&self) -> Option<StatusClass> {
        self.status().map(StatusClass::of)
    }

    /// Whether the object, its kind or its namespace does not exist.
    pub fn is_not_found(&self) -> bool {
        self.class() == Some(StatusClass::NotFound)
    }

    /// Whether an object of that name already exists.
    pub fn is_already_exists(&self) -> bool {
        self.class() == Some(StatusClass::AlreadyExists)
    }

    /// Whether the object changed concurrently, or another manager owns a field: read it again.
    pub fn is_conflict(&self) -> bool {
        self.class() == Some(StatusClass::Conflict)
    }

    /// Whether another manager owns a field with another value. An apply [without force](super::ApplyOptions::without_force)
    /// fails with it.
    pub fn is_field_conflict(&self) -> bool {
        let details = self.status().and_then(|status| status.details.as_ref());
        let mut causes = details.into_iter().flat_map(|details| &details.causes);
        causes.any(|cause| cause.reason == "FieldManagerConflict")
    }

    /// Whether the object was deleted and another one of that name has a different UID.
    pub fn is_uid_mismatch(&self) -> bool {
        self.class() == Some(StatusClass::UidMismatch)
    }

    /// Whether the namespace is being deleted and accepts no new objects.
    pub fn is_namespace_terminating(&self) -> bool {
        self.class() == Some(StatusClass::NamespaceTerminating)
    }

    /// What failed, and why, in other words than the server's.
    pub(crate) fn describe(&self, why: &dyn fmt::Display) -> String {
        let Inner { verb, kind, key, .. } = &*self.0;
        match key.name() {
            "" => format!("cannot {verb} {kind}: {why}"),
            _ => format!("cannot {verb} {kind} {key}: {why}"),
        }
    }

    /// The delay before the next attempt that the server asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        retry_after(self.status()?)
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match &self.0.why {
            WriteErrorKind::Invalid(why) => self.describe(why),
            // The `Display` of `Status` repeats the whole status in debug notation.
            WriteErrorKind::Server(status) if status.message.is_empty() => self.describe(&status.reason),
            WriteErrorKind::Server(status) => self.describe(&status.message),
            WriteErrorKind::Client(error) => self.describe(error),
        })?;
        if self.is_field_conflict() {
            f.write_str("; an apply without `ApplyOptions::without_force` takes the fields over")?;
        }
        Ok(())
    }
}

impl StdError for WriteError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0.why {
            WriteErrorKind::Invalid(why) => why.source(),
            WriteErrorKind::Server(_) => None,
            WriteErrorKind::Client(error) => error.source(),
        }
    }
}

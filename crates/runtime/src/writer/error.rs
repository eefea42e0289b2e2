//! Why a write did not happen.

use std::{error::Error as StdError, fmt, time::Duration};

use kube::core::Status;
use windlass_cache::ObjectKey;

/// A write that did not happen: which verb, which object, and why.
#[derive(Debug)]
pub struct WriteError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    verb: &'static str,
    kind: String,
    key: ObjectKey,
    why: WriteErrorKind,
}

/// Who said no.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteErrorKind {
    /// Nothing was sent.
    Refused(Refusal),
    /// The server answered with a failure.
    Server(Box<Status>),
    /// The request could not be sent, or its answer not be read. Whether the write happened is not known.
    Client(Box<kube::Error>),
}

/// Why a write was not even sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The object must be named to be found.
    #[error("it has no name: set metadata.name")]
    NoName,
    /// Put into a path, the name would mean something else.
    #[error("its name is not one: it must be letters, digits, `-` and `.`")]
    BadName,
    /// Its kind lives in namespaces.
    #[error("it has no namespace: set metadata.namespace")]
    NoNamespace,
    /// Without it, a write could undo what others wrote.
    #[error("it has no resource version: start from an object that was read")]
    NoResourceVersion,
    /// Without it, another object of the same name could be meant.
    #[error("it has no uid: start from an object that was read")]
    NoUid,
    /// There is no status to write.
    #[error("it has no status: set it before it is written")]
    NoStatus,
    /// The server takes no new finalizers then.
    #[error("it is being deleted: add finalizer `{0}` before, when the object is first seen")]
    Deleting(String),
    /// The server would not take the finalizer.
    #[error(transparent)]
    Finalizer(#[from] super::InvalidFinalizer),
    /// The object does not become JSON.
    #[error("it cannot be written as JSON: {0}")]
    Unserializable(#[source] serde_json::Error),
}

impl WriteError {
    pub(crate) fn new(verb: &'static str, kind: String, key: ObjectKey, why: WriteErrorKind) -> Self {
        Self(Box::new(Inner { verb, kind, key, why }))
    }

    /// Who said no, and why.
    pub fn kind(&self) -> &WriteErrorKind {
        &self.0.why
    }

    /// Which object.
    pub fn key(&self) -> &ObjectKey {
        &self.0.key
    }

    /// What the server answered, if it did.
    pub fn status(&self) -> Option<&Status> {
        match &self.0.why {
            WriteErrorKind::Server(status) => Some(status),
            WriteErrorKind::Refused(_) | WriteErrorKind::Client(_) => None,
        }
    }

    /// The object, or its kind or namespace, is not there.
    pub fn is_not_found(&self) -> bool {
        self.has_code(404)
    }

    /// Something by that name is there already.
    pub fn is_already_exists(&self) -> bool {
        self.status()
            .is_some_and(|status| status.reason == "AlreadyExists")
    }

    /// Somebody else was faster, or owns a field: look again.
    pub fn is_conflict(&self) -> bool {
        self.has_code(409) && !self.is_already_exists()
    }

    /// The object that was meant is gone, and another one has its name.
    pub fn is_other_object(&self) -> bool {
        // How the server says it for patches; a real one says it twice.
        let immutable = |status: &Status| {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            status.code == 422 && causes.into_iter().any(|cause| cause.field == "metadata.uid")
        };
        self.status().is_some_and(immutable)
    }

    /// The namespace is going, and takes nothing new.
    pub fn is_namespace_terminating(&self) -> bool {
        let details = self.status().and_then(|status| status.details.as_ref());
        let mut causes = details.into_iter().flat_map(|details| &details.causes);
        causes.any(|cause| cause.reason == "NamespaceTerminating")
    }

    /// How long the server asks to wait before the next attempt.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.status()?.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    fn has_code(&self, code: u16) -> bool {
        self.status().is_some_and(|status| status.code == code)
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { verb, kind, key, why } = &*self.0;
        write!(f, "cannot {verb} {kind}")?;
        if !key.name().is_empty() {
            write!(f, " {key}")?;
        }
        match why {
            WriteErrorKind::Refused(why) => write!(f, ": {why}"),
            // Its own text repeats the whole status in Rust's notation.
            WriteErrorKind::Server(status) if status.message.is_empty() => write!(f, ": {}", status.reason),
            WriteErrorKind::Server(status) => write!(f, ": {}", status.message),
            WriteErrorKind::Client(error) => write!(f, ": {error}"),
        }
    }
}

impl StdError for WriteError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0.why {
            WriteErrorKind::Refused(why) => why.source(),
            WriteErrorKind::Server(_) => None,
            WriteErrorKind::Client(error) => error.source(),
        }
    }
}

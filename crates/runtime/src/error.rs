//! The error of a reconcile.

use std::{error::Error as StdError, fmt};

use crate::{
    conditions::ConditionUpdate,
    writer::{WriteError, WriteErrorKind},
};

/// Why a reconcile failed, and whether a retry can help.
///
/// Anything that converts into a boxed error converts into this with `?`: error enums, `anyhow::Error`,
/// `kube::Error`, plain text. Such an error is retried with backoff; a [`terminal`](Self::terminal) error is not.
///
/// ```
/// use windlass_runtime::Error;
///
/// fn parse(text: &str) -> Result<u8, Error> {
///     Ok(text.parse::<u8>()?)
/// }
/// assert!(!parse("x").unwrap_err().is_terminal());
/// assert!(Error::terminal("replicas must be positive").is_terminal());
/// ```
// Does not implement `std::error::Error`, which allows the blanket conversion from every error.
pub struct Error {
    cause: Box<dyn StdError + Send + Sync>,
    terminal: bool,
    conditions: Vec<ConditionUpdate>,
    /// A warning event about it was recorded, or is not needed.
    is_reported: bool,
}

impl Error {
    /// Creates an error that is not retried: the object waits for its next change.
    pub fn terminal(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            cause: cause.into(),
            terminal: true,
            conditions: Vec::new(),
            is_reported: false,
        }
    }

    /// Adds a condition that a declarative reconcile writes to the object's status with the error; other conditions and
    /// status fields stay as they are. A `Ready` that is not `True` replaces the runtime's, which has the error as its
    /// message. Default: only the [standard conditions](crate::READY_CONDITION).
    ///
    /// ```
    /// use windlass_runtime::{ConditionUpdate, Error};
    ///
    /// fn check(port: u16) -> Result<(), Error> {
    ///     if port < 1024 {
    ///         let invalid = ConditionUpdate::false_("PortAllowed", "Privileged").message("spec.port is below 1024");
    ///         return Err(Error::terminal("spec.port is below 1024: choose another").condition(invalid));
    ///     }
    ///     Ok(())
    /// }
    /// # assert!(check(80).is_err());
    /// ```
    #[must_use]
    pub fn condition(mut self, condition: ConditionUpdate) -> Self {
        self.conditions.push(condition);
        self
    }

    /// The conditions to write with the error.
    pub(crate) fn conditions(&self) -> &[ConditionUpdate] {
        &self.conditions
    }

    /// The same error, which needs no further warning event.
    pub(crate) fn reported(mut self) -> Self {
        self.is_reported = true;
        self
    }

    pub(crate) fn is_reported(&self) -> bool {
        self.is_reported
    }

    /// The same error, but retried.
    pub(crate) fn retried(mut self) -> Self {
        self.terminal = false;
        self
    }

    /// Whether the reconcile is not retried.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// The underlying error.
    pub fn cause(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.cause
    }

    /// Finds an error of a type among the causes.
    pub(crate) fn find<E: StdError + 'static>(&self) -> Option<&E> {
        let mut next: Option<&(dyn StdError + 'static)> = Some(self.cause());
        while let Some(cause) = next {
            if let Some(found) = cause.downcast_ref() {
                return Some(found);
            }
            next = cause.source();
        }
        None
    }

    /// Whether a request to the API server got no response, which the log of the connection has. Other failed I/O, such as
    /// of a service that the author calls, is not in it.
    pub(crate) fn is_connection_error(&self) -> bool {
        let request = match self.find::<WriteError>().map(WriteError::kind) {
            Some(WriteErrorKind::Client(error)) => Some(&**error),
            _ => self.find::<kube::Error>(),
        };
        request.is_some_and(|error| windlass_cache::is_connection_error(error))
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for Error {
    fn from(cause: E) -> Self {
        Self {
            cause: cause.into(),
            terminal: false,
            conditions: Vec::new(),
            is_reported: false,
        }
    }
}

impl fmt::Display for Error {
    /// The error and its sources in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut error: &(dyn StdError + 'static) = self.cause();
        let mut previous = message(error);
        f.write_str(&previous)?;
        while let Some(source) = error.source()
            && !is_response(error)
        {
            let message = message(source);
            // Many errors repeat their source in their own message.
            if !previous.contains(&message) {
                write!(f, ": {message}")?;
                previous = message;
            }
            error = source;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("cause", &self.cause)
            .field("terminal", &self.terminal)
            .field("conditions", &self.conditions)
            .field("is_reported", &self.is_reported)
            .finish()
    }
}

/// Whether an error is a response of the API server, whose source says the same.
fn is_response(error: &(dyn StdError + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(_)))
}

/// The message of an error without its sources. That of a response of the API server is the server's: `kube`'s own text
/// repeats the whole status in debug notation.
pub(crate) fn message(error: &(dyn StdError + 'static)) -> String {
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) if status.message.is_empty() => status.reason.clone(),
        Some(kube::Error::Api(status)) => status.message.clone(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the settings")]
    struct Unreadable(#[source] kube::Error);

    #[test]
    fn rejected_request_is_described_by_the_message_of_the_server() {
        let rejected = || {
            let status = Status::failure("pods is forbidden: no such right", "Forbidden").with_code(403);
            kube::Error::Api(Box::new(status))
        };
        let error = Error::from(rejected());
        assert_eq!(error.to_string(), "pods is forbidden: no such right");
        let error = Error::from(Unreadable(rejected()));
        assert_eq!(
            error.to_string(),
            "cannot read the settings: pods is forbidden: no such right"
        );
        let error = Error::from(kube::Error::Api(Box::new(Status::failure("", "Gone"))));
        assert_eq!(error.to_string(), "Gone");
    }
}

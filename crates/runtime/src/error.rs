//! The error of a reconcile.

use std::{error::Error as StdError, fmt};

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
}

impl Error {
    /// Creates an error that is not retried: the object waits for its next change.
    pub fn terminal(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            cause: cause.into(),
            terminal: true,
        }
    }

    /// Whether the reconcile is not retried.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// The underlying error.
    pub fn cause(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.cause
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for Error {
    fn from(cause: E) -> Self {
        Self {
            cause: cause.into(),
            terminal: false,
        }
    }
}

impl fmt::Display for Error {
    /// The error and its sources in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)?;
        let mut previous = self.cause.to_string();
        let mut source = self.cause.source();
        while let Some(error) = source {
            let message = error.to_string();
            // Many errors repeat their source in their own message.
            if !previous.contains(&message) {
                write!(f, ": {message}")?;
                previous = message;
            }
            source = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("cause", &self.cause)
            .field("terminal", &self.terminal)
            .finish()
    }
}

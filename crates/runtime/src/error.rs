//! What a reconcile returns when it failed.

use std::{error::Error as StdError, fmt};

/// Why a reconcile failed, and whether trying again can help.
///
/// Anything that converts into a boxed error converts into this with `?`: error enums, `anyhow::Error`,
/// `kube::Error`, plain text. Such an error is retried with backoff; [`terminal`](Self::terminal) makes one that
/// is not.
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
// It does not implement `std::error::Error` itself: that is what allows the conversion from every error.
pub struct Error {
    cause: Box<dyn StdError + Send + Sync>,
    terminal: bool,
}

impl Error {
    /// An error that another attempt cannot mend: the object waits for its next change instead.
    pub fn terminal(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            cause: cause.into(),
            terminal: true,
        }
    }

    /// Whether no retry follows.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// The error as it was given.
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
        let mut said = self.cause.to_string();
        let mut source = self.cause.source();
        while let Some(error) = source {
            let message = error.to_string();
            // Many errors repeat their source in their own message.
            if !said.contains(&message) {
                write!(f, ": {message}")?;
                said = message;
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

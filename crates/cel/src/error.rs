//! Errors of evaluation.

use std::{borrow::Cow, fmt};

/// Why an evaluation failed. `Display` writes cel-go's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalError {
    kind: EvalErrorKind,
    message: Cow<'static, str>,
}

/// The class of an [`EvalError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EvalErrorKind {
    /// The cost limit was reached. Not absorbed by `||` and `&&`.
    CostLimit,
    /// The caller stopped the evaluation. Not absorbed by `||` and `&&`.
    Interrupted,
    /// An argument has a type that the function does not take. Only `dyn` values can cause it.
    NoSuchOverload,
    /// Anything else, such as an absent key or a division by zero.
    Failed,
}

impl EvalError {
    /// Makes an error with a message.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: EvalErrorKind::Failed,
            message: message.into(),
        }
    }

    pub(crate) const fn cost_limit() -> Self {
        Self {
            kind: EvalErrorKind::CostLimit,
            message: Cow::Borrowed("operation cancelled: actual cost limit exceeded"),
        }
    }

    pub(crate) const fn interrupted() -> Self {
        Self {
            kind: EvalErrorKind::Interrupted,
            message: Cow::Borrowed("operation interrupted"),
        }
    }

    pub(crate) const fn no_such_overload() -> Self {
        Self {
            kind: EvalErrorKind::NoSuchOverload,
            message: Cow::Borrowed("no such overload"),
        }
    }

    pub(crate) fn no_overload_for(function: &str) -> Self {
        Self {
            kind: EvalErrorKind::NoSuchOverload,
            message: format!("no such overload: {function}").into(),
        }
    }

    pub(crate) const fn overflow() -> Self {
        Self {
            kind: EvalErrorKind::Failed,
            message: Cow::Borrowed("integer overflow"),
        }
    }

    pub(crate) fn no_such_key(key: impl fmt::Display) -> Self {
        Self::new(format!("no such key: {key}"))
    }

    /// Returns the class of the error.
    pub const fn kind(&self) -> EvalErrorKind {
        self.kind
    }

    /// Whether the error ends the evaluation, also inside of `||` and `&&`.
    pub(crate) const fn is_final(&self) -> bool {
        matches!(self.kind, EvalErrorKind::CostLimit | EvalErrorKind::Interrupted)
    }
}

impl std::error::Error for EvalError {}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

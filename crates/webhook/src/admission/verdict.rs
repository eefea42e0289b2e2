//! What a handler answers.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use windlass_api::field_error::InvalidReport;
use windlass_runtime::Error;

use super::{FieldErrors, ReviewRequest};

/// Limits on the warnings of an answer. The server shows 4,096 characters in all.
const MAX_WARNINGS: usize = 64;
const MAX_WARNING_BYTES: usize = 4096;

/// The answer of a validator: allowed or refused, with warnings for the user.
///
/// ```
/// use windlass_webhook::Verdict;
///
/// let allowed = Verdict::allow().warn("spec.size is deprecated: use spec.scoops");
/// let refused = Verdict::deny("cones are sold out");
/// # let _ = (allowed, refused);
/// ```
///
/// A handler may return it, or [`FieldErrors`], nothing, or a result with one of these: see [`IntoVerdict`].
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "a verdict counts only if the handler returns it"]
pub struct Verdict {
    pub(crate) refusal: Option<Refusal>,
    pub(crate) warnings: Vec<String>,
    pub(crate) audit: BTreeMap<String, String>,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Refusal {
    Denied {
        code: u16,
        reason: &'static str,
        message: String,
    },
    Invalid(FieldErrors),
}

impl Verdict {
    /// Allows the request.
    pub fn allow() -> Self {
        Self::default()
    }

    /// Refuses the request with status 403, `Forbidden`. The user reads `admission webhook "…" denied the request: ` and
    /// this message. For invalid fields, return [`FieldErrors`] instead.
    pub fn deny(message: impl Into<String>) -> Self {
        Self::refuse(403, "Forbidden", message.into())
    }

    pub(crate) fn refuse(code: u16, reason: &'static str, message: String) -> Self {
        Self {
            refusal: Some(Refusal::Denied {
                code,
                reason,
                message,
            }),
            ..Self::default()
        }
    }

    /// Shows the user a warning, whether or not the request is allowed. `kubectl` prints it.
    pub fn warn(mut self, warning: impl Into<String>) -> Self {
        if self.warnings.len() < MAX_WARNINGS {
            let mut warning: String = warning.into();
            warning.truncate(warning.floor_char_boundary(MAX_WARNING_BYTES));
            // The server drops warnings with control characters.
            self.warnings
                .push(warning.replace(|character: char| character.is_control(), " "));
        }
        self
    }

    /// Adds an annotation to the request's audit event. The server puts the webhook's name before the key.
    pub fn audit(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.audit.insert(key.into(), value.into());
        self
    }

    /// Whether the request is allowed.
    pub fn is_allowed(&self) -> bool {
        self.refusal.is_none()
    }

    /// The message of a refusal, without the server's prefix; `None` if the request is allowed.
    pub fn message(&self, request: &ReviewRequest) -> Option<String> {
        let status = self.refusal.clone()?.into_status(request);
        Some(status["message"].as_str().unwrap_or_default().to_owned())
    }
}

impl From<FieldErrors> for Verdict {
    fn from(errors: FieldErrors) -> Self {
        Self {
            refusal: (!errors.is_empty()).then_some(Refusal::Invalid(errors)),
            ..Self::default()
        }
    }
}

impl Refusal {
    /// The `Status` of a response.
    pub(crate) fn into_status(self, request: &ReviewRequest) -> Value {
        let (code, reason, message, details) = match self {
            Self::Denied {
                code,
                reason,
                message,
            } => (code, reason, message, Map::new()),
            Self::Invalid(errors) => {
                let (group, kind) = (&request.kind.group, &request.kind.kind);
                let report = InvalidReport::new(group, kind, &request.name, &errors.into_errors());
                (422, "Invalid", report.message, report.details)
            }
        };
        let mut status = Map::from_iter([
            ("status".to_owned(), Value::from("Failure")),
            ("message".to_owned(), message.into()),
            ("reason".to_owned(), reason.into()),
            ("code".to_owned(), code.into()),
        ]);
        if !details.is_empty() {
            status.insert("details".to_owned(), details.into());
        }
        status.into()
    }
}

/// What a handler may return.
///
/// | returned | means |
/// |---|---|
/// | `()` | allowed |
/// | [`FieldErrors`] | refused with 422 if there are any |
/// | [`Verdict`] | what it says |
/// | `Result<_, Error>` | the above, or a failure: the server acts by the [failure policy](crate::FailurePolicy) |
/// | `Result<_, FieldErrors>`, `Result<_, Verdict>` | the above, or a refusal |
pub trait IntoVerdict {
    /// The verdict, or why there is none.
    fn into_verdict(self) -> Result<Verdict, Error>;
}

impl IntoVerdict for () {
    fn into_verdict(self) -> Result<Verdict, Error> {
        Ok(Verdict::allow())
    }
}

impl IntoVerdict for Verdict {
    fn into_verdict(self) -> Result<Verdict, Error> {
        Ok(self)
    }
}

impl IntoVerdict for FieldErrors {
    fn into_verdict(self) -> Result<Verdict, Error> {
        Ok(self.into())
    }
}

impl IntoVerdict for Error {
    fn into_verdict(self) -> Result<Verdict, Error> {
        Err(self)
    }
}

impl<V: IntoVerdict, E: IntoVerdict> IntoVerdict for Result<V, E> {
    fn into_verdict(self) -> Result<Verdict, Error> {
        match self {
            Ok(verdict) => verdict.into_verdict(),
            Err(error) => error.into_verdict(),
        }
    }
}

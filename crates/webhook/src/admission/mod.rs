//! Admission webhooks: a handler, and the declaration from which it is registered.
//!
//! ```text
//!   AdmissionReview ─► review: the request, objects as text ─► handler: decodes ─► the author's function
//!         ▲                                                                             │
//!         └── status, warnings, patch ◄── Decision ◄── Verdict, difference of the object ┘
//! ```

mod change;
mod declaration;
mod field_errors;
mod handler;
mod request;
mod review;
mod target;
mod verdict;

pub use self::{
    change::Change,
    declaration::{AdmissionWebhook, FailurePolicy, Mutating, SideEffects, Validating},
    field_errors::FieldErrors,
    handler::{mutate, mutate_async, mutate_target, validate, validate_async, validate_target},
    request::{Operation, ReviewRequest},
    review::{Kind, Resource},
    target::Target,
    verdict::{IntoVerdict, Verdict},
};
pub(crate) use self::{
    declaration::{Declaration, Stage},
    handler::{HandlerError, Reply},
    review::{Decision, Review},
};

#[cfg(test)]
pub(crate) use self::handler::difference;

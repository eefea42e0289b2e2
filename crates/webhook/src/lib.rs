//! Admission and conversion webhooks, beside the controllers of a manager.
//!
//! ```text
//!   API server ── TLS ──► server ──► WebhookService ── by path ──┬─► AdmissionWebhook: validate, mutate
//!       ▲                   ▲                                    └─► Conversion: From between versions
//!       │                   │ certificate
//!       └── caBundle ── certificates (Secret) and registration (configurations, spec.conversion)
//! ```
//!
//! An author declares [`Webhooks`]: functions over their own types, and when the server calls them. Everything else follows:
//! the reviews are read and answered, patches are computed, the configurations are made from the declaration, and
//! certificates are made and rotated.
//!
//! The crate knows the manager of [`windlass_runtime`], which runs it as a service; the runtime does not know the crate.
//! Decisions (reviews, patches, conversions, rotation) do no I/O. Whatever comes over a socket is hostile: it is bounded in
//! size, depth and time, and a handler that panics fails its own review only.

pub mod testing;

mod admission;
mod certificates;
mod conversion;
mod install;
#[cfg(all(feature = "clap", feature = "logging"))]
mod launch;
mod manager;
mod metrics;
mod options;
mod patch;
mod reads;
mod registration;
mod rights;
mod server;
mod service;
#[cfg(test)]
mod test_client;
mod webhooks;

pub use admission::{
    AdmissionWebhook, Change, FailurePolicy, FieldErrors, IntoVerdict, Kind, Mutating, Operation, Resource,
    ReviewRequest, SideEffects, Target, Validating, Verdict, mutate, mutate_async, mutate_target, validate,
    validate_async, validate_target,
};
pub use conversion::{Conversion, ConvertEach, Version, await_conversion, convert};
pub use install::WEBHOOKS_LABEL;
#[cfg(all(feature = "clap", feature = "logging"))]
pub use launch::{launch_with_optional_webhooks, launch_with_webhooks};
pub use manager::ManagerExt;
pub use options::{OptionalWebhooks, WebhookOptions, WebhookOptionsError};
pub use registration::{Configurations, WebhookAddress};
pub use rights::WebhookRights;
pub use server::ServerLimits;
pub use service::WebhookService;
pub use webhooks::{Webhook, Webhooks};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

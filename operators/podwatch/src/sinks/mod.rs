//! Destinations of notices: standard output, files, webhooks and chats, OTLP logs, Kubernetes Events.
//!
//! ```text
//!   --sink TEXT ──► SinkSpec ──► Sink ── deliver, once ──► Ok | DeliveryError
//! ```
//!
//! A sink makes one attempt to deliver one notice; it neither backs off, retries nor queues. That is the job of
//! [`delivery`](crate::delivery), which owns the sinks.

mod encoding;
mod event_object;
mod file;
mod kubernetes_events;
mod otlp;
mod spec;
mod stream;
mod template;
mod text;
mod webhook;

use std::{sync::Arc, time::Duration};

use futures::future::{BoxFuture, FutureExt, ready};

pub(crate) use self::kubernetes_events::is_event;
pub use self::{
    file::{File, FileError, Rotation},
    kubernetes_events::KubernetesEvents,
    spec::{Address, OpenError, SINK_HELP, SinkSpec, SpecError},
    stream::{LineFormat, Stream},
    template::{Template, TemplateError, TemplateSource},
    webhook::{InsecureToken, Settings as WebhookSettings, Webhook, WebhookError},
};
use crate::notice::Notice;

/// A destination of notices.
pub trait Sink: Send + Sync + 'static {
    /// Delivers a notice; `Ok` means that it has arrived. A dropped future may or may not have delivered it. Called
    /// concurrently for different objects, up to [`Limits::concurrency`](crate::delivery::Limits::concurrency).
    fn deliver<'a>(&'a self, notice: &'a Arc<Notice>) -> BoxFuture<'a, Result<(), DeliveryError>>;

    /// Makes all deliveries durable, so that they survive a power loss. They count as confirmed only then. Default: does nothing.
    fn commit(&self) -> BoxFuture<'_, Result<(), DeliveryError>> {
        ready(Ok(())).boxed()
    }
}

/// Why a notice was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryError {
    /// The sink is unavailable, or asks for a pause: back off from it.
    Unavailable {
        /// What went wrong, with a hint.
        reason: String,
        /// The backoff that the sink asks for, as in `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// This notice failed. It may succeed later, and others may succeed now; if several fail in a row, the sink counts as
    /// unavailable.
    Failed {
        /// What went wrong.
        reason: String,
    },
    /// The sink rejects this notice; a retry would not help.
    Rejected {
        /// The sink's answer, with a hint.
        reason: String,
    },
}

impl DeliveryError {
    /// What went wrong, with a hint.
    pub fn reason(&self) -> &str {
        match self {
            Self::Unavailable { reason, .. } | Self::Failed { reason } | Self::Rejected { reason } => reason,
        }
    }
}

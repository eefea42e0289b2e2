//! Destinations of notices: standard output, files, webhooks.
//!
//! ```text
//!   --sink TEXT ──► SinkSpec ──► Sink ── deliver, once ──► Ok | DeliveryError
//! ```
//!
//! A sink makes one attempt to deliver one notice; it neither backs off, retries nor queues. That is the job of
//! [`delivery`](crate::delivery), which owns the sinks.

mod encoding;
mod file;
mod spec;
mod stream;
mod text;
mod webhook;

use std::{sync::Arc, time::Duration};

use futures::future::{BoxFuture, FutureExt, ready};

pub use self::{
    file::{File, FileError, Rotation},
    spec::{Address, OpenError, SINK_HELP, SinkSpec, SpecError},
    stream::{LineFormat, Stream},
    webhook::{InsecureToken, Settings as WebhookSettings, Webhook, WebhookError},
};
use crate::notice::Notice;

/// A destination of notices.
pub trait Sink: Send + 'static {
    /// Delivers a notice; `Ok` means that it has arrived. A dropped future may or may not have delivered it.
    fn deliver<'a>(&'a mut self, notice: &'a Arc<Notice>) -> BoxFuture<'a, Result<(), DeliveryError>>;

    /// Makes all deliveries durable, so that they survive a power loss. They count as confirmed only then. Default: does nothing.
    fn commit(&mut self) -> BoxFuture<'_, Result<(), DeliveryError>> {
        ready(Ok(())).boxed()
    }
}

/// Why a notice was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryError {
    /// The sink is unavailable: back off from it.
    Unavailable {
        /// What went wrong, with a hint.
        reason: String,
        /// The backoff that the sink asks for, as in `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// This notice failed. It may succeed later, and others may succeed now.
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

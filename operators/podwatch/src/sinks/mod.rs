//! Where notices go: standard output, a file, a webhook.
//!
//! ```text
//!   --sink TEXT ──► SinkSpec ──► Sink ── deliver: once, and say how it went ──► delivered | Trouble
//! ```
//!
//! A sink delivers one notice and says what became of it; it neither waits, retries nor queues. That is the room of
//! [`delivery`](crate::delivery), which owns each sink and is the only one to use it.

mod file;
mod form;
mod spec;
mod stream;
mod text;
mod webhook;

use std::{sync::Arc, time::Duration};

use futures::future::{BoxFuture, FutureExt, ready};

pub use self::{
    file::{File, FileError, Rotation},
    spec::{Address, OpenError, SINK_HELP, SinkSpec, SpecError},
    stream::{Shape, Stream},
    webhook::{InsecureToken, Settings as WebhookSettings, Webhook, WebhookError},
};
use crate::notice::Notice;

/// A place that notices are delivered to.
pub trait Sink: Send + 'static {
    /// Delivers a notice: `Ok` means that it has arrived. A future that is dropped may have delivered it or not.
    fn deliver<'a>(&'a mut self, notice: &'a Arc<Notice>) -> BoxFuture<'a, Result<(), Trouble>>;

    /// Makes sure that what was delivered also survives the machine. Nothing counts as confirmed before. Default: it does.
    fn settle(&mut self) -> BoxFuture<'_, Result<(), Trouble>> {
        ready(Ok(())).boxed()
    }
}

/// Why a notice was not delivered, and what that says about the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing gets through at present: let the sink rest, for this long if it said so.
    Down {
        /// What went wrong, and what may help.
        why: String,
        /// How long it wants to be left alone.
        after: Option<Duration>,
    },
    /// This notice did not get through; it may later, and others may now.
    Failed {
        /// What went wrong.
        why: String,
    },
    /// This notice is not wanted, now or later.
    Refused {
        /// What was said, and what may help.
        why: String,
    },
}

impl Trouble {
    /// What went wrong.
    pub fn why(&self) -> &str {
        match self {
            Self::Down { why, .. } | Self::Failed { why } | Self::Refused { why } => why,
        }
    }
}

//! Delivers notices to every sink, each at its own pace.
//!
//! ```text
//!                            ┌─ SinkQueue "stdout" ──── waiting ─► Worker ─► Sink ─┐
//!   watcher ─ Feed::notify ──┤                                                     ├─ confirmed ─► Journal
//!             (kind, scope)  └─ SinkQueue "webhook:…" ─ waiting ─► Worker ─► Sink ─┘   (uid, version per object)
//!                                      ▲ unavailable: backs off, coalesces, counts
//! ```
//!
//! - **Independent.** Notifying never blocks, and each sink has its own queue, worker, rate limit and backoff. A failed notice
//!   is retried on its own: it delays neither other objects nor, unless several fail in a row, the sink.
//! - **Bounded.** At most `queue` objects wait for each sink, each with its latest state. A notice without room is counted and
//!   dropped, and made up for by comparing the current objects with what the sink has confirmed.
//! - **At least once.** The latest state of each object reaches each working sink. What a sink has confirmed is not sent to it
//!   again, across restarts too if there is a [journal](crate::journal).
//! - **In order** for each object, of which a sink never gets two notices at a time; a deletion comes before the next object of
//!   the same name. Different objects have no order: a sink may get several at once ([`Limits::concurrency`]).
//!
//! Not guaranteed: every state of an object that changes faster than a sink accepts, or an object created and deleted while its
//! sink was behind or the process down.
//!
//! The [`Hub`] owns the queues; [`Hub::run`] owns the workers and writes the journal. Nothing outlives it.

mod hub;
mod journal_writer;
mod pace;
mod pending;
mod sink_queue;
mod sink_view;
mod stats;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod worker;

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use windlass::cache::ObjectKey;

pub use self::{
    hub::{Feed, Hub, HubError},
    stats::SinkStats,
};
pub use crate::journal::ObjectVersion;
use crate::notice::Notice;

/// Limits of one sink.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The rate limit. Default: none.
    pub rate: Option<Rate>,
    /// The maximum number of waiting objects, each with its latest state. Default: 1000.
    pub queue: NonZeroUsize,
    /// Whether all changes of an object wait instead of the latest state, as long as fewer than `queue` notices wait; then
    /// newer ones are coalesced and counted. Default: no.
    pub every_change: bool,
    /// The maximum number of retries of a notice. Default: unlimited.
    pub retries: Option<u32>,
    /// The maximum number of concurrent deliveries, each of another object. Default: 1.
    pub concurrency: NonZeroUsize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rate: None,
            queue: NonZeroUsize::new(1000).expect("not zero"),
            every_change: false,
            retries: None,
            concurrency: NonZeroUsize::MIN,
        }
    }
}

/// A rate limit. Bursts of one second's worth are allowed.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// The number of notices per period.
    pub notices: u32,
    /// The period.
    pub period: Duration,
}

/// The current objects of a feed, read when a sink has to catch up. Must be fast and must not block.
pub trait CurrentState: Send + Sync + 'static {
    /// Every object of the selection. Complete once [`Feed::initial_list_done`] was called.
    fn versions(&self) -> Vec<ObjectVersion>;

    /// The object's current state, as [`Synced`](crate::notice::EventType::Synced); `None` if it does not exist.
    fn read(&self, key: &ObjectKey) -> Option<Arc<Notice>>;

    /// Whether to report a notice that came from a comparison. If not, it counts as confirmed by the sink. Called with a lock
    /// held: must use neither feed nor hub.
    fn accepts(&self, notice: &Notice) -> bool;
}

//! Kubernetes events: records what a controller did to an object, as `kubectl describe` shows it.
//!
//! ```text
//!   Recorder::normal ──► Correlator ──► queue of series ──► EventWriter ──► create or patch of a v1 Event
//!     (any number,        counts,       (one key each,       (one,
//!      never waits)       aggregates,    retries, delays)     owned by the manager)
//!                         drops
//! ```
//!
//! A *series* is one event object on the server: repeating an event about the same object raises its count. Recorder and
//! writer share the correlator behind a short lock. A call to the recorder updates a series and at most queues its key. The
//! writer takes keys and writes the current state of the series, so a hundred thousand calls during one request cause one
//! more request, with the right count.
//!
//! Ownership: the [`EventWriter`] owns all work. It is a future and spawns nothing, so nothing is left when it ends or is
//! dropped. Recorders may outlive it; their events are then counted as dropped.
//!
//! # Why `v1` events, and not `events.k8s.io/v1`
//!
//! Both APIs store the same objects, and `kubectl get events`, `kubectl events` and `kubectl describe` read them as `v1`.
//! They differ in what may be written:
//!
//! - In `events.k8s.io/v1`, count, timestamps and note are immutable; only `series` may change. An aggregated event could
//!   not show its newest message, and `lastTimestamp` must be empty, so the common
//!   `kubectl get events --sort-by=.lastTimestamp` would always list such events first.
//! - It requires an `action` and a `reportingInstance`, which most controllers have no values for.
//! - Existing roles for controllers (sample-controller's, and most charts') grant `create` and `patch` on `events` of the
//!   core group. The writer needs only these two.
//!
//! The limits of `events.k8s.io` are respected nevertheless: a message has at most 1024 bytes and a reason 128, so events
//! are valid when read through the newer group.
//!
//! # Limits
//!
//! The numbers are client-go's. From the tenth different message with one reason about one object within ten minutes,
//! messages are aggregated into one event, "(combined from similar events): …". Each source may send 25 requests per object
//! and type at once, and one more every five minutes. Beyond that a known event is only counted, and its count is written
//! after six minutes without a new one, every thirty minutes otherwise, and on stop; an unknown event is dropped. Memory is
//! bounded: 4096 series are kept, and 1000 may wait to be written.

mod correlator;
mod counts;
mod lru;
mod options;
mod recorder;
mod regarding;
mod series;
mod writer;

use kube::Client;

pub use self::{
    counts::{DropReason, EventCounts},
    options::{Budget, RecorderOptions},
    recorder::Recorder,
    regarding::{Regarding, markers},
    writer::EventWriter,
};

/// Returns a recorder and the writer that sends its events to the server, with the default [`RecorderOptions`].
///
/// `source` is what `kubectl describe` shows under "From".
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_runtime::events;
///
/// # fn example(client: kube::Client, object: ConfigMap) {
/// let (recorder, writer) = events::channel(client, "sample-controller");
/// // Nothing is written unless the writer runs.
/// let running = writer.run_until(std::future::pending());
/// recorder.normal(&object, "Synced", "Foo synced successfully");
/// recorder.warning(&object, "ErrResourceExists", format!("{:?} is not managed by Foo", object.metadata.name));
/// # drop(running);
/// # }
/// ```
pub fn channel(client: Client, source: impl Into<String>) -> (Recorder, EventWriter) {
    RecorderOptions::default().channel(client, source)
}

//! Kubernetes events: what a controller tells people about an object, as `kubectl describe` shows it.
//!
//! ```text
//!   Recorder::normal ──► Correlator ──► queue of series ──► Writer ──► create or patch of a v1 Event
//!     (any number,        counts,       (one key each,       (one,
//!      never waits)       combines,      retries, delays)     owned by the manager)
//!                         drops
//! ```
//!
//! A *series* is one event object on the server: the same thing said again about the same object raises its count.
//! Recorder and writer share the correlator behind a short lock. A call to the recorder updates a series and at most
//! puts its key into the queue; the writer takes keys and writes what the series is *then*, so that a hundred thousand
//! calls while one request is under way are one more request, with the right count.
//!
//! Who owns what: the [`Writer`] owns all work. It is a future, spawns nothing, and when it has ended or is dropped
//! nothing of it is left; recorders may live longer, and what they are told then is counted as dropped.
//!
//! # Why `v1` events, and not `events.k8s.io/v1`
//!
//! Both are the same objects in the same table, and `kubectl get events`, `kubectl events` and `kubectl describe` read
//! them as `v1`. What differs is what may be written:
//!
//! - `events.k8s.io/v1` freezes count, timestamps and note once created; only `series` may change. A combined event
//!   could not show its newest message, and `lastTimestamp` must be empty, so the common
//!   `kubectl get events --sort-by=.lastTimestamp` shows such events first, however new they are.
//! - It demands an `action` and a `reportingInstance`, which an author who says "Synced" has no words for.
//! - The roles that people already have for controllers (the sample controller's, and most charts) grant `create` and
//!   `patch` on `events` of the core group. Those two are all that the writer needs.
//!
//! The limits of `events.k8s.io` are kept nevertheless: a message has at most 1024 bytes and a reason 128, so that
//! whoever reads events by the newer group finds nothing that it does not allow.
//!
//! # Limits
//!
//! The numbers are client-go's. From the tenth different message of one reason about one object within ten minutes on,
//! they are one event, "(combined from similar events): …". Each source may cause 25 requests about an object and type
//! at once, and one more every five minutes. Beyond that an event that is known is only counted, and its count is
//! written when it has been quiet for six minutes, every thirty minutes if it is not, and on stop; one that is not
//! known is dropped. Nothing grows without limit: 4096 series are remembered and 1000 wait to be written.

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
    counts::{Counts, DropReason},
    options::{Budget, Options},
    recorder::Recorder,
    regarding::{Regarding, how},
    writer::Writer,
};

/// A recorder and the writer that brings what it is told to the server, with the default [`Options`].
///
/// `source` is who says it: `kubectl describe` shows it under "From".
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_runtime::events;
///
/// # fn example(client: kube::Client, object: ConfigMap) {
/// let (recorder, writer) = events::channel(client, "sample-controller");
/// // Somebody must run the writer; nothing is written before.
/// let running = writer.run_until(std::future::pending());
/// recorder.normal(&object, "Synced", "Foo synced successfully");
/// recorder.warning(&object, "ErrResourceExists", format!("{:?} is not managed by Foo", object.metadata.name));
/// # drop(running);
/// # }
/// ```
pub fn channel(client: Client, source: impl Into<String>) -> (Recorder, Writer) {
    Options::default().channel(client, source)
}

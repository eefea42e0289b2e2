//! The event recorder, used by reconcilers.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Event;
use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_clock::Clock;
use windlass_workqueue::{DelayedOnClose, Exponential, WorkQueue};

use super::{
    correlator::{Correlator, Decision, Due, Naming, Observation},
    counts::{DropReason, EventCounts},
    options::{Moment, RecorderOptions},
    regarding::Regarding,
    series::{AggregateKey, EventType, SeriesKey, message},
};

/// Delay before a failed request is retried; the jitter spreads requests that failed together.
const RETRY_DELAY: Duration = Duration::from_secs(10);
const RETRY_JITTER: f64 = 0.25;

/// Twelve attempts in all.
const MAX_RETRIES: u32 = 11;

/// Records events about objects. No call waits, fails or panics, whatever the server does. Clones are cheap.
///
/// Recording the same event again raises the count of the existing one. Delivery is best effort and not reported per event;
/// [`counts`](Self::counts) returns the totals.
///
/// Created by [`channel`](super::channel).
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
    source: Arc<str>,
    naming: Naming,
}

/// State shared by recorders and their writer.
pub(super) struct Shared {
    pub(super) clock: Clock,
    /// Locked for one decision at a time, never across an await. The queue's own lock is always taken second.
    pub(super) state: Mutex<State>,
    /// The series to write, now or later.
    pub(super) queue: WorkQueue<Arc<SeriesKey>>,
}

pub(super) struct State {
    pub(super) correlator: Correlator,
    pub(super) counts: EventCounts,
    /// The writer accepts no more events.
    pub(super) closed: bool,
}

impl Recorder {
    pub(super) fn new(options: RecorderOptions, source: &str) -> Self {
        let queue = WorkQueue::builder()
            .rate_limiter(Exponential::new(RETRY_DELAY, RETRY_DELAY).jitter(RETRY_JITTER))
            .max_retries(MAX_RETRIES)
            .delayed_on_close(DelayedOnClose::RunNow)
            .build();
        let shared = Shared {
            clock: options.clock,
            state: Mutex::new(State {
                correlator: Correlator::new(options),
                counts: EventCounts::default(),
                closed: false,
            }),
            queue,
        };
        Self {
            shared: Arc::new(shared),
            source: source.into(),
            naming: Naming::Unique,
        }
    }

    /// Records a `Normal` event.
    ///
    /// `reason` is machine-readable: one `UpperCamelCase` word from a small set. The message is for humans.
    pub fn normal<Marker>(&self, object: &impl Regarding<Marker>, reason: &str, message: impl Into<String>) {
        self.record(EventType::Normal, object, reason, message.into());
    }

    /// Records a `Warning` event.
    ///
    /// `reason` is machine-readable: one `UpperCamelCase` word from a small set. The message is for humans.
    pub fn warning<Marker>(&self, object: &impl Regarding<Marker>, reason: &str, message: impl Into<String>) {
        self.record(EventType::Warning, object, reason, message.into());
    }

    /// Returns the same recorder with another source, so that one writer serves many controllers.
    #[must_use]
    pub fn source(&self, source: impl Into<String>) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            source: source.into().into(),
            naming: self.naming,
        }
    }

    /// Returns a recorder of lasting states, such as an invalid spec, that a controller finds again after each start.
    ///
    /// An event that an earlier process has created about the same object, with the same source, reason and message, is
    /// left as it is, so that a restart posts nothing new. Within a process, recording it again raises the count as usual.
    #[must_use]
    pub fn lasting(&self) -> Self {
        Self {
            naming: Naming::Stable,
            ..self.clone()
        }
    }

    /// Returns the totals of this recorder and all recorders that share its writer.
    pub fn counts(&self) -> EventCounts {
        self.shared.state.lock().counts
    }

    /// A recorder that keeps its events for [`take_events`](Self::take_events).
    pub(crate) fn without_writer(source: &str) -> Self {
        Self::new(RecorderOptions::default(), source)
    }

    /// Takes the events that no writer has taken, in the order in which they were recorded.
    pub(crate) fn take_events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(item) = self.shared.queue.try_next() {
            let mut state = self.shared.state.lock();
            let now = Instant::now();
            if let Due::Write(write) = state.correlator.due(&item, now) {
                events.push(write.event());
                state.correlator.on_written(&write, now);
            }
            drop(state);
            item.done();
        }
        events
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn record<Marker>(&self, kind: EventType, object: &impl Regarding<Marker>, reason: &str, text: String) {
        let similar = AggregateKey::new(Arc::clone(&self.source), object.reference(), kind, reason);
        let text = message(text);
        let now = Moment::now(self.shared.clock);
        let mut state = self.shared.state.lock();
        if state.closed {
            state.counts.add_dropped(DropReason::Stopped, 1);
            return;
        }
        let Observation { decision, forgotten } = state.correlator.observe(similar, text, self.naming, now);
        if let Some((key, unwritten)) = forgotten {
            state.counts.add_dropped(DropReason::Forgotten, unwritten.into());
            self.shared.queue.cancel_delay(&key);
        }
        match decision {
            Decision::Create(key) | Decision::Patch { key, .. } => self.shared.queue.add(key),
            Decision::Hold(key, after) => self.shared.queue.add_after(key, after),
            Decision::Counted => {}
            Decision::Drop(why) => state.counts.add_dropped(why, 1),
        }
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Stops accepting events; held and retried series become due at once.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.correlator.close();
        self.queue.close();
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::ObjectMeta;

    use super::*;

    fn object(name: &str) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn forgotten_series_is_removed_from_the_queue() {
        let options = RecorderOptions::default()
            .max_series(1)
            .burst(1, Duration::from_mins(5));
        let recorder = Recorder::new(options, "test");
        let Shared { state, queue, .. } = &**recorder.shared();
        recorder.normal(&object("a"), "Synced", "it works");
        let item = queue.try_next().expect("a create is queued");
        let now = Instant::now();
        let Due::Write(write) = state.lock().correlator.due(&item, now) else {
            panic!("the series is not due");
        };
        state.lock().correlator.on_written(&write, now);
        item.done();
        recorder.normal(&object("a"), "Synced", "it works");
        assert_eq!(queue.delayed(), 1);
        recorder.normal(&object("b"), "Synced", "it works");
        assert_eq!((queue.delayed(), queue.len()), (0, 1));
        assert_eq!(recorder.counts().dropped(DropReason::Forgotten), 1);
    }
}

//! The end of an event's way that reconcilers hold.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use windlass_workqueue::{DelayedOnClose, Exponential, WorkQueue};

use super::{
    correlator::{Correlator, Decision, Observed},
    counts::{Counts, DropReason},
    options::{Clock, Options},
    regarding::Regarding,
    series::{Key, Similar, Type, message},
};

/// A failed request is tried again after ten seconds and up to a quarter more, so that those who failed together do
/// not come back together.
const RETRY: Duration = Duration::from_secs(10);
const JITTER: f64 = 0.25;

/// Twelve tries in all.
const RETRIES: u32 = 11;

/// Tells people about objects: clones are cheap, and no call waits, fails or panics, whatever the server does.
///
/// The same words about the same object again are one event with a higher count. Whether an event was written is not
/// told: it is a courtesy, not state. [`counts`](Self::counts) has the sums.
///
/// Made by [`channel`](super::channel).
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
    source: Arc<str>,
}

/// What recorders and their writer share.
pub(super) struct Shared {
    pub(super) clock: Clock,
    /// Locked for one decision at a time, never across a wait. The queue has a lock of its own, always taken second.
    pub(super) state: Mutex<State>,
    /// The series that are to be written, now or later.
    pub(super) queue: WorkQueue<Arc<Key>>,
}

pub(super) struct State {
    pub(super) correlator: Correlator,
    pub(super) counts: Counts,
    /// The writer takes no more.
    pub(super) closed: bool,
}

impl Recorder {
    pub(super) fn new(options: Options, source: &str) -> Self {
        let queue = WorkQueue::builder()
            .rate_limiter(Exponential::new(RETRY, RETRY).jitter(JITTER))
            .max_retries(RETRIES)
            .delayed_on_close(DelayedOnClose::RunNow)
            .build();
        let shared = Shared {
            clock: options.clock(),
            state: Mutex::new(State {
                correlator: Correlator::new(options),
                counts: Counts::default(),
                closed: false,
            }),
            queue,
        };
        Self {
            shared: Arc::new(shared),
            source: source.into(),
        }
    }

    /// Says that something went as it should.
    ///
    /// `reason` is for programs: one word in `UpperCamelCase`, from a small set. The message is for people.
    pub fn normal<How>(&self, object: &impl Regarding<How>, reason: &str, message: impl Into<String>) {
        self.record(Type::Normal, object, reason, message.into());
    }

    /// Says that something went wrong, or may.
    ///
    /// `reason` is for programs: one word in `UpperCamelCase`, from a small set. The message is for people.
    pub fn warning<How>(&self, object: &impl Regarding<How>, reason: &str, message: impl Into<String>) {
        self.record(Type::Warning, object, reason, message.into());
    }

    /// The same recorder under another name, so that one writer serves many controllers.
    #[must_use]
    pub fn source(&self, source: impl Into<String>) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            source: source.into().into(),
        }
    }

    /// What became of everything that this recorder, its clones and its namesakes were told.
    pub fn counts(&self) -> Counts {
        self.shared.state.lock().counts
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn record<How>(&self, kind: Type, object: &impl Regarding<How>, reason: &str, text: String) {
        let similar = Similar::new(Arc::clone(&self.source), object.reference(), kind, reason);
        let text = message(text);
        let now = self.shared.clock.now();
        let mut state = self.shared.state.lock();
        if state.closed {
            state.counts.drop_more(DropReason::Stopped, 1);
            return;
        }
        let Observed { decision, forgotten } = state.correlator.observe(similar, text, now);
        if let Some((key, unwritten)) = forgotten {
            state.counts.drop_more(DropReason::Forgotten, unwritten.into());
            self.shared.queue.cancel_delay(&key);
        }
        match decision {
            Decision::Create(key) | Decision::Patch { key, .. } => self.shared.queue.add(key),
            Decision::Hold(key, after) => self.shared.queue.add_after(key, after),
            Decision::Counted => {}
            Decision::Drop(why) => state.counts.drop_more(why, 1),
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
    /// Ends the intake; what is held or waits for its next try is due at once.
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
    use crate::events::correlator::Due;

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
    async fn a_series_that_is_forgotten_leaves_nothing_in_the_queue() {
        let options = Options::default().remembered(1).burst(1, Duration::from_mins(5));
        let recorder = Recorder::new(options, "test");
        let Shared { state, queue, clock } = &**recorder.shared();
        recorder.normal(&object("a"), "Synced", "it works");
        let taken = queue.try_take().expect("it is to be created");
        let now = clock.now().instant;
        let Due::Write(write) = state.lock().correlator.due(&taken, now) else {
            panic!("it is due");
        };
        state.lock().correlator.wrote(&write, now);
        taken.done();
        recorder.normal(&object("a"), "Synced", "it works");
        assert_eq!(queue.delayed(), 1);
        recorder.normal(&object("b"), "Synced", "it works");
        assert_eq!((queue.delayed(), queue.len()), (0, 1));
        assert_eq!(recorder.counts().dropped(DropReason::Forgotten), 1);
    }
}

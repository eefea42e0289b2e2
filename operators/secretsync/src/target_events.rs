//! Events in target namespaces, within limits: a sync with many targets must not flood the server.
//!
//! ```text
//!   what was done, failures ──► TargetEvents ──► recorder           as many at once as the budget allows
//!                                    └── waiting, combined per namespace and reason ──► recorder, a few each second
//! ```
//!
//! Owned by the engine. What waits is recorded by [`run`](TargetEvents::run), which the leader awaits; at its end, what
//! still waits is dropped and counted. The log has everything.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use windlass::{k8s_openapi::api::core::v1::ObjectReference, runtime::events::Recorder};

/// Events in target namespaces: as many at once, and then one more in this time.
const BURST: u32 = 500;
const INTERVAL: Duration = Duration::from_millis(100);

/// How often events that wait are recorded.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of combined events that wait.
const MAX_WAITING: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum EventType {
    Normal,
    Warning,
}

/// Records events in target namespaces, at a limited rate.
pub(crate) struct TargetEvents {
    state: Mutex<State>,
    has_waiting: Notify,
    dropped: AtomicU64,
}

struct State {
    /// The token bucket, stored as the time at which it is full.
    full: Instant,
    /// One for each namespace and reason.
    waiting: HashMap<(Arc<str>, Box<str>), CombinedEvent>,
    /// The keys of `waiting`, oldest first.
    order: VecDeque<(Arc<str>, Box<str>)>,
}

/// The first of some similar events, and how many there were besides.
struct CombinedEvent {
    kind: EventType,
    reference: ObjectReference,
    message: String,
    more: u64,
}

impl TargetEvents {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                full: Instant::now(),
                waiting: HashMap::new(),
                order: VecDeque::new(),
            }),
            has_waiting: Notify::new(),
            dropped: AtomicU64::new(0),
        }
    }

    /// Returns how many events were neither recorded nor combined with another one.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Records what was done to an object of a target namespace.
    pub(crate) fn normal(
        &self,
        recorder: &Recorder,
        namespace: &Arc<str>,
        about: &ObjectReference,
        reason: &str,
        message: &str,
    ) {
        if self.admits(EventType::Normal, namespace, about, reason, message) {
            recorder.normal(about, reason, message);
        }
    }

    /// Records a failure about an object of a target namespace.
    pub(crate) fn warning(
        &self,
        recorder: &Recorder,
        namespace: &Arc<str>,
        about: &ObjectReference,
        reason: &str,
        message: &str,
    ) {
        if self.admits(EventType::Warning, namespace, about, reason, message) {
            recorder.warning(about, reason, message);
        }
    }

    /// Returns whether an event may be recorded now. Otherwise it waits, combined with others of its namespace and reason.
    fn admits(
        &self,
        kind: EventType,
        namespace: &Arc<str>,
        about: &ObjectReference,
        reason: &str,
        message: &str,
    ) -> bool {
        let mut state = self.state.lock();
        let key = (Arc::clone(namespace), Box::from(reason));
        if let Some(similar) = state.waiting.get_mut(&key) {
            similar.more += 1;
            return false;
        }
        // Those that wait come first.
        if state.order.is_empty() && state.take() {
            return true;
        }
        if state.order.len() >= MAX_WAITING {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        state.order.push_back(key.clone());
        let event = CombinedEvent {
            kind,
            reference: about.clone(),
            message: message.to_owned(),
            more: 0,
        };
        state.waiting.insert(key, event);
        self.has_waiting.notify_one();
        false
    }

    /// Records the events that wait, as the budget allows. Cancellation-safe.
    pub(crate) async fn run(&self, recorder: &Recorder) {
        loop {
            while self.flush(recorder) {
                tokio::time::sleep(FLUSH_INTERVAL).await;
            }
            self.has_waiting.notified().await;
        }
    }

    /// Drops the events that wait, and counts them.
    pub(crate) fn clear(&self) {
        let mut state = self.state.lock();
        state.order.clear();
        let left: u64 = state.waiting.drain().map(|(_, event)| event.more + 1).sum();
        self.dropped.fetch_add(left, Ordering::Relaxed);
    }

    /// Records what may be recorded now; returns whether anything is left.
    fn flush(&self, recorder: &Recorder) -> bool {
        loop {
            let mut state = self.state.lock();
            if state.order.is_empty() {
                return false;
            }
            if !state.take() {
                return true;
            }
            let next = state.order.pop_front();
            let Some((key, event)) = next.and_then(|key| state.waiting.remove_entry(&key)) else {
                continue;
            };
            drop(state);
            let (_, reason) = key;
            let message = event.text();
            match event.kind {
                EventType::Normal => recorder.normal(&event.reference, &reason, message),
                EventType::Warning => recorder.lasting().warning(&event.reference, &reason, message),
            }
        }
    }
}

impl State {
    fn take(&mut self) -> bool {
        let now = Instant::now();
        let next = self.full.max(now) + INTERVAL;
        let is_allowed = next <= now + INTERVAL * BURST;
        if is_allowed {
            self.full = next;
        }
        is_allowed
    }
}

impl CombinedEvent {
    fn text(&self) -> String {
        match self.more {
            0 => self.message.clone(),
            more => format!("{} (and {more} more events like this; see the log)", self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of these events, one in each namespace, may be recorded at once.
    fn admitted(events: &TargetEvents, namespaces: std::ops::Range<usize>) -> usize {
        let about = ObjectReference::default();
        namespaces
            .filter(|number| {
                let namespace = Arc::from(format!("ns-{number}"));
                events.admits(EventType::Warning, &namespace, &about, "Conflict", "taken")
            })
            .count()
    }

    #[tokio::test(start_paused = true)]
    async fn events_over_the_budget_wait_and_are_combined() {
        let events = TargetEvents::new();
        assert_eq!(admitted(&events, 0..600), 500);
        assert_eq!(admitted(&events, 500..600), 0, "the same again");
        {
            let state = events.state.lock();
            assert_eq!((state.order.len(), state.waiting.len()), (100, 100));
            let one = state.waiting.values().next().expect("it waits");
            assert_eq!(one.text(), "taken (and 1 more events like this; see the log)");
        }
        assert_eq!(events.dropped(), 0);
        admitted(&events, 600..500 + MAX_WAITING + 7);
        assert_eq!(events.dropped(), 7);
        events.clear();
        assert_eq!(events.dropped(), 7 + 100 + MAX_WAITING as u64);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_events_are_recorded_at_a_rate_and_lost_never() {
        use windlass::{kube::Client, runtime::events};

        let service = tower::service_fn(|_: http::Request<windlass::kube::client::Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(windlass::kube::client::Body::empty()))
        });
        let (recorder, writer) = events::channel(Client::new(service, "n"), "test");
        let events = TargetEvents::new();
        admitted(&events, 0..600);
        let left = || events.state.lock().order.len();
        tokio::select! {
            () = events.run(&recorder) => unreachable!("it runs until it is dropped"),
            () = tokio::time::sleep(Duration::from_millis(5_500)) => {}
        }
        assert!((40..60).contains(&left()), "{}", left());
        tokio::select! {
            () = events.run(&recorder) => unreachable!("it runs until it is dropped"),
            () = tokio::time::sleep(Duration::from_mins(1)) => {}
        }
        assert_eq!((left(), events.dropped()), (0, 0));
        drop(writer);
    }
}

//! What one controller is doing right now, for people who ask.

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};
use windlass_cache::ObjectKey;
use windlass_workqueue::WorkQueue;

use crate::{
    outcomes::{Outcome, Outcomes},
    reconcile::ReconcileId,
    serving::{self, ControllerState, ControllerStatus, OutcomeCounts},
};

/// Failing objects that are remembered with their reason; of more than that only the number is known.
const FAILING: usize = 1_000;

/// Written by the controller and its workers, read by whoever asks. What it holds is bounded: what runs by the number of
/// workers, what fails by [`FAILING`].
pub(crate) struct Board {
    workers: NonZeroUsize,
    outcomes: Arc<Outcomes>,
    state: watch::Sender<ControllerState>,
    /// From when it runs.
    queue: OnceLock<WorkQueue<ObjectKey>>,
    /// By id: with many in flight none may cost more to end.
    running: Mutex<HashMap<ReconcileId, Running>>,
    failing: Mutex<HashMap<ObjectKey, Failing>>,
    last: Mutex<Option<Ended>>,
}

/// A reconcile that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    key: ObjectKey,
    since: Instant,
}

/// The reconcile that ended last.
#[derive(Clone, Debug)]
struct Ended {
    ran: Running,
    at: Instant,
    outcome: Outcome,
}

/// An object whose last reconcile failed.
#[derive(Clone, Debug)]
struct Failing {
    /// In a row.
    failures: u32,
    error: String,
    /// `None`: not before the object changes.
    retry_at: Option<Instant>,
}

impl Board {
    pub(crate) fn new(workers: NonZeroUsize, outcomes: Arc<Outcomes>) -> Self {
        Self {
            workers,
            outcomes,
            state: watch::Sender::new(ControllerState::Starting),
            queue: OnceLock::new(),
            running: Mutex::default(),
            failing: Mutex::default(),
            last: Mutex::default(),
        }
    }

    pub(crate) fn is(&self, state: ControllerState) {
        self.state.send_replace(state);
    }

    /// One of the kinds that it waits for is there.
    pub(crate) fn synced(&self, kind: &str) {
        self.state.send_modify(|state| {
            if let ControllerState::Syncing { waiting_for } = state
                && let Some(at) = waiting_for.iter().position(|waiting| waiting == kind)
            {
                waiting_for.remove(at);
            }
        });
    }

    pub(crate) fn works_on(&self, queue: &WorkQueue<ObjectKey>) {
        // A controller runs once.
        let _ = self.queue.set(queue.clone());
    }

    /// Returns when its caches are complete. Cancellation-safe.
    pub(crate) async fn ready(&self) {
        let mut state = self.state.subscribe();
        // The sender is here.
        let _ = state.wait_for(is_ready).await;
    }

    /// Why it is not ready; `None` if it is.
    pub(crate) fn unready(&self, name: &str) -> Option<String> {
        let state = self.state.borrow();
        match &*state {
            state if is_ready(state) => None,
            ControllerState::Syncing { waiting_for } => Some(format!(
                "controller `{name}` waits for {}",
                waiting_for.join(", ")
            )),
            _ => Some(format!("controller `{name}` has not started")),
        }
    }

    /// All of it.
    pub(crate) fn status(&self, name: &str) -> ControllerStatus {
        let seconds = |since: Instant| since.elapsed().as_secs_f64();
        let now = Instant::now();
        let running = self.running().into_iter().map(|(id, running)| serving::Running {
            key: running.key.to_string(),
            id: id.to_string(),
            seconds: seconds(running.since),
        });
        let failing = self.failing().into_iter().map(|(key, failing)| serving::Failing {
            key: key.to_string(),
            failures: failing.failures,
            last_error: failing.error,
            retry_in_seconds: failing
                .retry_at
                .map(|at| at.saturating_duration_since(now).as_secs_f64()),
        });
        let queue = self.queue.get();
        ControllerStatus {
            name: name.to_owned(),
            state: self.state.borrow().clone(),
            workers: self.workers.get(),
            queued: queue.map_or(0, WorkQueue::len),
            delayed: queue.map_or(0, WorkQueue::delayed),
            running: running.collect(),
            failing: failing.collect(),
            outcomes: OutcomeCounts {
                done: self.outcomes.done(),
                requeued: self.outcomes.requeued(),
                failed: self.outcomes.failed(),
                terminal: self.outcomes.terminal(),
                panicked: self.outcomes.panicked(),
                timed_out: self.outcomes.timed_out(),
            },
            last: self.last.lock().as_ref().map(|last| serving::Ended {
                key: last.ran.key.to_string(),
                outcome: last.outcome,
                seconds: (last.at - last.ran.since).as_secs_f64(),
                seconds_ago: seconds(last.at),
            }),
        }
    }

    /// Something runs until what this returns ends or is dropped.
    pub(crate) fn start(&self, key: &ObjectKey, id: ReconcileId) -> Entry<'_> {
        let (key, since) = (key.clone(), Instant::now());
        self.running.lock().insert(id, Running { key, since });
        Entry { board: self, id }
    }

    /// Something has ended like this.
    pub(crate) fn ended(&self, ran: Running, outcome: Outcome) {
        let at = Instant::now();
        *self.last.lock() = Some(Ended { ran, at, outcome });
    }

    pub(crate) fn worked(&self, key: &ObjectKey) {
        let mut failing = self.failing.lock();
        if !failing.is_empty() {
            failing.remove(key);
        }
    }

    pub(crate) fn failed(&self, key: &ObjectKey, error: String, retry_at: Option<Instant>) {
        let mut failing = self.failing.lock();
        if failing.len() >= FAILING && !failing.contains_key(key) {
            return;
        }
        let failures = failing.get(key).map_or(0, |known| known.failures) + 1;
        failing.insert(
            key.clone(),
            Failing {
                failures,
                error,
                retry_at,
            },
        );
    }

    /// What runs, longest first.
    fn running(&self) -> Vec<(ReconcileId, Running)> {
        let mut running: Vec<_> = self
            .running
            .lock()
            .iter()
            .map(|(id, running)| (*id, running.clone()))
            .collect();
        running.sort_by_key(|(_, running)| running.since);
        running
    }

    /// What fails, by key.
    fn failing(&self) -> Vec<(ObjectKey, Failing)> {
        let failing = self.failing.lock();
        let mut failing: Vec<_> = failing
            .iter()
            .map(|(key, why)| (key.clone(), why.clone()))
            .collect();
        failing.sort_by(|a, b| a.0.cmp(&b.0));
        failing
    }
}

fn is_ready(state: &ControllerState) -> bool {
    !matches!(state, ControllerState::Starting | ControllerState::Syncing { .. })
}

/// The line of one reconcile; also one that is aborted takes it off.
pub(crate) struct Entry<'a> {
    board: &'a Board,
    id: ReconcileId,
}

impl Entry<'_> {
    /// Takes it off, and says what it was.
    pub(crate) fn end(self) -> Option<Running> {
        let ran = self.board.running.lock().remove(&self.id);
        // It has done what dropping it does, and holds nothing.
        std::mem::forget(self);
        ran
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.board.running.lock().remove(&self.id);
    }
}

//! Tracks the live status of one controller, for debug pages, readiness and the CLI.

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
    outcomes::{OutcomeCounters, ReconcileOutcome},
    reconcile::ReconcileId,
    serving::{self, ControllerState, ControllerStatus, OutcomeCounts},
};

/// Maximum number of failing objects whose error is kept; further ones are only counted.
const MAX_TRACKED_FAILURES: usize = 1_000;

/// Live status of one controller, written by the controller and its workers. It is bounded: running reconciles by the
/// number of workers, failing objects by [`MAX_TRACKED_FAILURES`].
pub(crate) struct StatusTracker {
    workers: NonZeroUsize,
    outcomes: Arc<OutcomeCounters>,
    state: watch::Sender<ControllerState>,
    /// Set when the controller starts.
    queue: OnceLock<WorkQueue<ObjectKey>>,
    /// By id, so that removal is O(1) with many workers.
    running: Mutex<HashMap<ReconcileId, Running>>,
    failing: Mutex<HashMap<ObjectKey, Failing>>,
    last: Mutex<Option<LastReconcile>>,
}

/// A running reconcile.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    key: ObjectKey,
    since: Instant,
}

/// The last finished reconcile.
#[derive(Clone, Debug)]
struct LastReconcile {
    ran: Running,
    at: Instant,
    outcome: ReconcileOutcome,
}

/// An object whose last reconcile failed.
#[derive(Clone, Debug)]
struct Failing {
    /// Consecutive failures.
    failures: u32,
    error: String,
    /// `None`: not retried before the object changes.
    retry_at: Option<Instant>,
}

impl StatusTracker {
    pub(crate) fn new(workers: NonZeroUsize, outcomes: Arc<OutcomeCounters>) -> Self {
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

    pub(crate) fn set_state(&self, state: ControllerState) {
        self.state.send_replace(state);
    }

    /// Removes a synced kind from those the controller waits for.
    pub(crate) fn kind_synced(&self, kind: &str) {
        self.state.send_modify(|state| {
            if let ControllerState::Syncing { waiting_for } = state
                && let Some(at) = waiting_for.iter().position(|waiting| waiting == kind)
            {
                waiting_for.remove(at);
            }
        });
    }

    pub(crate) fn set_queue(&self, queue: &WorkQueue<ObjectKey>) {
        // Set only once: a controller runs once.
        let _ = self.queue.set(queue.clone());
    }

    /// Completes when the controller's caches have synced. Cancellation-safe.
    pub(crate) async fn ready(&self) {
        let mut state = self.state.subscribe();
        // Cannot fail: `self` holds the sender.
        let _ = state.wait_for(is_ready).await;
    }

    /// Why the controller is not ready; `None` if it is.
    pub(crate) fn not_ready_reason(&self, name: &str) -> Option<String> {
        let state = self.state.borrow();
        match &*state {
            state if is_ready(state) => None,
            ControllerState::Syncing { waiting_for } => Some(format!(
                "controller `{name}` is waiting for {}",
                waiting_for.join(", ")
            )),
            _ => Some(format!("controller `{name}` has not started")),
        }
    }

    /// Returns a snapshot of the status.
    pub(crate) fn status(&self, name: &str) -> ControllerStatus {
        let seconds = |since: Instant| since.elapsed().as_secs_f64();
        let now = Instant::now();
        let running = self
            .running()
            .into_iter()
            .map(|(id, running)| serving::RunningReconcile {
                key: running.key.to_string(),
                id: id.to_string(),
                seconds: seconds(running.since),
            });
        let failing = self
            .failing()
            .into_iter()
            .map(|(key, failing)| serving::FailingObject {
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
            last: self.last.lock().as_ref().map(|last| serving::FinishedReconcile {
                key: last.ran.key.to_string(),
                outcome: last.outcome,
                seconds: (last.at - last.ran.since).as_secs_f64(),
                seconds_ago: seconds(last.at),
            }),
        }
    }

    /// Tracks a reconcile as running until the guard ends or is dropped.
    pub(crate) fn track(&self, key: &ObjectKey, id: ReconcileId) -> RunningGuard<'_> {
        let (key, since) = (key.clone(), Instant::now());
        self.running.lock().insert(id, Running { key, since });
        RunningGuard { tracker: self, id }
    }

    /// Records the last finished reconcile.
    pub(crate) fn record_last(&self, ran: Running, outcome: ReconcileOutcome) {
        let at = Instant::now();
        *self.last.lock() = Some(LastReconcile { ran, at, outcome });
    }

    pub(crate) fn clear_failure(&self, key: &ObjectKey) {
        let mut failing = self.failing.lock();
        if !failing.is_empty() {
            failing.remove(key);
        }
    }

    pub(crate) fn record_failure(&self, key: &ObjectKey, error: String, retry_at: Option<Instant>) {
        let mut failing = self.failing.lock();
        if failing.len() >= MAX_TRACKED_FAILURES && !failing.contains_key(key) {
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

    /// Running reconciles, longest first.
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

    /// Failing objects, sorted by key.
    fn failing(&self) -> Vec<(ObjectKey, Failing)> {
        let failing = self.failing.lock();
        let mut failing: Vec<_> = failing
            .iter()
            .map(|(key, failure)| (key.clone(), failure.clone()))
            .collect();
        failing.sort_by(|a, b| a.0.cmp(&b.0));
        failing
    }
}

fn is_ready(state: &ControllerState) -> bool {
    !matches!(state, ControllerState::Starting | ControllerState::Syncing { .. })
}

/// Guard of a running reconcile. Dropping it, also by cancellation, removes the entry.
pub(crate) struct RunningGuard<'a> {
    tracker: &'a StatusTracker,
    id: ReconcileId,
}

impl RunningGuard<'_> {
    /// Removes the entry and returns it.
    pub(crate) fn end(self) -> Option<Running> {
        let ran = self.tracker.running.lock().remove(&self.id);
        // The entry is removed and the guard owns nothing, so `drop` is not needed.
        std::mem::forget(self);
        ran
    }
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.tracker.running.lock().remove(&self.id);
    }
}

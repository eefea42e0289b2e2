//! Tracks a controller's keys: queued, running, failing. Keys are formatted only when a status is requested.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_workqueue::WorkQueue;

use crate::{
    key::ReconcileKey,
    outcomes::ReconcileOutcome,
    reconcile::ReconcileId,
    serving::{ControllerStatus, FailingObject, FinishedReconcile, RunningReconcile},
    trigger::Trigger,
};

/// Maximum number of failing keys whose error is kept; further ones are only counted.
const MAX_TRACKED_FAILURES: usize = 1_000;

/// Live status of a controller's keys, written by its workers. It is bounded: running reconciles by the number of
/// workers, failing keys by [`MAX_TRACKED_FAILURES`].
pub(crate) struct KeyTracker<Key> {
    queue: WorkQueue<Key>,
    /// By id, so that removal is O(1) with many workers.
    running: Mutex<HashMap<ReconcileId, Running<Key>, foldhash::fast::RandomState>>,
    failing: Mutex<HashMap<Key, Failing>>,
    last: Mutex<Option<LastReconcile<Key>>>,
}

/// The status of a controller's keys, whatever their type.
pub(crate) trait KeyStatus: Send + Sync {
    /// Adds the keys to the status of their controller.
    fn add_to(&self, status: &mut ControllerStatus);
}

/// A running reconcile.
#[derive(Clone)]
pub(crate) struct Running<Key> {
    key: Key,
    trigger: Trigger,
    since: Instant,
}

/// The last finished reconcile.
#[derive(Clone)]
struct LastReconcile<Key> {
    ran: Running<Key>,
    at: Instant,
    outcome: ReconcileOutcome,
}

/// A key whose last reconcile failed.
#[derive(Clone)]
struct Failing {
    /// Consecutive failures.
    failures: u32,
    error: String,
    /// `None`: not retried before a change.
    retry_at: Option<Instant>,
}

impl<Key: ReconcileKey> KeyTracker<Key> {
    pub(crate) fn new(queue: WorkQueue<Key>) -> Self {
        Self {
            queue,
            running: Mutex::default(),
            failing: Mutex::default(),
            last: Mutex::default(),
        }
    }

    /// Tracks a reconcile as running until the guard ends or is dropped.
    pub(crate) fn track(&self, key: &Key, id: ReconcileId, trigger: Trigger) -> RunningGuard<'_, Key> {
        let running = Running {
            key: key.clone(),
            trigger,
            since: Instant::now(),
        };
        self.running.lock().insert(id, running);
        RunningGuard { tracker: self, id }
    }

    /// Records the last finished reconcile.
    pub(crate) fn record_last(&self, ran: Running<Key>, outcome: ReconcileOutcome) {
        let at = Instant::now();
        *self.last.lock() = Some(LastReconcile { ran, at, outcome });
    }

    pub(crate) fn clear_failure(&self, key: &Key) {
        let mut failing = self.failing.lock();
        if !failing.is_empty() {
            failing.remove(key);
        }
    }

    pub(crate) fn record_failure(&self, key: &Key, error: String, retry_at: Option<Instant>) {
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

    /// Corrects when a failed key is retried.
    pub(crate) fn set_retry_at(&self, key: &Key, retry_at: Instant) {
        if let Some(failing) = self.failing.lock().get_mut(key) {
            failing.retry_at = Some(retry_at);
        }
    }

    /// Running reconciles, longest first.
    fn running(&self) -> Vec<(ReconcileId, Running<Key>)> {
        let running = self.running.lock();
        let mut running: Vec<_> = running
            .iter()
            .map(|(id, running)| (*id, running.clone()))
            .collect();
        running.sort_by_key(|(_, running)| running.since);
        running
    }

    fn failing(&self) -> Vec<(Key, Failing)> {
        let failing = self.failing.lock();
        failing
            .iter()
            .map(|(key, failure)| (key.clone(), failure.clone()))
            .collect()
    }
}

impl<Key: ReconcileKey> KeyStatus for KeyTracker<Key> {
    fn add_to(&self, status: &mut ControllerStatus) {
        let now = Instant::now();
        let seconds = |since: Instant| (now - since).as_secs_f64();
        status.queued = self.queue.len();
        status.delayed = self.queue.delayed();
        // Keys are formatted after the locks are released: their `Display` is foreign code.
        let running = self.running().into_iter();
        status.running = running
            .map(|(id, running)| RunningReconcile {
                key: running.key.to_string(),
                id: id.to_string(),
                trigger: running.trigger.to_string(),
                seconds: seconds(running.since),
            })
            .collect();
        let failing = self.failing().into_iter();
        status.failing = failing
            .map(|(key, failing)| FailingObject {
                key: key.to_string(),
                failures: failing.failures,
                last_error: failing.error,
                retry_in_seconds: failing
                    .retry_at
                    .map(|at| at.saturating_duration_since(now).as_secs_f64()),
            })
            .collect();
        status.failing.sort_by(|a, b| a.key.cmp(&b.key));
        let last = self.last.lock().clone();
        status.last = last.map(|last| FinishedReconcile {
            key: last.ran.key.to_string(),
            outcome: last.outcome,
            trigger: last.ran.trigger.to_string(),
            seconds: (last.at - last.ran.since).as_secs_f64(),
            seconds_ago: seconds(last.at),
        });
    }
}

/// Guard of a running reconcile. Dropping it, also by cancellation, removes the entry.
pub(crate) struct RunningGuard<'a, Key> {
    tracker: &'a KeyTracker<Key>,
    id: ReconcileId,
}

impl<Key> RunningGuard<'_, Key> {
    /// Removes the entry and returns it.
    pub(crate) fn end(self) -> Option<Running<Key>> {
        let ran = self.tracker.running.lock().remove(&self.id);
        // The entry is removed and the guard owns nothing, so `drop` is not needed.
        std::mem::forget(self);
        ran
    }
}

impl<Key> Drop for RunningGuard<'_, Key> {
    fn drop(&mut self) {
        self.tracker.running.lock().remove(&self.id);
    }
}

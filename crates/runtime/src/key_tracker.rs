//! Tracks a controller's keys: queued, running, failing. Keys are formatted only when a status is requested.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    key::ReconcileKey,
    outcomes::ReconcileOutcome,
    reconcile::Run,
    serving::{ControllerStatus, FailingObject, FinishedReconcile, RunningReconcile},
    trigger::KeyQueue,
};

/// Maximum number of failing keys whose error is kept; further ones are only counted.
const MAX_TRACKED_FAILURES: usize = 1_000;

/// Live status of a controller's keys, written by its workers. It is bounded: running reconciles by the number of
/// workers, failing keys by [`MAX_TRACKED_FAILURES`].
pub(crate) struct KeyTracker<Key> {
    queue: KeyQueue<Key>,
    /// One per worker, so that workers do not wait for each other.
    workers: Box<[Mutex<WorkerStatus<Key>>]>,
    failing: Mutex<HashMap<Key, Failing>>,
}

/// The status of a controller's keys, whatever their type.
pub(crate) trait KeyStatus: Send + Sync {
    /// Adds the keys to the status of their controller.
    fn add_to(&self, status: &mut ControllerStatus);
}

/// The running and the last finished reconcile of a worker.
struct WorkerStatus<Key> {
    running: Option<Arc<Run<Key>>>,
    last: Option<FinishedRun<Key>>,
}

struct FinishedRun<Key> {
    run: Arc<Run<Key>>,
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
    pub(crate) fn new(queue: KeyQueue<Key>, workers: usize) -> Self {
        let idle = || {
            Mutex::new(WorkerStatus {
                running: None,
                last: None,
            })
        };
        Self {
            queue,
            workers: std::iter::repeat_with(idle).take(workers).collect(),
            failing: Mutex::default(),
        }
    }

    /// Tracks what a worker runs, until the guard ends or is dropped.
    pub(crate) fn track(&self, worker: usize, run: Arc<Run<Key>>) -> RunningGuard<'_, Key> {
        let worker = &self.workers[worker];
        worker.lock().running = Some(run);
        RunningGuard { worker }
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
    fn running(&self) -> Vec<Arc<Run<Key>>> {
        let running = self
            .workers
            .iter()
            .filter_map(|worker| worker.lock().running.clone());
        let mut running: Vec<_> = running.collect();
        running.sort_by_key(|run| run.since);
        running
    }

    /// The reconcile that finished last.
    fn last(&self) -> Option<(Arc<Run<Key>>, Instant, ReconcileOutcome)> {
        let finished = self.workers.iter().filter_map(|worker| {
            let worker = worker.lock();
            let last = worker.last.as_ref()?;
            Some((Arc::clone(&last.run), last.at, last.outcome))
        });
        finished.max_by_key(|(_, at, _)| *at)
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
            .map(|run| RunningReconcile {
                key: run.key.to_string(),
                id: run.id.to_string(),
                trigger: run.trigger.to_string(),
                seconds: seconds(run.since),
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
        status.last = self.last().map(|(run, at, outcome)| FinishedReconcile {
            key: run.key.to_string(),
            outcome,
            trigger: run.trigger.to_string(),
            seconds: at.duration_since(run.since).as_secs_f64(),
            seconds_ago: seconds(at),
        });
    }
}

/// Guard of a running reconcile. Dropping it, also by cancellation, ends it.
pub(crate) struct RunningGuard<'a, Key> {
    worker: &'a Mutex<WorkerStatus<Key>>,
}

/// A reconcile that ended, before its outcome is known.
pub(crate) struct EndedRun<'a, Key> {
    worker: &'a Mutex<WorkerStatus<Key>>,
    run: Option<Arc<Run<Key>>>,
}

impl<'a, Key> RunningGuard<'a, Key> {
    /// Ends the reconcile.
    pub(crate) fn end(self) -> EndedRun<'a, Key> {
        let run = self.worker.lock().running.take();
        EndedRun {
            worker: self.worker,
            run,
        }
    }
}

impl<Key> Drop for RunningGuard<'_, Key> {
    fn drop(&mut self) {
        self.worker.lock().running = None;
    }
}

impl<Key> EndedRun<'_, Key> {
    /// Records it as the worker's last reconcile.
    pub(crate) fn record(self, outcome: ReconcileOutcome) {
        let at = Instant::now();
        let last = self.run.map(|run| FinishedRun { run, at, outcome });
        self.worker.lock().last = last;
    }
}

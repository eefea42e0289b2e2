//! What one controller is doing right now, for people who ask.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_cache::ObjectKey;

use crate::reconcile::ReconcileId;

/// Failing objects that are remembered with their reason; of more than that only the number is known.
const FAILING: usize = 1_000;

/// Written by the workers, read by whoever asks. Both parts are bounded: what runs by the number of workers, what
/// fails by [`FAILING`].
#[derive(Default)]
pub(crate) struct Board {
    running: Mutex<Vec<Running>>,
    failing: Mutex<HashMap<ObjectKey, Failing>>,
}

/// A reconcile that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) key: ObjectKey,
    pub(crate) id: ReconcileId,
    pub(crate) since: Instant,
}

/// An object whose last reconcile failed.
#[derive(Clone, Debug)]
pub(crate) struct Failing {
    /// In a row.
    pub(crate) failures: u32,
    pub(crate) error: String,
    /// `None`: not before the object changes.
    pub(crate) retry_at: Option<Instant>,
}

impl Board {
    /// Something runs until what this returns is dropped.
    pub(crate) fn start(&self, key: &ObjectKey, id: ReconcileId) -> Entry<'_> {
        let (key, since) = (key.clone(), Instant::now());
        self.running.lock().push(Running { key, id, since });
        Entry { board: self, id }
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
    pub(crate) fn running(&self) -> Vec<Running> {
        let mut running = self.running.lock().clone();
        running.sort_by_key(|running| running.since);
        running
    }

    /// What fails, by key.
    pub(crate) fn failing(&self) -> Vec<(ObjectKey, Failing)> {
        let failing = self.failing.lock();
        let mut failing: Vec<_> = failing
            .iter()
            .map(|(key, why)| (key.clone(), why.clone()))
            .collect();
        failing.sort_by(|a, b| a.0.cmp(&b.0));
        failing
    }
}

/// The line of one reconcile; also one that is aborted takes it off.
pub(crate) struct Entry<'a> {
    board: &'a Board,
    id: ReconcileId,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut running = self.board.running.lock();
        if let Some(at) = running.iter().position(|running| running.id == self.id) {
            running.swap_remove(at);
        }
    }
}

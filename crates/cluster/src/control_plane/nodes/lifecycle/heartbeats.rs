//! Tracks when each node was last heard from.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::Instant;

/// The time of the last heartbeat of each node, by this process's clock, because node clocks may be wrong. Clones share
/// it.
#[derive(Clone, Default)]
pub(super) struct NodeHeartbeats(Arc<Mutex<HashMap<String, LastHeartbeat>>>);

struct LastHeartbeat {
    at: Instant,
    /// The last reported heartbeat time, to detect a new report.
    reported: Option<String>,
    /// The node was marked as unreachable.
    unreachable: bool,
}

impl NodeHeartbeats {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, LastHeartbeat>> {
        self.0.lock().expect("no panic while locked")
    }

    /// Records a lease renewal. Returns whether the node was marked as unreachable.
    pub(super) fn record_renewal(&self, node: &str) -> bool {
        let mut nodes = self.lock();
        let last = nodes.get_mut(node);
        last.is_some_and(|last| {
            last.at = Instant::now();
            std::mem::take(&mut last.unreachable)
        })
    }

    /// Records the heartbeat time in the node's status. Returns the time since the last sign of life.
    pub(super) fn record_status(&self, node: &str, reported: Option<&str>) -> Duration {
        let mut nodes = self.lock();
        let now = Instant::now();
        let last = nodes.entry(node.to_owned()).or_insert_with(|| LastHeartbeat {
            at: now,
            reported: reported.map(str::to_owned),
            unreachable: false,
        });
        if reported.is_some() && last.reported.as_deref() != reported {
            last.reported = reported.map(str::to_owned);
            last.at = now;
            last.unreachable = false;
        }
        now - last.at
    }

    pub(super) fn mark_unreachable(&self, node: &str) {
        if let Some(last) = self.lock().get_mut(node) {
            last.unreachable = true;
        }
    }

    pub(super) fn contains(&self, node: &str) -> bool {
        self.lock().contains_key(node)
    }

    pub(super) fn remove(&self, node: &str) -> bool {
        self.lock().remove(node).is_some()
    }
}

//! Tracks the live status of one controller, for debug pages, readiness and the CLI.

use std::{
    num::NonZeroUsize,
    sync::{Arc, OnceLock},
};

use tokio::sync::watch;

use crate::{
    key_tracker::KeyStatus,
    outcomes::OutcomeCounters,
    serving::{ControllerState, ControllerStatus, OutcomeCounts},
};

/// Live status of one controller, written by the controller.
pub(crate) struct StatusTracker {
    workers: NonZeroUsize,
    outcomes: Arc<OutcomeCounters>,
    state: watch::Sender<ControllerState>,
    /// Set when the controller starts.
    keys: OnceLock<Arc<dyn KeyStatus>>,
}

impl StatusTracker {
    pub(crate) fn new(workers: NonZeroUsize, outcomes: Arc<OutcomeCounters>) -> Self {
        Self {
            workers,
            outcomes,
            state: watch::Sender::new(ControllerState::Starting),
            keys: OnceLock::new(),
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

    pub(crate) fn set_keys(&self, keys: Arc<dyn KeyStatus>) {
        // Set only once: a controller runs once.
        let _ = self.keys.set(keys);
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
        let mut status = ControllerStatus {
            name: name.to_owned(),
            state: self.state.borrow().clone(),
            workers: self.workers.get(),
            outcomes: OutcomeCounts {
                done: self.outcomes.done(),
                requeued: self.outcomes.requeued(),
                failed: self.outcomes.failed(),
                terminal: self.outcomes.terminal(),
                panicked: self.outcomes.panicked(),
                timed_out: self.outcomes.timed_out(),
            },
            ..ControllerStatus::default()
        };
        if let Some(keys) = self.keys.get() {
            keys.add_to(&mut status);
        }
        status
    }
}

fn is_ready(state: &ControllerState) -> bool {
    !matches!(state, ControllerState::Starting | ControllerState::Syncing { .. })
}

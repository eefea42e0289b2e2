//! Tracks the live status of one controller, for debug pages, readiness and the CLI.

use std::{
    num::NonZeroUsize,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    key_tracker::KeyStatus,
    outcomes::OutcomeCounters,
    serving::{ControllerState, ControllerStatus, OutcomeCounts},
    source::WaitsFor,
    start_report::{DeclarativeWrites, Required, RequiredKind},
};

/// Live status of one controller, written by the controller.
pub(crate) struct StatusTracker {
    workers: NonZeroUsize,
    outcomes: Arc<OutcomeCounters>,
    state: watch::Sender<ControllerState>,
    /// Set when the controller starts.
    keys: OnceLock<Arc<dyn KeyStatus>>,
    /// What it needs, to report what is missing.
    required: Mutex<Required>,
}

impl StatusTracker {
    pub(crate) fn new(workers: NonZeroUsize, outcomes: Arc<OutcomeCounters>) -> Self {
        Self {
            workers,
            outcomes,
            state: watch::Sender::new(ControllerState::Starting),
            keys: OnceLock::new(),
            required: Mutex::default(),
        }
    }

    pub(crate) fn set_state(&self, state: ControllerState) {
        self.state.send_replace(state);
    }

    /// Sets what the controller waits for before it starts, and what the runtime will write for it. The first source of a
    /// declarative controller is its own kind.
    pub(crate) fn start_syncing(&self, sources: Vec<WaitsFor>, writes: Option<DeclarativeWrites>) {
        self.set_state(ControllerState::Syncing {
            waiting_for: sources.iter().map(|source| source.name().to_owned()).collect(),
            blocked_by: None,
        });
        let (mut kinds, mut custom) = (Vec::new(), Vec::new());
        for source in sources {
            match source {
                WaitsFor::Kind(required) => kinds.push(required),
                WaitsFor::CustomSource(watched) => custom.push(watched),
            }
        }
        let mut rights = writes.map(|writes| writes.rights(&kinds)).unwrap_or_default();
        for (resource, verbs) in kinds.iter().flat_map(RequiredKind::read_rights) {
            rights.entry(resource).or_default().extend(verbs);
        }
        *self.required.lock() = Required {
            kinds,
            custom,
            rights,
        };
    }

    /// Releases the caches that were only kept for the report of what is missing.
    pub(crate) fn end_syncing(&self) {
        let mut required = self.required.lock();
        required.kinds.clear();
        required.custom.drain(..).for_each(|watched| watched.clear());
    }

    pub(crate) fn with_required<T>(&self, act: impl FnOnce(&Required) -> T) -> T {
        act(&self.required.lock())
    }

    /// Sets what keeps the controller from starting until a person acts.
    pub(crate) fn set_blocked(&self, by: Option<String>) {
        self.state.send_if_modified(|state| {
            let ControllerState::Syncing { blocked_by, .. } = state else {
                return false;
            };
            let changed = *blocked_by != by;
            *blocked_by = by;
            changed
        });
    }

    pub(crate) fn waiting_for(&self) -> Vec<String> {
        match &*self.state.borrow() {
            ControllerState::Syncing { waiting_for, .. } => waiting_for.clone(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        is_ready(&self.state.borrow())
    }

    /// Removes a synced kind from those the controller waits for.
    pub(crate) fn kind_synced(&self, kind: &str) {
        self.state.send_modify(|state| {
            if let ControllerState::Syncing { waiting_for, .. } = state
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

    /// Completes when the controller's caches have synced, or cannot sync before a person acts. Cancellation-safe.
    pub(crate) async fn ready_or_blocked(&self) {
        let mut state = self.state.subscribe();
        let _ = state
            .wait_for(|state| {
                let blocked = matches!(
                    state,
                    ControllerState::Syncing {
                        blocked_by: Some(_),
                        ..
                    }
                );
                blocked || is_ready(state)
            })
            .await;
    }

    /// Why the controller is not ready; `None` if it is.
    pub(crate) fn not_ready_reason(&self, name: &str) -> Option<String> {
        let state = self.state.borrow();
        match &*state {
            state if is_ready(state) => None,
            ControllerState::Syncing {
                blocked_by: Some(missing),
                ..
            } => Some(format!("controller `{name}` cannot start: {missing}")),
            ControllerState::Syncing { waiting_for, .. } => Some(format!(
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

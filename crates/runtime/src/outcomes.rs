//! Counts a controller's reconciles by outcome.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use serde::Serialize;

/// Reconcile counters of one controller, from [`Controller::outcomes`](crate::Controller::outcomes).
#[derive(Debug, Default)]
pub struct OutcomeCounters {
    counts: [AtomicU64; ReconcileOutcome::ALL.len()],
}

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum ReconcileOutcome {
    /// It succeeded.
    Done,
    /// It succeeded and asked to run again later.
    Requeued,
    /// It failed and is retried.
    Failed,
    /// It failed with a terminal error and is not retried.
    Terminal,
    /// It panicked and is retried.
    Panicked,
    /// It took longer than the controller's [timeout](crate::Controller::timeout) and is retried.
    TimedOut,
}

impl ReconcileOutcome {
    pub(crate) const ALL: [Self; 6] = [
        Self::Done,
        Self::Requeued,
        Self::Failed,
        Self::Terminal,
        Self::Panicked,
        Self::TimedOut,
    ];
}

impl fmt::Display for ReconcileOutcome {
    /// A short label, such as `timed out`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Requeued => "requeued",
            Self::Failed => "failed",
            Self::Terminal => "terminal",
            Self::Panicked => "panicked",
            Self::TimedOut => "timed out",
        })
    }
}

impl OutcomeCounters {
    /// Number of reconciles with this outcome.
    pub fn get(&self, outcome: ReconcileOutcome) -> u64 {
        self.counts[outcome as usize].load(Ordering::Relaxed)
    }

    /// Reconciles that returned [`Action::done`](crate::Action::done).
    pub fn done(&self) -> u64 {
        self.get(ReconcileOutcome::Done)
    }

    /// Reconciles that asked to run again later.
    pub fn requeued(&self) -> u64 {
        self.get(ReconcileOutcome::Requeued)
    }

    /// Reconciles that failed and are retried, without panics and timeouts.
    pub fn failed(&self) -> u64 {
        self.get(ReconcileOutcome::Failed)
    }

    /// Reconciles that failed with a terminal error.
    pub fn terminal(&self) -> u64 {
        self.get(ReconcileOutcome::Terminal)
    }

    /// Reconciles that panicked and are retried.
    pub fn panicked(&self) -> u64 {
        self.get(ReconcileOutcome::Panicked)
    }

    /// Reconciles that timed out and are retried.
    pub fn timed_out(&self) -> u64 {
        self.get(ReconcileOutcome::TimedOut)
    }

    pub(crate) fn count(&self, outcome: ReconcileOutcome) {
        self.counts[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }
}

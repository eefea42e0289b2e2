//! How a controller's reconciles ended, counted.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use serde::Serialize;

/// Counters of one controller, from [`Controller::outcomes`](crate::Controller::outcomes).
#[derive(Debug, Default)]
pub struct Outcomes {
    counts: [AtomicU64; Outcome::ALL.len()],
}

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Outcome {
    /// It worked.
    Done,
    /// It worked and asked to run again later.
    Requeued,
    /// It failed and is retried.
    Failed,
    /// It failed for good.
    Terminal,
    /// It panicked and is retried.
    Panicked,
    /// It took longer than the controller's [timeout](crate::Controller::timeout) and is retried.
    TimedOut,
}

impl Outcome {
    pub(crate) const ALL: [Self; 6] = [
        Self::Done,
        Self::Requeued,
        Self::Failed,
        Self::Terminal,
        Self::Panicked,
        Self::TimedOut,
    ];
}

impl fmt::Display for Outcome {
    /// In a word or two, for people.
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

impl Outcomes {
    /// How many reconciles ended like this.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.counts[outcome as usize].load(Ordering::Relaxed)
    }

    /// Reconciles that returned [`Action::done`](crate::Action::done).
    pub fn done(&self) -> u64 {
        self.of(Outcome::Done)
    }

    /// Reconciles that asked to run again later.
    pub fn requeued(&self) -> u64 {
        self.of(Outcome::Requeued)
    }

    /// Reconciles that failed and are retried; panics and timeouts are not in this number.
    pub fn failed(&self) -> u64 {
        self.of(Outcome::Failed)
    }

    /// Reconciles that failed for good.
    pub fn terminal(&self) -> u64 {
        self.of(Outcome::Terminal)
    }

    /// Reconciles that panicked and are retried.
    pub fn panicked(&self) -> u64 {
        self.of(Outcome::Panicked)
    }

    /// Reconciles that took too long and are retried.
    pub fn timed_out(&self) -> u64 {
        self.of(Outcome::TimedOut)
    }

    pub(crate) fn count(&self, outcome: Outcome) {
        self.counts[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }
}

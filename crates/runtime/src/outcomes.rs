//! How a controller's reconciles ended, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one controller, from [`Controller::outcomes`](crate::Controller::outcomes).
#[derive(Debug, Default)]
pub struct Outcomes {
    done: AtomicU64,
    requeued: AtomicU64,
    failed: AtomicU64,
    terminal: AtomicU64,
    panicked: AtomicU64,
}

impl Outcomes {
    /// Reconciles that returned [`Action::done`](crate::Action::done).
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Reconciles that asked to run again later.
    pub fn requeued(&self) -> u64 {
        self.requeued.load(Ordering::Relaxed)
    }

    /// Reconciles that failed and are retried; panics are not in this number.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Reconciles that failed for good.
    pub fn terminal(&self) -> u64 {
        self.terminal.load(Ordering::Relaxed)
    }

    /// Reconciles that panicked and are retried.
    pub fn panicked(&self) -> u64 {
        self.panicked.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Done => &self.done,
            Outcome::Requeued => &self.requeued,
            Outcome::Failed => &self.failed,
            Outcome::Terminal => &self.terminal,
            Outcome::Panicked => &self.panicked,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    Done,
    Requeued,
    Failed,
    Terminal,
    Panicked,
}

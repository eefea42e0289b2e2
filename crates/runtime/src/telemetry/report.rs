//! Counts what is lost.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::config::Signal;
use crate::metrics::{Metrics, Reading};

/// What was lost since the start.
#[derive(Debug, Default)]
pub(super) struct Losses {
    spans: [AtomicU64; DropReason::ALL.len()],
    /// Failed requests.
    failures: [AtomicU64; 2],
}

/// Why a span was dropped.
#[derive(Clone, Copy, Debug)]
pub(super) enum DropReason {
    /// More spans ended than were sent, for example because the collector is down.
    QueueFull,
    /// The collector does not want it.
    Rejected,
    /// The program stopped before it was sent.
    Stopped,
}

impl DropReason {
    const ALL: [Self; 3] = [Self::QueueFull, Self::Rejected, Self::Stopped];

    fn label(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Rejected => "rejected",
            Self::Stopped => "stopped",
        }
    }
}

impl Losses {
    pub(super) fn count_spans(&self, reason: DropReason, spans: u64) {
        self.spans[reason as usize].fetch_add(spans, Ordering::Relaxed);
    }

    pub(super) fn count_failure(&self, signal: Signal) {
        self.failures[signal as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// All dropped spans.
    pub(super) fn spans(&self) -> u64 {
        let spans = self.spans.iter();
        spans.map(|dropped| dropped.load(Ordering::Relaxed)).sum()
    }
}

/// Adds the counters to `/metrics`.
pub(super) fn register(metrics: &Metrics, losses: &Arc<Losses>) {
    let spans = Arc::clone(losses);
    metrics.read_counter(
        "windlass_telemetry_dropped_spans",
        "Spans that were not exported, by reason",
        move || {
            DropReason::ALL.map(|reason| {
                let dropped = spans.spans[reason as usize].load(Ordering::Relaxed);
                Reading::new(dropped).label("reason", reason.label())
            })
        },
    );
    let failures = Arc::clone(losses);
    metrics.read_counter(
        "windlass_telemetry_failed_exports",
        "Requests to the collector that failed, by signal",
        move || {
            [Signal::Traces, Signal::Metrics].map(|signal| {
                let failed = failures.failures[signal as usize].load(Ordering::Relaxed);
                Reading::new(failed).label("signal", signal.name())
            })
        },
    );
}

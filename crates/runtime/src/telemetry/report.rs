//! Counts what is lost, and logs it at growing intervals.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

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

/// When a problem is logged again for the first time, and the longest time between two lines.
const FIRST_REPEAT: Duration = Duration::from_secs(10);
const LONGEST_REPEAT: Duration = Duration::from_mins(10);

/// Decides which problems are logged: the first at once, later ones at growing intervals.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// When the last line was logged, and how long it silences others.
    last: Option<(Instant, Duration)>,
}

impl Repeats {
    /// Whether a problem at this time is logged.
    pub(super) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let silence = match self.last {
            None => FIRST_REPEAT,
            Some((logged, silence)) if now < logged + silence => return false,
            Some((_, silence)) => (2 * silence).min(LONGEST_REPEAT),
        };
        self.last = Some((now, silence));
        true
    }

    /// There is no problem now. The next one counts as the first again, unless a line was just logged.
    pub(super) fn solved(&mut self) {
        if self
            .last
            .is_some_and(|(logged, silence)| logged.elapsed() >= silence)
        {
            self.last = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lasting_problem_is_logged_at_growing_intervals() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        let mut logged = Vec::new();
        for _ in 0..3600 {
            if repeats.is_due() {
                logged.push(start.elapsed().as_secs());
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(logged, [0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030]);
        repeats.solved();
        assert!(!repeats.is_due(), "a line was just logged");
        tokio::time::advance(LONGEST_REPEAT).await;
        repeats.solved();
        assert!(repeats.is_due(), "a new problem");
        tokio::time::advance(FIRST_REPEAT).await;
        assert!(repeats.is_due(), "the intervals start again");
    }
}

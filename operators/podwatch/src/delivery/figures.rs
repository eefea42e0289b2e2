//! What a sink's lane counts, and how a scrape sees it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use windlass::runtime::metrics::{Metrics, Reading};

use super::lane::Lane;

/// Counters of one sink.
#[derive(Debug, Default)]
pub(super) struct Counts {
    delivered: AtomicU64,
    retried: AtomicU64,
    refused: AtomicU64,
    coalesced: AtomicU64,
    full: AtomicU64,
    retries: AtomicU64,
    stopped: AtomicU64,
}

/// What became of the notices of one sink, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Notices that wait.
    pub queued: usize,
    /// Notices that arrived.
    pub delivered: u64,
    /// Attempts that failed and are made again.
    pub retried: u64,
    /// Notices that the sink does not want.
    pub refused: u64,
    /// Notices that waited and were replaced by a newer one of the same object.
    pub coalesced: u64,
    /// Notices that there was no room for. The object's state is told later, if it is still there.
    pub dropped_full: u64,
    /// Notices that were given up after as many retries as allowed.
    pub dropped_retries: u64,
    /// Notices that came after the stop.
    pub dropped_stopped: u64,
}

type Figure = fn(&Counts) -> &AtomicU64;

macro_rules! count {
    ($($name:ident),*) => {
        impl Counts {
            $(pub(super) fn $name(&self) {
                self.$name.fetch_add(1, Relaxed);
            })*
        }
    };
}

count!(delivered, retried, refused, coalesced, full, retries, stopped);

impl Lane {
    pub(super) fn figures(&self) -> Figures {
        let counts = &self.counts;
        Figures {
            queued: self.backlog().0,
            delivered: counts.delivered.load(Relaxed),
            retried: counts.retried.load(Relaxed),
            refused: counts.refused.load(Relaxed),
            coalesced: counts.coalesced.load(Relaxed),
            dropped_full: counts.full.load(Relaxed),
            dropped_retries: counts.retries.load(Relaxed),
            dropped_stopped: counts.stopped.load(Relaxed),
        }
    }
}

/// Shows the sinks' figures among these metrics.
pub(super) fn show(metrics: &Metrics, lanes: &[Arc<Lane>]) {
    let read = |figure: fn(&Lane) -> f64| {
        let lanes = lanes.to_vec();
        move || -> Vec<_> {
            let lanes = lanes.iter();
            lanes
                .map(|lane| Reading::new(figure(lane)).label("sink", &*lane.name))
                .collect()
        }
    };
    metrics.read_gauge(
        "windlass_podwatch_sink_queued",
        "Objects that a notice waits for",
        #[expect(clippy::cast_precision_loss, reason = "a chart does not show the 53rd bit")]
        read(|lane| lane.backlog().0 as f64),
    );
    metrics.read_gauge(
        "windlass_podwatch_sink_oldest_seconds",
        "How long the oldest notice has waited",
        read(|lane| lane.backlog().1.as_secs_f64()),
    );
    metrics.read_gauge(
        "windlass_podwatch_sink_up",
        "Whether the last attempt to deliver worked",
        read(|lane| f64::from(u8::from(lane.trouble().is_none()))),
    );
    let count = |name, help, figure: Figure| {
        let lanes = lanes.to_vec();
        metrics.read_counter(name, help, move || -> Vec<_> {
            let lanes = lanes.iter();
            lanes
                .map(|lane| Reading::new(figure(&lane.counts).load(Relaxed)).label("sink", &*lane.name))
                .collect()
        });
    };
    count(
        "windlass_podwatch_sink_delivered",
        "Notices that arrived",
        |counts| &counts.delivered,
    );
    count(
        "windlass_podwatch_sink_retried",
        "Attempts that failed and are made again",
        |counts| &counts.retried,
    );
    count(
        "windlass_podwatch_sink_refused",
        "Notices that the sink does not want",
        |counts| &counts.refused,
    );
    count(
        "windlass_podwatch_sink_coalesced",
        "Notices that waited and were replaced by a newer one of the same object",
        |counts| &counts.coalesced,
    );
    let lanes = lanes.to_vec();
    metrics.read_counter(
        "windlass_podwatch_sink_dropped",
        "Notices that were not delivered: no room (told later if still so), too many retries, or too late",
        move || -> Vec<_> {
            let reasons: [(_, Figure); 3] = [
                ("queue_full", |counts| &counts.full),
                ("retries", |counts| &counts.retries),
                ("stopped", |counts| &counts.stopped),
            ];
            let lanes = lanes.iter();
            lanes
                .flat_map(|lane| {
                    reasons.map(|(reason, figure)| {
                        let count = figure(&lane.counts).load(Relaxed);
                        Reading::new(count)
                            .label("sink", &*lane.name)
                            .label("reason", reason)
                    })
                })
                .collect()
        },
    );
}

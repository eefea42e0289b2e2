//! Statistics and metrics of the sinks.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use windlass::runtime::metrics::{Metrics, Reading};

use super::sink_queue::SinkQueue;

#[derive(Debug, Default)]
pub(super) struct SinkCounters {
    delivered: AtomicU64,
    retried: AtomicU64,
    refused: AtomicU64,
    coalesced: AtomicU64,
    full: AtomicU64,
    retries: AtomicU64,
    stopped: AtomicU64,
}

/// Statistics of one sink since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkStats {
    /// Objects with waiting notices.
    pub queued: usize,
    /// Notices delivered.
    pub delivered: u64,
    /// Failed attempts that are retried.
    pub retried: u64,
    /// Notices that the sink rejected.
    pub rejected: u64,
    /// Waiting notices that a newer one of the same object replaced.
    pub coalesced: u64,
    /// Notices dropped because the queue was full. The object's state is sent later, if it still exists.
    pub dropped_full: u64,
    /// Notices dropped after the maximum number of retries.
    pub dropped_retries: u64,
    /// Notices dropped because they came after the stop.
    pub dropped_stopped: u64,
}

type CounterField = fn(&SinkCounters) -> &AtomicU64;

macro_rules! count {
    ($($name:ident),*) => {
        impl SinkCounters {
            $(pub(super) fn $name(&self) {
                self.$name.fetch_add(1, Relaxed);
            })*
        }
    };
}

count!(delivered, retried, refused, coalesced, full, retries, stopped);

impl SinkQueue {
    pub(super) fn stats(&self) -> SinkStats {
        let counts = &self.counts;
        SinkStats {
            queued: self.backlog().0,
            delivered: counts.delivered.load(Relaxed),
            retried: counts.retried.load(Relaxed),
            rejected: counts.refused.load(Relaxed),
            coalesced: counts.coalesced.load(Relaxed),
            dropped_full: counts.full.load(Relaxed),
            dropped_retries: counts.retries.load(Relaxed),
            dropped_stopped: counts.stopped.load(Relaxed),
        }
    }
}

pub(super) fn register_metrics(metrics: &Metrics, queues: &[Arc<SinkQueue>]) {
    let read = |figure: fn(&SinkQueue) -> f64| {
        let queues = queues.to_vec();
        move || -> Vec<_> {
            let queues = queues.iter();
            queues
                .map(|queue| Reading::new(figure(queue)).label("sink", &*queue.name))
                .collect()
        }
    };
    metrics.read_gauge(
        "windlass_podwatch_sink_queued",
        "Objects with waiting notices",
        #[expect(clippy::cast_precision_loss, reason = "a chart does not show the 53rd bit")]
        read(|queue| queue.backlog().0 as f64),
    );
    metrics.read_gauge(
        "windlass_podwatch_sink_oldest_seconds",
        "Age of the oldest waiting notice",
        read(|queue| queue.backlog().1.as_secs_f64()),
    );
    metrics.read_gauge(
        "windlass_podwatch_sink_up",
        "Whether the last delivery attempt succeeded",
        read(|queue| f64::from(u8::from(queue.last_error().is_none()))),
    );
    let count = |name, help, figure: CounterField| {
        let queues = queues.to_vec();
        metrics.read_counter(name, help, move || -> Vec<_> {
            let queues = queues.iter();
            queues
                .map(|queue| Reading::new(figure(&queue.counts).load(Relaxed)).label("sink", &*queue.name))
                .collect()
        });
    };
    count(
        "windlass_podwatch_sink_delivered",
        "Notices delivered",
        |counts| &counts.delivered,
    );
    count(
        "windlass_podwatch_sink_retried",
        "Failed attempts that are retried",
        |counts| &counts.retried,
    );
    count(
        "windlass_podwatch_sink_rejected",
        "Notices that the sink rejected",
        |counts| &counts.refused,
    );
    count(
        "windlass_podwatch_sink_coalesced",
        "Waiting notices that a newer one of the same object replaced",
        |counts| &counts.coalesced,
    );
    let queues = queues.to_vec();
    metrics.read_counter(
        "windlass_podwatch_sink_dropped",
        "Notices not delivered: the queue was full (the object's state is sent later), too many retries, or after the stop",
        move || -> Vec<_> {
            let reasons: [(_, CounterField); 3] = [
                ("queue_full", |counts| &counts.full),
                ("retries_exhausted", |counts| &counts.retries),
                ("stopped", |counts| &counts.stopped),
            ];
            let queues = queues.iter();
            queues
                .flat_map(|queue| {
                    reasons.map(|(reason, figure)| {
                        let count = figure(&queue.counts).load(Relaxed);
                        Reading::new(count)
                            .label("sink", &*queue.name)
                            .label("reason", reason)
                    })
                })
                .collect()
        },
    );
}

//! Metrics of a queue: a trait with one method per metric, so that the crate needs no metrics library.

use std::time::Duration;

use crate::Priority;

/// Receives the metrics of one queue. Each method documents its metric; the constants are the names that dashboards
/// use.
///
/// An implementation adds the labels (`name`, `controller`) itself. Every method does nothing by default. They are
/// called under the queue's lock, in the order of events: be fast (set an atomic), and do not use the queue or panic.
pub trait Metrics: Send + Sync + 'static {
    /// [`DEPTH`], labelled with the priority: this many keys of it are pending now. A key that was added while being
    /// processed counts as well, as in client-go. Zero is reported once when the last one leaves.
    fn depth(&self, priority: Priority, depth: usize) {
        let _ = (priority, depth);
    }
    /// [`ADDS`]: a key became pending. Adds of a key that is pending already do not count; a delayed add counts when it
    /// is due.
    fn added(&self) {}
    /// [`QUEUE_DURATION`]: a run started after the key was pending for this long.
    fn started(&self, queued: Duration) {
        let _ = queued;
    }
    /// [`WORK_DURATION`]: a run ended after this long, whatever its outcome.
    fn finished(&self, worked: Duration) {
        let _ = worked;
    }
    /// [`RETRIES`]: a key was delayed, by a failure or by an add.
    fn retried(&self) {}
    /// [`DROPPED`]: a key failed more often than `max_retries` allows and was dropped.
    fn dropped(&self) {}
    /// [`UNFINISHED_WORK`] and [`LONGEST_RUNNING`]: how long the current runs have lasted, in total and the longest.
    /// They change with time alone, so only [`report_metrics`](crate::WorkQueue::report_metrics) reports them, before a
    /// scrape.
    fn running(&self, unfinished: Duration, longest: Duration) {
        let _ = (unfinished, longest);
    }
}

/// Gauge: pending keys, by priority.
pub const DEPTH: &str = "workqueue_depth";
/// Counter: keys that became pending.
pub const ADDS: &str = "workqueue_adds_total";
/// Histogram, with [`DURATION_BUCKETS`]: from pending to the start of the run.
pub const QUEUE_DURATION: &str = "workqueue_queue_duration_seconds";
/// Histogram, with [`DURATION_BUCKETS`]: duration of runs.
pub const WORK_DURATION: &str = "workqueue_work_duration_seconds";
/// Gauge: total duration of the current runs.
pub const UNFINISHED_WORK: &str = "workqueue_unfinished_work_seconds";
/// Gauge: duration of the longest current run.
pub const LONGEST_RUNNING: &str = "workqueue_longest_running_processor_seconds";
/// Counter: keys that were delayed.
pub const RETRIES: &str = "workqueue_retries_total";
/// Counter: keys dropped. client-go has no such metric: it leaves retry limits to each controller.
pub const DROPPED: &str = "workqueue_dropped_total";

/// Upper bounds in seconds, 10 ns to 1000 s, as in controller-runtime's histograms.
pub const DURATION_BUCKETS: [f64; 12] = [
    1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0,
];

//! What a queue tells about itself: a trait with one method per figure, so that the crate needs no metrics library.

use std::time::Duration;

use crate::Priority;

/// Receives a queue's figures. Each method names the metric that dashboards know it by; the constants hold the names.
///
/// A sink serves one queue and adds the labels (`name`, `controller`) itself. Every method does nothing unless written.
/// They are called under the queue's lock, so that their order is the order of events: be quick (set an atomic), and do
/// not use the queue or panic.
pub trait Metrics: Send + Sync + 'static {
    /// [`DEPTH`], labelled with the priority: this many keys of it are waiting to be taken now. A key that was added
    /// while in a worker's hand counts as well, as in client-go. Zero is reported once when the last one goes.
    fn depth(&self, priority: Priority, depth: usize) {
        let _ = (priority, depth);
    }
    /// [`ADDS`]: a key came to be wanted. Adds of a key that is wanted already do not count; a delayed one counts when
    /// it is due.
    fn added(&self) {}
    /// [`QUEUE_DURATION`]: a key was taken after having been wanted this long.
    fn taken(&self, queued: Duration) {
        let _ = queued;
    }
    /// [`WORK_DURATION`]: a key was in a worker's hand for this long, however it ended.
    fn ended(&self, worked: Duration) {
        let _ = worked;
    }
    /// [`RETRIES`]: a key was put back with a delay, by a failure or by an add.
    fn retried(&self) {}
    /// [`DROPPED`]: a key failed more often than `max_retries` allows and was given up.
    fn dropped(&self) {}
    /// [`UNFINISHED_WORK`] and [`LONGEST_RUNNING`]: how long the keys in workers' hands have been there, all of them
    /// together and the longest. Changes with time alone, so it is told when
    /// [`report_metrics`](crate::WorkQueue::report_metrics) asks for it, just before a scrape.
    fn running(&self, unfinished: Duration, longest: Duration) {
        let _ = (unfinished, longest);
    }
}

/// Gauge: keys waiting, by priority.
pub const DEPTH: &str = "workqueue_depth";
/// Counter: keys that came to be wanted.
pub const ADDS: &str = "workqueue_adds_total";
/// Histogram, with [`DURATION_BUCKETS`]: from wanted to taken.
pub const QUEUE_DURATION: &str = "workqueue_queue_duration_seconds";
/// Histogram, with [`DURATION_BUCKETS`]: from taken to ended.
pub const WORK_DURATION: &str = "workqueue_work_duration_seconds";
/// Gauge: how long the keys being worked on have been, summed.
pub const UNFINISHED_WORK: &str = "workqueue_unfinished_work_seconds";
/// Gauge: how long the slowest of them has been.
pub const LONGEST_RUNNING: &str = "workqueue_longest_running_processor_seconds";
/// Counter: keys put back with a delay.
pub const RETRIES: &str = "workqueue_retries_total";
/// Counter: keys given up. Not known to client-go, which leaves retry limits to each controller.
pub const DROPPED: &str = "workqueue_dropped_total";

/// Upper bounds in seconds, 10 ns to 1000 s: the ones of controller-runtime's histograms.
pub const DURATION_BUCKETS: [f64; 12] = [
    1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0,
];

//! The worker of one sink: delivers the waiting notices, several at a time if the sink allows it, each of another object.
//!
//! ```text
//!   pause, if the sink is down ─► rate limit ─► next object ─► attempt ─┬─► delivered ─► commit when idle ─► confirmed
//!        ▲                                      (concurrent)            ├─► rejected: not retried
//!        └──── several in a row ────────────────────────────────────────┴─► failed: retried on its own, or given up
//! ```

use std::{sync::Arc, time::Duration};

use futures::stream::{FuturesUnordered, StreamExt};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use windlass::workqueue::{RetryDecision, WorkItem};

use super::{
    journal_writer::JournalWriter,
    pace::Pace,
    sink_queue::{Next, SinkQueue, Target},
};
use crate::{
    notice::Notice,
    sinks::{DeliveryError, Sink},
};

/// The maximum number of deliveries per commit.
const MAX_COMMIT_BATCH: usize = 500;

/// The longest time until a commit, while other deliveries are in flight.
const MAX_COMMIT_DELAY: Duration = Duration::from_secs(1);

/// How often a persisting error is logged.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Delivers until the queue is closed, and then what is left, until the sink fails.
pub(super) struct Worker {
    queue: Arc<SinkQueue>,
    sink: Arc<dyn Sink>,
    journal_writer: Arc<JournalWriter>,
    pace: Pace<Target>,
    /// When the next delivery may start, if it was reserved.
    reserved: Option<Instant>,
    /// Objects of which more notices wait, after the queue was closed and accepts none. At most the limit of concurrency.
    unfinished: Vec<WorkItem<Target>>,
    /// When to commit at the latest, if there is something to commit.
    commit_at: Option<Instant>,
    failure_logged: Option<Instant>,
    rejection_logged: Option<Instant>,
}

/// The end of an attempt; without a notice if none waited.
struct Attempt {
    item: WorkItem<Target>,
    delivery: Option<(Arc<Notice>, Result<(), DeliveryError>)>,
}

impl Worker {
    pub(super) fn new(
        queue: Arc<SinkQueue>,
        sink: Arc<dyn Sink>,
        journal_writer: Arc<JournalWriter>,
    ) -> Self {
        let pace = Pace::new(queue.limits.rate);
        Self {
            queue,
            sink,
            journal_writer,
            pace,
            reserved: None,
            unfinished: Vec::new(),
            commit_at: None,
            failure_logged: None,
            rejection_logged: None,
        }
    }

    /// Returns after the queue is closed. Dropping it loses nothing: unconfirmed notices are sent again after a restart.
    pub(super) async fn run(mut self, closing: Arc<Notify>) {
        let mut closed = std::pin::pin!(closing.notified());
        closed.as_mut().enable();
        let mut attempts = FuturesUnordered::new();
        let (mut is_closed, mut is_drained) = (false, false);
        loop {
            // An always-ready sink must not starve other tasks.
            tokio::task::consume_budget().await;
            for behind in self.queue.take_due_catch_ups() {
                self.queue.catch_up(behind).await;
            }
            if !is_closed && self.queue.workqueue.is_closed() {
                is_closed = true;
                self.pace.end_pause();
            }
            // More notices of an object in flight may wait, although the queue has nothing left.
            let is_flushed = is_drained && self.unfinished.is_empty();
            let is_down = is_closed && self.pace.paused_until().is_some();
            if (is_flushed || is_down) && attempts.is_empty() {
                break;
            }
            let concurrency = if self.pace.is_probing() {
                1
            } else {
                self.queue.limits.concurrency.get()
            };
            let may_start = !is_flushed && !is_down && attempts.len() < concurrency;
            let queue = Arc::clone(&self.queue);
            let commit_at = self.commit_at;
            tokio::select! {
                Some(attempt) = attempts.next() => self.record(attempt),
                item = self.next_item(), if may_start => match item {
                    Some(item) => attempts.push(attempt(
                        Arc::clone(&self.queue),
                        Arc::clone(&self.sink),
                        Arc::clone(&self.journal_writer),
                        item,
                    )),
                    None => is_drained = true,
                },
                () = queue.catch_up_requested.notified() => {}
                () = sleep_until(commit_at.unwrap_or_else(Instant::now)), if commit_at.is_some() => {}
                () = &mut closed, if !is_closed => {}
            }
            // Deliveries are recorded by this task alone, so that none is confirmed that ended after the commit began.
            let is_idle =
                attempts.is_empty() && self.queue.workqueue.is_empty() && self.unfinished.is_empty();
            let is_due = self.commit_at.is_some_and(|at| at <= Instant::now());
            let is_enough = self.pace.is_probing_commits() || self.queue.uncommitted() >= MAX_COMMIT_BATCH;
            if is_idle || is_due || is_enough {
                self.commit().await;
            }
        }
        self.commit().await;
    }

    /// The next object to deliver a notice of, when the pause and the rate limit allow it; `None` if the queue is closed and
    /// empty. Cancellation-safe.
    async fn next_item(&mut self) -> Option<WorkItem<Target>> {
        if let Some(until) = self.pace.paused_until() {
            sleep_until(until).await;
            self.pace.end_pause();
        }
        let start = match self.reserved {
            Some(start) => start,
            None => *self.reserved.insert(Instant::now() + self.pace.reserve()),
        };
        if start > Instant::now() {
            sleep_until(start).await;
        }
        let item = match self.unfinished.pop() {
            Some(item) => Some(item),
            None => self.queue.workqueue.next().await,
        };
        self.reserved = None;
        item
    }

    fn record(&mut self, Attempt { item, delivery }: Attempt) {
        let Some((notice, result)) = delivery else {
            return item.done();
        };
        match result {
            Ok(()) => {
                let more = self.queue.delivered(&item, &notice);
                self.commit_at
                    .get_or_insert_with(|| Instant::now() + MAX_COMMIT_DELAY);
                if self.pace.delivered() {
                    self.log_recovery();
                    self.queue.end_all_backoffs();
                }
                self.finish(item, more);
            }
            Err(DeliveryError::Rejected { reason }) => {
                self.queue.counts.refused();
                let more = self.queue.give_up(&item, &notice);
                if is_due(&mut self.rejection_logged) {
                    let rejected = self.queue.stats().rejected;
                    tracing::warn!(sink = %self.queue.name, object = %notice.key, rejected, "the sink rejected a notice: it {reason}");
                }
                self.finish(item, more);
            }
            Err(error) => {
                self.pace.failed(&item, &error);
                self.log_failure(error.reason());
                let target = item.key().clone();
                match item.fail() {
                    RetryDecision::Dropped { failures } => {
                        self.queue.counts.retries();
                        if self.queue.give_up(&target, &notice) {
                            self.queue.requeue(&target);
                        }
                        tracing::warn!(sink = %self.queue.name, object = %notice.key, failures, "gave up on a notice after too many retries");
                    }
                    RetryDecision::Retry { .. } | RetryDecision::Closed => {
                        self.queue.counts.retried();
                        self.queue.failed(&target, error.reason());
                    }
                }
            }
        }
    }

    /// Ends the work on an object. If more notices of it wait, it is queued behind the other objects.
    fn finish(&mut self, item: WorkItem<Target>, more: bool) {
        if more && !self.queue.requeue(&item) {
            self.unfinished.push(item);
        } else {
            item.done();
        }
    }

    async fn commit(&mut self) {
        self.commit_at = None;
        if self.queue.uncommitted() == 0 {
            return;
        }
        match self.sink.commit().await {
            Ok(()) => {
                self.queue.committed();
                if self.pace.committed() {
                    self.log_recovery();
                    self.queue.end_all_backoffs();
                }
            }
            Err(error) => {
                self.log_failure(error.reason());
                self.pace.commit_failed();
                self.queue.discard_uncommitted(error.reason());
            }
        }
    }

    /// Logs a failure, unless one was logged recently.
    fn log_failure(&mut self, reason: &str) {
        if is_due(&mut self.failure_logged) {
            let (waiting, _) = self.queue.backlog();
            tracing::warn!(sink = %self.queue.name, waiting, "the sink fails and is retried: {reason}");
        }
    }

    /// Logs that the sink works again after a pause, if its failure was logged.
    fn log_recovery(&mut self) {
        if self.failure_logged.take().is_some() {
            tracing::info!(sink = %self.queue.name, "the sink works again");
        }
    }
}

/// Delivers the next notice of an object, once. The object is written to the journal first, if it is new to the sink.
async fn attempt(
    queue: Arc<SinkQueue>,
    sink: Arc<dyn Sink>,
    journal_writer: Arc<JournalWriter>,
    item: WorkItem<Target>,
) -> Attempt {
    let notice = loop {
        match queue.start_delivery(&item) {
            Next::Nothing => return Attempt { item, delivery: None },
            Next::WriteJournal => journal_writer.wait_until_written().await,
            Next::Deliver(notice) => break notice,
        }
    };
    let result = sink.deliver(&notice).await;
    Attempt {
        item,
        delivery: Some((notice, result)),
    }
}

/// Whether it is time to log again; if so, records that it was.
fn is_due(logged: &mut Option<Instant>) -> bool {
    let is_due = logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL);
    if is_due {
        *logged = Some(Instant::now());
    }
    is_due
}

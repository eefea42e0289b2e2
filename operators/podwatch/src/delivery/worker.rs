//! The worker of one sink: delivers the waiting notices, one at a time.
//!
//! ```text
//!   back off, if unavailable ─► next ─► rate limit ─► deliver ─┬─► delivered ─► commit when idle ─► confirmed
//!        ▲                                                     ├─► rejected: not retried
//!        └─────────────────────────────────────────────────────┴─► failed: retried, or given up
//! ```

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};
use windlass::workqueue::{RetryDecision, WorkItem};

use super::{
    journal_writer::JournalWriter,
    pace::Pace,
    sink_queue::{Next, SinkQueue, Target},
};
use crate::sinks::{DeliveryError, Sink};

/// The maximum number of deliveries per commit.
const MAX_COMMIT_BATCH: usize = 100;

/// How often a persisting error is logged.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Delivers until the queue is closed, and then what is left, until the sink fails.
pub(super) struct Worker {
    pub(super) queue: Arc<SinkQueue>,
    pub(super) sink: Box<dyn Sink>,
    journal_writer: Arc<JournalWriter>,
    pace: Pace<Target>,
    failure_logged: Option<Instant>,
    rejection_logged: Option<Instant>,
}

impl Worker {
    pub(super) fn new(
        queue: Arc<SinkQueue>,
        sink: Box<dyn Sink>,
        journal_writer: Arc<JournalWriter>,
    ) -> Self {
        let pace = Pace::new(queue.limits.rate);
        Self {
            queue,
            sink,
            journal_writer,
            pace,
            failure_logged: None,
            rejection_logged: None,
        }
    }

    /// Returns after the queue is closed. Dropping it loses nothing: unconfirmed notices are sent again after a restart.
    pub(super) async fn run(mut self, closing: Arc<Notify>) {
        let mut closed = std::pin::pin!(closing.notified());
        closed.as_mut().enable();
        loop {
            for behind in self.queue.take_due_catch_ups() {
                self.queue.catch_up(behind).await;
            }
            if let Some(until) = self.pace.backoff_until()
                && !self.queue.workqueue.is_closed()
            {
                tokio::select! {
                    () = sleep_until(until) => {}
                    () = &mut closed => {}
                }
            }
            self.pace.end_backoff();
            let taken = tokio::select! {
                taken = self.queue.workqueue.next() => taken,
                () = self.queue.catch_up_requested.notified() => continue,
            };
            let Some(taken) = taken else { break };
            if self.work_on(taken).await.is_err() && self.queue.workqueue.is_closed() {
                break;
            }
            if self.queue.workqueue.is_empty() || self.queue.uncommitted() >= MAX_COMMIT_BATCH {
                self.commit().await;
            }
        }
        self.commit().await;
    }

    /// Delivers what waits for one object. Fails if the sink does.
    async fn work_on(&mut self, taken: WorkItem<Target>) -> Result<(), ()> {
        // At most three notices of one name: a state, its deletion, and the next object.
        for _ in 0..3 {
            match self.queue.next(&taken) {
                Next::Nothing => break,
                Next::Notice => {}
                Next::WriteJournal => self.journal_writer.wait_until_written().await,
            }
            match self.pace.reserve() {
                // An always-ready sink must not starve other tasks.
                Duration::ZERO => tokio::task::consume_budget().await,
                wait => sleep(wait).await,
            }
            // Taken after the wait, to include newer changes. If they brought a new object, it has to be offered first.
            if self.queue.next(&taken) == Next::WriteJournal {
                self.journal_writer.wait_until_written().await;
            }
            let Some(notice) = self.queue.start_delivery(&taken) else {
                break;
            };
            match self.sink.deliver(&notice).await {
                Ok(()) => {
                    self.queue.delivered(&taken, &notice);
                    self.pace.delivered();
                }
                Err(DeliveryError::Rejected { reason }) => {
                    self.queue.counts.refused();
                    self.queue.give_up(&taken, &notice);
                    if is_due(&mut self.rejection_logged) {
                        let rejected = self.queue.stats().rejected;
                        tracing::warn!(sink = %self.queue.name, object = %notice.key, rejected, "the sink rejected a notice: it {reason}");
                    }
                }
                Err(error) => {
                    self.pace.failed(&taken, &error);
                    self.log_failure(error.reason());
                    let target = taken.key().clone();
                    match taken.fail() {
                        RetryDecision::Dropped { failures } => {
                            self.queue.counts.retries();
                            self.queue.give_up(&target, &notice);
                            tracing::warn!(sink = %self.queue.name, object = %notice.key, failures, "gave up on a notice after too many retries");
                        }
                        RetryDecision::Retry { .. } | RetryDecision::Closed => {
                            self.queue.counts.retried();
                            self.queue.failed(&target, error.reason());
                        }
                    }
                    return Err(());
                }
            }
        }
        taken.done();
        Ok(())
    }

    async fn commit(&mut self) {
        if self.queue.uncommitted() == 0 {
            return;
        }
        match self.sink.commit().await {
            Ok(()) => {
                self.queue.committed();
                if self.pace.committed() {
                    self.queue.end_all_backoffs();
                }
                if self.failure_logged.take().is_some() {
                    tracing::info!(sink = %self.queue.name, "the sink works again");
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
}

/// Whether it is time to log again; if so, records that it was.
fn is_due(logged: &mut Option<Instant>) -> bool {
    let is_due = logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL);
    if is_due {
        *logged = Some(Instant::now());
    }
    is_due
}

//! The worker loop: takes a key from the queue, reconciles it, and requeues or completes it.

use std::{any::Any, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio::time::Instant;
use tracing::Instrument;
use windlass_workqueue::{AddOptions, Priority, RetryDecision, WorkItem, WorkQueue};

use crate::{
    error::Error,
    key::ReconcileKey,
    key_tracker::KeyTracker,
    listers::Listers,
    metrics::ControllerMetrics,
    outcomes::{OutcomeCounters, ReconcileOutcome},
    own_objects::OwnObjects,
    reconcile::{Action, Context, ErasedReconciler, ReconcileId, Request, TermContext},
    stop::StopSignal,
};

/// State shared by the workers of one controller.
pub(crate) struct Worker<Key> {
    pub(crate) listers: Arc<Listers>,
    pub(crate) queue: WorkQueue<Key>,
    pub(crate) reconciler: Box<dyn ErasedReconciler<Key>>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) outcomes: Arc<OutcomeCounters>,
    pub(crate) metrics: ControllerMetrics,
    pub(crate) tracker: Arc<KeyTracker<Key>>,
    /// `None` without a kind.
    pub(crate) own_objects: Option<OwnObjects<Key>>,
}

enum AttemptResult {
    Returned(Result<Action, Error>),
    Panicked(Box<dyn Any + Send>),
    TimedOut(Duration),
}

impl<Key: ReconcileKey> Worker<Key> {
    /// Works until stopped; a running reconcile is finished first.
    pub(crate) async fn run(self: Arc<Self>, term: Arc<TermContext<Key>>, mut stop: StopSignal) {
        loop {
            // Yields to other tasks even if reconciles never wait.
            tokio::task::consume_budget().await;
            // The next start queues the remaining keys again.
            if stop.is_requested() {
                return;
            }
            // Fast path: while there is work, no waker is registered.
            let item = match self.queue.try_next() {
                Some(item) => Some(item),
                None => tokio::select! {
                    biased;
                    () = stop.requested() => return,
                    item = self.queue.next() => item,
                },
            };
            match item {
                Some(item) => self.reconcile(item, &term, &stop).await,
                None => return,
            }
        }
    }

    /// Queues every object of the controller's own kind with low priority, behind real changes.
    pub(crate) fn enqueue_all(&self) {
        let add = AddOptions {
            priority: Priority::LOW,
            ..AddOptions::default()
        };
        for key in self.own_objects.iter().flat_map(|own| (own.keys)()) {
            self.queue.add_with(key, add);
        }
    }

    async fn reconcile(&self, item: WorkItem<Key>, term: &Arc<TermContext<Key>>, stop: &StopSignal) {
        let id = ReconcileId::new();
        let controller = &self.listers.controller;
        let span = tracing::info_span!("reconcile", controller, object = %item.key(), %id);
        let request = Request {
            key: item.key().clone(),
        };
        let ctx = Context {
            term: Arc::clone(term),
            key: item.key().clone(),
            id,
            stop: stop.clone(),
        };
        let (entry, active) = (self.tracker.track(item.key(), id), self.metrics.start());
        // Includes the call itself: a closure may panic before it returns its future.
        let attempt = async {
            if let Some(own) = &self.own_objects {
                (own.check)(&request.key, &ctx.term.history).map_err(Error::terminal)?;
            }
            self.reconciler.reconcile_boxed(request, ctx).await
        };
        let ended = self.attempt(attempt).instrument(span.clone()).await;
        drop(active);
        let ran = entry.end();
        let outcome = span.in_scope(|| self.settle(item, ended));
        if let Some(ran) = ran {
            self.tracker.record_last(ran, outcome);
        }
        self.outcomes.count(outcome);
        self.metrics.count(outcome);
    }

    async fn attempt(&self, attempt: impl Future<Output = Result<Action, Error>> + Send) -> AttemptResult {
        let attempt = AssertUnwindSafe(attempt).catch_unwind();
        let ended = match self.timeout {
            None => attempt.await,
            Some(limit) => match tokio::time::timeout(limit, attempt).await {
                Ok(ended) => ended,
                Err(_) => return AttemptResult::TimedOut(limit),
            },
        };
        ended.map_or_else(AttemptResult::Panicked, AttemptResult::Returned)
    }

    fn settle(&self, mut item: WorkItem<Key>, ended: AttemptResult) -> ReconcileOutcome {
        let (outcome, error) = match ended {
            AttemptResult::Returned(Ok(action)) => {
                self.tracker.clear_failure(item.key());
                if let Some(priority) = action.priority {
                    item.set_priority(priority);
                }
                return match action.requeue_after {
                    None => {
                        item.done();
                        ReconcileOutcome::Done
                    }
                    Some(delay) => {
                        item.requeue_after(delay);
                        ReconcileOutcome::Requeued
                    }
                };
            }
            AttemptResult::Returned(Err(error)) if error.is_terminal() => {
                tracing::error!(%error, "reconcile failed with a terminal error; waiting for the next change");
                self.tracker.record_failure(item.key(), error.to_string(), None);
                item.give_up();
                return ReconcileOutcome::Terminal;
            }
            AttemptResult::Returned(Err(error)) => (ReconcileOutcome::Failed, error.to_string()),
            AttemptResult::Panicked(panic) => (
                ReconcileOutcome::Panicked,
                format!("panicked: {}", panic_message(&*panic)),
            ),
            AttemptResult::TimedOut(limit) => {
                (ReconcileOutcome::TimedOut, format!("timed out after {limit:?}"))
            }
        };
        let key = item.key().clone();
        let retry_at = match item.fail() {
            RetryDecision::Retry { after } => {
                tracing::warn!(error, retry_after = ?after, "reconcile failed; retrying");
                Some(Instant::now() + after)
            }
            RetryDecision::Dropped { failures } => {
                tracing::error!(
                    error,
                    failures,
                    "reconcile exceeded its retries; waiting for the next change"
                );
                None
            }
            RetryDecision::Closed => {
                tracing::warn!(
                    error,
                    "reconcile failed while stopping; the next start retries it"
                );
                None
            }
        };
        self.tracker.record_failure(&key, error, retry_at);
        outcome
    }
}

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic without a message")
}

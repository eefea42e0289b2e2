//! The worker loop: takes a key from the queue, reconciles it, and requeues or completes it.

use std::{any::Any, future::Future, panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio::time::Instant;
use tracing::{Instrument, field::Empty};
use windlass_workqueue::{Priority, RetryDecision, WorkItem};

use crate::{
    children::warning_reason,
    error::Error,
    events::Recorder,
    key::ReconcileKey,
    key_tracker::KeyTracker,
    listers::Listers,
    metrics::ControllerMetrics,
    outcomes::{OutcomeCounters, ReconcileOutcome},
    own_objects::OwnObjects,
    reconcile::{Action, Context, ErasedReconciler, ReconcileId, Request, Run, TermContext},
    text::truncate,
    trigger::{KeyQueue, Trigger, TriggerCause, enqueue},
};

#[cfg(feature = "opentelemetry")]
use crate::telemetry;

/// State shared by the workers of one controller.
pub(crate) struct Worker<Key> {
    pub(crate) listers: Arc<Listers>,
    pub(crate) queue: KeyQueue<Key>,
    pub(crate) reconciler: Box<dyn ErasedReconciler<Key>>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) outcomes: Arc<OutcomeCounters>,
    pub(crate) metrics: ControllerMetrics,
    pub(crate) tracker: Arc<KeyTracker<Key>>,
    /// `None` without a kind.
    pub(crate) own_objects: Option<OwnObjects<Key>>,
}

/// A key with the trigger of its run.
type QueuedKey<Key> = WorkItem<Key, Trigger>;

/// How long a reconciler may take to report that it timed out.
const TIMEOUT_REPORT_LIMIT: Duration = Duration::from_secs(10);

/// The most bytes of an error in a log line.
const MAX_LOGGED: usize = 1024;

enum AttemptResult {
    Returned(Result<Action, Error>),
    Panicked(Box<dyn Any + Send>),
    TimedOut(Duration),
}

impl<Key: ReconcileKey> Worker<Key> {
    /// Works as the worker with this number until stopped; a running reconcile is finished first.
    pub(crate) async fn run(self: Arc<Self>, number: usize, term: Arc<TermContext<Key>>) {
        let mut stop = term.stop.clone();
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
                Some(item) => self.reconcile(item, number, &term).await,
                None => return,
            }
        }
    }

    /// Queues every object of the controller's own kind with low priority, behind real changes.
    pub(crate) fn enqueue_all(&self) {
        for key in self.own_objects.iter().flat_map(|own| (own.keys)()) {
            enqueue(&self.queue, key, Priority::LOW, None);
        }
    }

    async fn reconcile(&self, mut item: QueuedKey<Key>, number: usize, term: &Arc<TermContext<Key>>) {
        let trigger = item.take_tag().unwrap_or_default();
        if let Some(own) = &self.own_objects
            && (own.is_own_report)(item.key(), &trigger, &term.history)
        {
            return self.back_off(item);
        }
        let run = Arc::new(Run {
            key: item.key().clone(),
            id: ReconcileId::new(),
            trigger,
            is_last_attempt: item.is_last_attempt(),
            since: Instant::now(),
        });
        let (controller, id, trigger) = (&self.listers.controller, run.id, &run.trigger);
        let span =
            tracing::info_span!("reconcile", controller, object = %run.key, %id, %trigger, result = Empty);
        let request = Request {
            key: item.key().clone(),
        };
        let ctx = Context {
            term: Arc::clone(term),
            run: Arc::clone(&run),
        };
        let timed_out = self.timeout.map(|limit| (request.clone(), ctx.clone(), limit));
        let (entry, active) = (self.tracker.track(number, run), self.metrics.start());
        // Includes the call itself: a closure may panic before it returns its future.
        let attempt = async {
            if let Some(own) = &self.own_objects
                && let Err(error) = (own.check)(&request.key, &ctx.term.history)
            {
                let error = Error::terminal(error);
                return Err(self.reconciler.undecodable_boxed(request, ctx, error).await);
            }
            self.reconciler.reconcile_boxed(request, ctx).await
        };
        let attempt = async {
            let ended = self.attempt(attempt).await;
            if matches!(ended, AttemptResult::TimedOut(_))
                && let Some((request, ctx, limit)) = timed_out
            {
                self.report_timeout(request, ctx, limit).await;
            }
            ended
        };
        let attempt = pin!(attempt);
        // A disabled span is not free to enter.
        let ended = if span.is_disabled() {
            attempt.await
        } else {
            attempt.instrument(span.clone()).await
        };
        drop(active);
        let ended_run = entry.end();
        let outcome = span.in_scope(|| self.settle(item, ended, &term.recorder));
        ended_run.record(outcome);
        #[cfg(feature = "opentelemetry")]
        telemetry::record_result(&span, outcome);
        self.outcomes.count(outcome);
        self.metrics.count(outcome);
    }

    /// Waits for the retry of a key as if it had not been queued.
    fn back_off(&self, mut item: QueuedKey<Key>) {
        let key = item.key().clone();
        let failures = self.queue.failures(&key);
        if failures > 0 {
            item.set_tag(Trigger::new(TriggerCause::Retry { failures }));
        }
        if let Some(after) = item.back_off() {
            self.tracker.set_retry_at(&key, Instant::now() + after);
        }
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

    /// The retry comes after the report, so the two never overlap.
    async fn report_timeout(&self, request: Request<Key>, ctx: Context<Key>, limit: Duration) {
        let report = async { self.reconciler.timed_out_boxed(request, ctx, limit).await };
        let report = AssertUnwindSafe(report).catch_unwind();
        match tokio::time::timeout(TIMEOUT_REPORT_LIMIT, report).await {
            Ok(Ok(())) => {}
            Ok(Err(panic)) => tracing::debug!(panic = panic_message(&*panic), "cannot report the timeout"),
            Err(_) => tracing::debug!("reporting the timeout took too long"),
        }
    }

    fn settle(
        &self,
        mut item: QueuedKey<Key>,
        ended: AttemptResult,
        recorder: &Recorder,
    ) -> ReconcileOutcome {
        let mut is_connection_error = false;
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
                        item.set_tag(Trigger::new(TriggerCause::Requeue));
                        item.requeue_after(delay);
                        ReconcileOutcome::Requeued
                    }
                };
            }
            AttemptResult::Returned(Err(error)) if error.is_terminal() => {
                self.record_warning(item.key(), &error, recorder);
                let error = logged(error.to_string());
                tracing::error!(
                    error,
                    "reconcile failed with a terminal error; waiting for the next change"
                );
                #[cfg(feature = "opentelemetry")]
                telemetry::record_failure(&error);
                self.tracker.record_failure(item.key(), error, None);
                item.give_up();
                return ReconcileOutcome::Terminal;
            }
            AttemptResult::Returned(Err(error)) => {
                is_connection_error = error.is_connection_error();
                (ReconcileOutcome::Failed, logged(error.to_string()))
            }
            AttemptResult::Panicked(panic) => (
                ReconcileOutcome::Panicked,
                logged(format!("panicked: {}", panic_message(&*panic))),
            ),
            AttemptResult::TimedOut(limit) => {
                (ReconcileOutcome::TimedOut, format!("timed out after {limit:?}"))
            }
        };
        #[cfg(feature = "opentelemetry")]
        telemetry::record_failure(&error);
        let key = item.key().clone();
        let failures = self.queue.failures(&key) + 1;
        item.set_tag(Trigger::new(TriggerCause::Retry { failures }));
        let retry_at = match item.fail() {
            RetryDecision::Retry { after } => {
                let retry_after = after.as_secs_f64();
                if is_connection_error {
                    // The connection's log has it, once for all objects.
                    tracing::debug!(error, failures, retry_after, "reconcile failed; retrying");
                } else {
                    tracing::warn!(error, failures, retry_after, "reconcile failed; retrying");
                }
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

impl<Key> Worker<Key> {
    /// Records a warning event about the object: only a user can fix a terminal error.
    fn record_warning(&self, key: &Key, error: &Error, recorder: &Recorder) {
        if error.is_reported() {
            return;
        }
        let about = self.own_objects.as_ref().and_then(|own| (own.reference)(key));
        if let Some(about) = about
            && let Some(reason) = warning_reason(error)
        {
            recorder.lasting().warning(&about, reason, error.to_string());
        }
    }
}

/// The text of an error for a log line and the debug page, which keeps it per key.
fn logged(text: String) -> String {
    truncate(text, MAX_LOGGED)
}

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic without a message")
}

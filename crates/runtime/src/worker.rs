//! One worker: takes a key, reconciles it, settles what comes next.

use std::{any::Any, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio::time::Instant;
use tracing::Instrument;
use windlass_cache::{ObjectKey, Undecodable};
use windlass_workqueue::{Outcome as Fate, Taken, WorkQueue};

use crate::{
    board::Board,
    error::Error,
    listers::Listers,
    metrics::ControllerMetrics,
    outcomes::{Outcome, Outcomes},
    reconcile::{Action, Context, ReconcileId, Reconciler, Request, World},
    stop::Stop,
};

/// What the workers of one controller share.
pub(crate) struct Work<R> {
    pub(crate) listers: Arc<Listers>,
    pub(crate) queue: WorkQueue<ObjectKey>,
    pub(crate) reconciler: R,
    pub(crate) timeout: Option<Duration>,
    pub(crate) outcomes: Arc<Outcomes>,
    pub(crate) metrics: ControllerMetrics,
    pub(crate) board: Arc<Board>,
    /// Whether there is such an object of the controller's own kind. Fails for one that does not decode: it must not be
    /// taken for one that is gone.
    pub(crate) is_there: IsThere,
}

pub(crate) type IsThere = Box<dyn Fn(&ObjectKey) -> Result<bool, Undecodable> + Send + Sync>;

/// How an attempt ended, before anything follows from it.
enum Ended {
    Returned(Result<Action, Error>),
    Panicked(Box<dyn Any + Send>),
    TimedOut(Duration),
}

impl<R: Reconciler> Work<R> {
    /// Works until it is time to stop; the reconcile that runs then is finished first.
    pub(crate) async fn run(self: Arc<Self>, world: Arc<World>, mut stop: Stop) {
        loop {
            // Reconciles that never wait give way now and then.
            tokio::task::consume_budget().await;
            // What is still queued is found again by the next start.
            if stop.is_requested() {
                return;
            }
            // While there is work, the machinery for waiting is not touched.
            let taken = match self.queue.try_take() {
                Some(taken) => Some(taken),
                None => tokio::select! {
                    biased;
                    () = stop.requested() => return,
                    taken = self.queue.take() => taken,
                },
            };
            match taken {
                Some(taken) => self.reconcile(taken, &world, &stop).await,
                None => return,
            }
        }
    }

    async fn reconcile(&self, taken: Taken<ObjectKey>, world: &Arc<World>, stop: &Stop) {
        let id = ReconcileId::new();
        let controller = &self.listers.controller;
        let span = tracing::info_span!("reconcile", controller, object = %taken.key(), %id);
        let request = Request {
            key: taken.key().clone(),
        };
        let ctx = Context {
            world: Arc::clone(world),
            key: taken.key().clone(),
            id,
            stop: stop.clone(),
        };
        let (line, active) = (self.board.start(taken.key(), id), self.metrics.start());
        // Around the call as well: a closure may panic before it has made its future.
        let attempt = async {
            if !(self.is_there)(&request.key).map_err(Error::terminal)? {
                ctx.world.memory.lock().forget(&request.key);
            }
            self.reconciler.reconcile(request, ctx).await
        };
        let ended = self.attempt(attempt).instrument(span.clone()).await;
        drop(active);
        let ran = line.end();
        let outcome = span.in_scope(|| self.settle(taken, ended));
        if let Some(ran) = ran {
            self.board.ended(ran, outcome);
        }
        self.outcomes.count(outcome);
        self.metrics.count(outcome);
    }

    async fn attempt(&self, attempt: impl Future<Output = Result<Action, Error>> + Send) -> Ended {
        let attempt = AssertUnwindSafe(attempt).catch_unwind();
        let ended = match self.timeout {
            None => attempt.await,
            Some(limit) => match tokio::time::timeout(limit, attempt).await {
                Ok(ended) => ended,
                Err(_) => return Ended::TimedOut(limit),
            },
        };
        ended.map_or_else(Ended::Panicked, Ended::Returned)
    }

    fn settle(&self, mut taken: Taken<ObjectKey>, ended: Ended) -> Outcome {
        let (outcome, why) = match ended {
            Ended::Returned(Ok(action)) => {
                self.board.worked(taken.key());
                if let Some(priority) = action.priority {
                    taken.set_priority(priority);
                }
                return match action.requeue_after {
                    None => {
                        taken.done();
                        Outcome::Done
                    }
                    Some(delay) => {
                        taken.requeue_after(delay);
                        Outcome::Requeued
                    }
                };
            }
            Ended::Returned(Err(error)) if error.is_terminal() => {
                tracing::error!(%error, "reconcile failed for good; the next change tries again");
                self.board.failed(taken.key(), error.to_string(), None);
                taken.terminal();
                return Outcome::Terminal;
            }
            Ended::Returned(Err(error)) => (Outcome::Failed, error.to_string()),
            Ended::Panicked(panic) => (Outcome::Panicked, format!("panicked: {}", panic_message(&*panic))),
            Ended::TimedOut(limit) => (Outcome::TimedOut, format!("did not end within {limit:?}")),
        };
        let key = taken.key().clone();
        let retry_at = match taken.fail() {
            Fate::Retry { after } => {
                tracing::warn!(error = why, retry_after = ?after, "reconcile failed; it is retried");
                Some(Instant::now() + after)
            }
            Fate::Dropped { failures } => {
                tracing::error!(
                    error = why,
                    failures,
                    "reconcile failed too often; the next change tries again"
                );
                None
            }
            Fate::Closed => {
                tracing::warn!(
                    error = why,
                    "reconcile failed while stopping; the next start tries again"
                );
                None
            }
        };
        self.board.failed(&key, why, retry_at);
        outcome
    }
}

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without text")
}

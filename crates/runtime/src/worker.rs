//! One worker: takes a key, reconciles it, settles what comes next.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc};

use futures::FutureExt;
use kube::Client;
use tracing::Instrument;
use windlass_cache::{ObjectKey, Undecodable};
use windlass_workqueue::{Taken, WorkQueue};

use crate::{
    error::Error,
    listers::Listers,
    outcomes::{Outcome, Outcomes},
    reconcile::{Action, Context, ReconcileId, Reconciler, Request},
    stop::Stop,
};

/// What the workers of one controller share.
pub(crate) struct Work<R> {
    pub(crate) queue: WorkQueue<ObjectKey>,
    pub(crate) reconciler: R,
    pub(crate) client: Client,
    pub(crate) listers: Arc<Listers>,
    pub(crate) outcomes: Arc<Outcomes>,
    /// Fails for an object of the controller's own kind that is there and does not decode: it must not be taken for
    /// one that is gone.
    pub(crate) readable: Readable,
}

pub(crate) type Readable = Box<dyn Fn(&ObjectKey) -> Result<(), Undecodable> + Send + Sync>;

impl<R: Reconciler> Work<R> {
    /// Works until it is time to stop; the reconcile that runs then is finished first.
    pub(crate) async fn run(self: Arc<Self>, mut stop: Stop) {
        loop {
            let taken = tokio::select! {
                // What is still queued is found again by the next start.
                biased;
                () = stop.requested() => return,
                taken = self.queue.take() => taken,
            };
            match taken {
                Some(taken) => self.reconcile(taken).await,
                None => return,
            }
        }
    }

    async fn reconcile(&self, taken: Taken<ObjectKey>) {
        let id = ReconcileId::new();
        let span = tracing::info_span!("reconcile", controller = self.listers.controller, object = %taken.key(), %id);
        let request = Request {
            key: taken.key().clone(),
        };
        let ctx = Context {
            client: self.client.clone(),
            listers: Arc::clone(&self.listers),
            id,
        };
        // Around the call as well: a closure may panic before it has made its future.
        let attempt = AssertUnwindSafe(async {
            (self.readable)(&request.key).map_err(Error::terminal)?;
            self.reconciler.reconcile(request, ctx).await
        });
        let ended = attempt.catch_unwind().instrument(span.clone()).await;
        let outcome = span.in_scope(|| settle(taken, ended));
        self.outcomes.count(outcome);
    }
}

fn settle(taken: Taken<ObjectKey>, ended: Result<Result<Action, Error>, Box<dyn Any + Send>>) -> Outcome {
    match ended {
        Ok(Ok(Action { requeue_after: None })) => {
            taken.done();
            Outcome::Done
        }
        Ok(Ok(Action {
            requeue_after: Some(delay),
        })) => {
            taken.requeue_after(delay);
            Outcome::Requeued
        }
        Ok(Err(error)) if error.is_terminal() => {
            tracing::error!(%error, "reconcile failed for good; the next change tries again");
            taken.terminal();
            Outcome::Terminal
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "reconcile failed; it is retried");
            // Whether the key comes back is the queue's policy, and in its metrics.
            let _ = taken.fail();
            Outcome::Failed
        }
        Err(panic) => {
            tracing::error!(
                panic = panic_message(&*panic),
                "reconcile panicked; it is retried"
            );
            let _ = taken.fail();
            Outcome::Panicked
        }
    }
}

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without text")
}

//! The end of an event's way that the manager holds: it talks to the server.

use std::{future::Future, sync::Arc, time::Duration};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    core::Status,
};
use tokio::time::{Instant, timeout};
use windlass_workqueue::{Outcome, Priority, Taken};

use super::{
    correlator::{Due, Next},
    counts::DropReason,
    recorder::{Shared, State},
    series::{How, Key, Write},
};

/// How many requests may be under way, so that one that hangs does not hold up all.
const WORKERS: usize = 4;

/// After this a request counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Brings events to the server, in the background of whoever runs it.
///
/// A request that fails in a way that may pass (no connection, a timeout, 429, 5xx) is tried twelve times, about ten
/// seconds apart; other events do not wait for it. What the server refuses is given up, logged and counted.
///
/// It needs the rights to `create` and `patch` `events` in the namespaces of the objects, and in `default` for objects
/// outside namespaces.
#[must_use = "nothing is written unless it runs"]
pub struct Writer {
    client: Client,
    shared: Arc<Shared>,
    flush_within: Duration,
}

impl Writer {
    pub(super) fn new(client: Client, shared: Arc<Shared>, flush_within: Duration) -> Self {
        Self {
            client,
            shared,
            flush_within,
        }
    }

    /// Writes events until `stop` completes, then what is left: each series once, without retries, and no longer
    /// than [`flush_within`](super::Options::flush_within).
    ///
    /// Dropping the future ends it at once.
    pub async fn run_until(self, stop: impl Future<Output = ()>) {
        let limit = async {
            stop.await;
            self.shared.close();
            tokio::time::sleep(self.flush_within).await;
        };
        tokio::select! {
            // Ends when the queue is closed and nothing is left in it.
            _ = join_all((0..WORKERS).map(|_| self.work())) => {}
            () = limit => {}
        }
    }

    async fn work(&self) {
        while let Some(taken) = self.shared.queue.take().await {
            self.settle(taken).await;
        }
    }

    /// Writes one series until the server knows as much of it as it shall.
    async fn settle(&self, mut taken: Taken<Arc<Key>>) {
        loop {
            let due = self.change(|state, now| state.correlator.due(&taken, now));
            let write = match due {
                Due::Write(write) => write,
                Due::Later(wait) => return taken.requeue_after(wait),
                Due::Nothing => return taken.done(),
            };
            match self.attempt(&write).await {
                Ok(how) => match self.wrote(&write, how) {
                    Next::Again => {}
                    Next::Later(wait) => return taken.requeue_after(wait),
                    Next::Nothing => return taken.done(),
                },
                Err(Failure::Refused(error)) => {
                    self.give_up(&write, &error);
                    return taken.terminal();
                }
                Err(Failure::Passing(error)) => {
                    // What is new goes first: this one may fail again, and slowly.
                    taken.set_priority(Priority::LOW);
                    match taken.fail() {
                        Outcome::Retry { after } => {
                            tracing::debug!(event = %write, %error, ?after, "an event was not written; it is retried");
                        }
                        Outcome::Dropped { .. } => self.give_up(&write, &error),
                        // What is left when the writer ends is counted then.
                        Outcome::Closed => {}
                    }
                    return;
                }
            }
        }
    }

    /// One request, or two: an event that is gone is created anew. The answer says what worked.
    async fn attempt(&self, write: &Write) -> Result<How, Failure> {
        let events = Api::<Event>::namespaced(self.client.clone(), write.namespace());
        let mut how = write.how;
        if how == How::Patch {
            let (params, patch) = (PatchParams::default(), Patch::Merge(write.patch()));
            match in_time(events.patch(&write.name, &params, &patch)).await {
                Err(Failure::Refused(kube::Error::Api(status))) if status.is_not_found() => how = How::Create,
                answer => return answer.map(|_| how),
            }
        }
        match in_time(events.create(&PostParams::default(), &write.event())).await {
            // Nobody else uses its name: the earlier try worked, and only its answer was lost.
            Err(Failure::Refused(kube::Error::Api(status)))
                if how == How::CreateAgain && status.is_already_exists() =>
            {
                Ok(how)
            }
            answer => answer.map(|_| how),
        }
    }

    fn wrote(&self, write: &Write, how: How) -> Next {
        self.change(|state, now| {
            match how {
                How::Create | How::CreateAgain => state.counts.created += 1,
                How::Patch => state.counts.patched += 1,
            }
            state.correlator.wrote(write, now)
        })
    }

    fn give_up(&self, write: &Write, error: &kube::Error) {
        match error {
            // Ordinary while a namespace goes away.
            kube::Error::Api(status) if status.is_already_exists() || is_terminating(status) => {
                tracing::debug!(event = %write, %error, "the server refused an event");
            }
            kube::Error::Api(status) if status.is_forbidden() => {
                tracing::warn!(
                    event = %write, %error,
                    "an event is given up: grant `create` and `patch` on `events` in its namespace"
                );
            }
            _ => tracing::warn!(event = %write, %error, "an event is given up"),
        }
        self.change(|state, _| {
            state.counts.failed += 1;
            state.correlator.gave_up(write);
        });
    }

    fn change<R>(&self, change: impl FnOnce(&mut State, Instant) -> R) -> R {
        change(&mut self.shared.state.lock(), Instant::now())
    }
}

impl Drop for Writer {
    /// However it ends, recorders learn that nobody writes any more.
    fn drop(&mut self) {
        self.shared.close();
        self.change(|state, _| {
            let unwritten = state.correlator.unwritten();
            state.counts.drop_more(DropReason::Stopped, unwritten);
        });
    }
}

/// Why a request did not work.
enum Failure {
    /// The server is not there, not well or too busy: another try may help.
    Passing(kube::Error),
    /// The server does not want it, now and later.
    Refused(kube::Error),
}

async fn in_time<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
    let answer = timeout(PATIENCE, request).await;
    let error = match answer {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(error)) => error,
        Err(elapsed) => kube::Error::Service(elapsed.into()),
    };
    Err(match &error {
        kube::Error::Api(status) if status.code != 429 && status.code < 500 => Failure::Refused(error),
        kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => Failure::Refused(error),
        _ => Failure::Passing(error),
    })
}

fn is_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .into_iter()
        .any(|cause| cause.reason == "NamespaceTerminating")
}

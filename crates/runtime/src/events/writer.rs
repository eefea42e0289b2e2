//! The event writer, run by the manager: sends events to the server.

use std::{future::Future, sync::Arc, time::Duration};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use tokio::time::{Instant, timeout};
use windlass_api::status::StatusClass;
use windlass_cache::is_connection_error;
use windlass_workqueue::{Priority, RetryDecision, WorkItem};

use super::{
    correlator::{Due, Next},
    counts::DropReason,
    recorder::{Shared, State},
    series::{SeriesKey, Write, WriteOperation},
};
use crate::error::message;

/// Maximum number of concurrent requests, so that one that hangs does not block the others.
const WORKERS: usize = 4;

/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends events to the server.
///
/// A request that fails transiently (no connection, timeout, 429, 5xx) is attempted twelve times, about ten seconds apart;
/// other events do not wait for it. An event that the server rejects is logged, counted and dropped.
///
/// It needs `create` and `patch` on `events` in the namespaces of the objects, and in `default` for cluster-scoped objects.
#[must_use = "nothing is written unless the writer runs"]
pub struct EventWriter {
    client: Client,
    shared: Arc<Shared>,
    flush_timeout: Duration,
}

impl EventWriter {
    pub(super) fn new(client: Client, shared: Arc<Shared>, flush_timeout: Duration) -> Self {
        Self {
            client,
            shared,
            flush_timeout,
        }
    }

    /// Writes events until `stop` completes, then pending ones: each series once, without retries, for at most
    /// [`flush_timeout`](super::RecorderOptions::flush_timeout).
    ///
    /// Dropping the future ends it at once.
    pub async fn run_until(self, stop: impl Future<Output = ()>) {
        let limit = async {
            stop.await;
            self.shared.close();
            tokio::time::sleep(self.flush_timeout).await;
        };
        tokio::select! {
            // Ends when the queue is closed and empty.
            _ = join_all((0..WORKERS).map(|_| self.work())) => {}
            () = limit => {}
        }
    }

    async fn work(&self) {
        while let Some(item) = self.shared.queue.next().await {
            self.settle(item).await;
        }
    }

    /// Writes one series until the server has its current state.
    async fn settle(&self, mut item: WorkItem<Arc<SeriesKey>>) {
        loop {
            let due = self.with_state(|state, now| state.correlator.due(&item, now));
            let write = match due {
                Due::Write(write) => write,
                Due::Later(wait) => return item.requeue_after(wait),
                Due::Nothing => return item.done(),
            };
            match self.attempt(&write).await {
                Ok(result) => match self.record_written(&write, result) {
                    Next::Again => {}
                    Next::Later(wait) => return item.requeue_after(wait),
                    Next::Nothing => return item.done(),
                },
                Err(WriteFailure::Permanent(error)) => {
                    self.give_up(&write, &error);
                    return item.give_up();
                }
                Err(WriteFailure::Transient(error)) => {
                    // New events go first: this one may fail again, and slowly.
                    item.set_priority(Priority::LOW);
                    match item.fail() {
                        RetryDecision::Retry { after } => {
                            let retry_after = after.as_secs_f64();
                            tracing::debug!(event = %write, error = message(&error), retry_after, "cannot write event; retrying");
                        }
                        RetryDecision::Dropped { .. } => self.give_up(&write, &error),
                        // Counted as dropped when the writer ends.
                        RetryDecision::Closed => {}
                    }
                    return;
                }
            }
        }
    }

    /// Sends one request, or two: an event that has expired is created again.
    async fn attempt(&self, write: &Write) -> Result<WriteResult, WriteFailure> {
        let events = Api::<Event>::namespaced(self.client.clone(), write.namespace());
        if write.operation == WriteOperation::Patch {
            let (params, patch) = (PatchParams::default(), Patch::Merge(write.patch()));
            match with_timeout(events.patch(&write.name, &params, &patch)).await {
                Err(WriteFailure::Permanent(kube::Error::Api(status))) if status.is_not_found() => {}
                answer => return answer.map(|_| WriteResult::Patched),
            }
        }
        match with_timeout(events.create(&PostParams::default(), &write.event())).await {
            Err(WriteFailure::Permanent(kube::Error::Api(status))) if status.is_already_exists() => {
                match write.operation {
                    // The name is unique to this process: the earlier attempt succeeded, and only its response was lost.
                    WriteOperation::CreateAgain => Ok(WriteResult::Created),
                    WriteOperation::FindOrCreate => Ok(WriteResult::Found),
                    _ => Err(WriteFailure::Permanent(kube::Error::Api(status))),
                }
            }
            answer => answer.map(|_| WriteResult::Created),
        }
    }

    fn record_written(&self, write: &Write, result: WriteResult) -> Next {
        self.with_state(|state, now| match result {
            WriteResult::Created => {
                state.counts.created += 1;
                state.correlator.on_written(write, now)
            }
            WriteResult::Patched => {
                state.counts.patched += 1;
                state.correlator.on_written(write, now)
            }
            WriteResult::Found => {
                state.counts.found += 1;
                state.correlator.on_found(write, now)
            }
        })
    }

    fn give_up(&self, write: &Write, error: &kube::Error) {
        match StatusClass::of_error(error).unwrap_or(StatusClass::Other) {
            // Expected while a namespace is being deleted.
            StatusClass::AlreadyExists | StatusClass::NamespaceTerminating => {
                tracing::debug!(event = %write, error = message(error), "the server rejected an event");
            }
            StatusClass::Forbidden => {
                tracing::warn!(
                    event = %write, error = message(error),
                    "cannot write event: grant `create` and `patch` on `events` in its namespace"
                );
            }
            // The connection's log has it.
            _ if is_connection_error(error) => {
                tracing::debug!(event = %write, error = message(error), "cannot write event");
            }
            _ => tracing::warn!(event = %write, error = message(error), "cannot write event"),
        }
        self.with_state(|state, _| {
            state.counts.failed += 1;
            state.correlator.on_given_up(write);
        });
    }

    fn with_state<R>(&self, change: impl FnOnce(&mut State, Instant) -> R) -> R {
        change(&mut self.shared.state.lock(), Instant::now())
    }
}

impl Drop for EventWriter {
    /// Closes the recorders, however the writer ends.
    fn drop(&mut self) {
        self.shared.close();
        self.with_state(|state, _| {
            let unwritten = state.correlator.unwritten();
            state.counts.add_dropped(DropReason::Stopped, unwritten);
        });
    }
}

/// What a request has done.
#[derive(Clone, Copy)]
enum WriteResult {
    Created,
    Patched,
    /// Nothing: the event of an earlier process is there.
    Found,
}

/// A failed request.
enum WriteFailure {
    /// The server is unreachable, failing or overloaded: a retry may help.
    Transient(kube::Error),
    /// The server rejects the event.
    Permanent(kube::Error),
}

async fn with_timeout<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, WriteFailure> {
    let answer = timeout(REQUEST_TIMEOUT, request).await;
    let error = match answer {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(error)) => error,
        Err(elapsed) => kube::Error::Service(elapsed.into()),
    };
    Err(match &error {
        kube::Error::Api(status) if !StatusClass::of(status).is_transient() => WriteFailure::Permanent(error),
        kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => WriteFailure::Permanent(error),
        _ => WriteFailure::Transient(error),
    })
}

//! All sinks: feeds notify them, workers deliver, and the journal records what they confirmed.

use std::{collections::HashSet, future::Future, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Notify, task::JoinSet, time::timeout};
use windlass::{
    cache::ObjectKey,
    kube::{Client, core::ApiResource},
    runtime::{Clock, metrics::Metrics},
};

use super::{
    CurrentState, Limits,
    journal_writer::JournalWriter,
    sink_queue::SinkQueue,
    stats::{self, SinkStats},
    worker::Worker,
};
use crate::{
    journal::{Journal, JournalError, ObjectVersion},
    notice::{Notice, NotifyOutcome, Observer},
    sinks::{OpenError, Sink, SinkSpec},
};

/// How long sinks may take at the stop to deliver what waits: less than the manager's grace period of 30 s.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(20);

/// Delivers notices to all sinks.
pub struct Hub {
    queues: Vec<Arc<SinkQueue>>,
    /// Taken by [`run`](Self::run).
    sinks: Mutex<Option<Vec<Box<dyn Sink>>>>,
    journal: Option<Arc<Journal>>,
    journal_writer: Arc<JournalWriter>,
    scopes: Mutex<Vec<Arc<str>>>,
    flush_timeout: Duration,
    /// Notified when the queues are closed.
    closing: Arc<Notify>,
}

/// Why the sinks cannot be used, or stopped with an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// There are no sinks.
    #[error("no sink: add one with --sink")]
    NoSink,
    /// Two sinks have the same name, which identifies them in logs, metrics and the state file.
    #[error("two sinks are named `{0}`: rename one of them, as in `--sink …,name=NAME`")]
    DuplicateName(String),
    /// A sink cannot be opened.
    #[error("sink `{sink}`: {cause}")]
    Open {
        /// The sink's name.
        sink: String,
        /// Why.
        cause: OpenError,
    },
    /// A sink's worker panicked.
    #[error("a sink panicked: {0}")]
    Panicked(String),
    /// [`Hub::run`] was called before.
    #[error("the sinks have already run: create a new hub")]
    AlreadyRan,
    /// The state file could not be written at the end.
    #[error("cannot write the state file: the sinks will get their latest notices again")]
    Journal(#[source] JournalError),
}

impl Hub {
    /// Opens the sinks. With a journal, they continue where they stopped. `client` is for a sink of Kubernetes Events.
    pub fn open(
        specs: &[SinkSpec],
        journal: Option<Journal>,
        clock: Clock,
        client: Option<&Client>,
    ) -> Result<Self, HubError> {
        let sinks = specs.iter().map(|spec| {
            let sink = spec.open(clock, client).map_err(|cause| HubError::Open {
                sink: spec.name.clone(),
                cause,
            })?;
            Ok((spec.name.clone(), spec.limits, sink))
        });
        Self::new(sinks.collect::<Result<_, _>>()?, journal, clock)
    }

    /// Creates a hub from open sinks, each with its name and limits.
    pub fn new(
        sinks: Vec<(String, Limits, Box<dyn Sink>)>,
        journal: Option<Journal>,
        clock: Clock,
    ) -> Result<Self, HubError> {
        if sinks.is_empty() {
            return Err(HubError::NoSink);
        }
        let mut names = HashSet::new();
        if let Some((name, ..)) = sinks.iter().find(|(name, ..)| !names.insert(name.clone())) {
            return Err(HubError::DuplicateName(name.clone()));
        }
        let confirmed = Arc::new(Notify::new());
        let journal = journal.map(Arc::new);
        let (queues, sinks): (Vec<_>, _) = sinks
            .into_iter()
            .map(|(name, limits, sink)| {
                let queue = SinkQueue::new(name, limits, clock, Arc::clone(&confirmed), journal.is_some());
                (Arc::new(queue), sink)
            })
            .unzip();
        let keeper = JournalWriter::new(journal.clone(), queues.clone(), confirmed);
        Ok(Self {
            queues,
            sinks: Mutex::new(Some(sinks)),
            journal,
            journal_writer: Arc::new(keeper),
            scopes: Mutex::default(),
            flush_timeout: FLUSH_TIMEOUT,
            closing: Arc::new(Notify::new()),
        })
    }

    /// Sets how long sinks may take at the stop to deliver what waits. Default: 20 s.
    #[must_use]
    pub fn flush_timeout(mut self, flush: Duration) -> Self {
        self.flush_timeout = flush;
        self
    }

    /// Registers the sinks' metrics. Call once.
    pub fn register_metrics(&self, metrics: &Metrics) {
        stats::register_metrics(metrics, &self.queues);
    }

    /// The statistics of each sink, by name.
    pub fn stats(&self) -> Vec<(String, SinkStats)> {
        let queues = self.queues.iter();
        queues.map(|queue| (queue.name.clone(), queue.stats())).collect()
    }

    /// The names of the sinks whose last delivery failed, with the error.
    pub fn last_errors(&self) -> Vec<(String, String)> {
        let queues = self.queues.iter();
        queues
            .filter_map(|queue| Some((queue.name.clone(), queue.last_error()?)))
            .collect()
    }

    /// Adds a feed of one kind and selection. `scope` names both, and anything else that decides which objects are reported: it is
    /// the journal's key, so that objects outside a changed selection are not taken for deleted ones.
    ///
    /// # Panics
    ///
    /// If a feed with this scope exists: two watches of the same objects would undo each other's progress.
    #[expect(clippy::needless_pass_by_value, reason = "each sink keeps a clone")]
    pub fn add_feed(
        self: &Arc<Self>,
        scope: &str,
        kind: &Arc<ApiResource>,
        present: Arc<dyn CurrentState>,
    ) -> Feed {
        let scope: Arc<str> = scope.into();
        let mut scopes = self.scopes.lock();
        assert!(!scopes.contains(&scope), "a feed of `{scope}` exists already");
        let index = scopes.len();
        for queue in &self.queues {
            let known = self
                .journal
                .as_ref()
                .and_then(|journal| journal.initial_contents().get(&*scope)?.get(&queue.name));
            let progress = known.cloned().unwrap_or_default();
            queue.add_feed(
                Arc::clone(&scope),
                Arc::clone(kind),
                Arc::clone(&present),
                progress,
            );
        }
        scopes.push(scope);
        Feed {
            hub: Arc::clone(self),
            index,
        }
    }

    /// Delivers until `stop`; then accepts no more notices, and lets each sink deliver what waits until it fails or the flush
    /// timeout ends. With a journal, undelivered notices are sent after a restart.
    ///
    /// Dropping the future stops at once; nothing is confirmed that was not delivered.
    pub async fn run(&self, stop: impl Future<Output = ()>) -> Result<(), HubError> {
        let sinks = self.sinks.lock().take().ok_or(HubError::AlreadyRan)?;
        let mut workers = JoinSet::new();
        for (queue, sink) in self.queues.iter().zip(sinks) {
            let worker = Worker::new(Arc::clone(queue), sink.into(), Arc::clone(&self.journal_writer));
            workers.spawn(worker.run(Arc::clone(&self.closing)));
        }
        let flushed = Notify::new();
        let delivering = async {
            let delivered = self.deliver(&mut workers, stop).await;
            flushed.notify_one();
            delivered
        };
        let (delivered, kept) = tokio::join!(delivering, self.journal_writer.run(flushed.notified()));
        delivered.and(kept.map_err(HubError::Journal))
    }

    /// Waits for `stop`, then for the workers to flush.
    async fn deliver(
        &self,
        workers: &mut JoinSet<()>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), HubError> {
        let ended = tokio::select! {
            () = stop => None,
            ended = workers.join_next() => ended,
        };
        for queue in &self.queues {
            queue.close();
        }
        self.closing.notify_waiters();
        let flushed = timeout(self.flush_timeout, async {
            let mut ended = ended;
            loop {
                match ended {
                    Some(Err(panic)) => return Err(HubError::Panicked(panic.to_string())),
                    None if workers.is_empty() => return Ok(()),
                    Some(Ok(())) | None => ended = workers.join_next().await,
                }
            }
        })
        .await;
        workers.shutdown().await;
        for queue in &self.queues {
            if let (waiting @ 1.., _) = queue.backlog() {
                let kept = if self.journal.is_some() {
                    "they will be sent after a restart"
                } else {
                    "they are lost; use --state to keep them"
                };
                tracing::warn!(sink = %queue.name, waiting, "notices were not delivered before the stop: {kept}");
            }
        }
        flushed.unwrap_or(Ok(()))
    }
}

/// Notifies all sinks about the objects of one kind and selection.
pub struct Feed {
    hub: Arc<Hub>,
    index: usize,
}

impl Feed {
    /// Skips a change that is not reported: a sink that has confirmed `old` (`None`: does not know the object) counts as having
    /// confirmed `new` (`None`: deleted). Other sinks are unaffected.
    pub fn skip(&self, key: &ObjectKey, old: Option<&ObjectVersion>, new: Option<&ObjectVersion>) {
        for queue in &self.hub.queues {
            queue.skip(self.index, key, old, new);
        }
    }

    /// Marks the end of the initial objects. A sink then gets a deletion for each object that it confirmed before a restart and
    /// that no longer exists.
    pub fn initial_list_done(&self) {
        for queue in &self.hub.queues {
            queue.initial_list_done(self.index);
        }
    }
}

impl Observer for Feed {
    /// Returns `Dropped` if a sink has no room; it gets the object's state later, if the object still exists.
    fn notify(&self, notice: Arc<Notice>) -> NotifyOutcome {
        let mut outcome = NotifyOutcome::Accepted;
        for queue in &self.hub.queues {
            if queue.notify(self.index, &notice) == NotifyOutcome::Dropped {
                outcome = NotifyOutcome::Dropped;
            }
        }
        outcome
    }
}

//! All sinks together: who tells them, who runs them, and who remembers what they confirmed.

use std::{collections::HashSet, future::Future, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Notify, task::JoinSet, time::timeout};
use windlass::{
    cache::ObjectKey,
    kube::core::ApiResource,
    runtime::{Clock, metrics::Metrics},
};

use super::{
    Limits, Present,
    figures::{self, Figures},
    keeper::Keeper,
    lane::Lane,
    worker::Worker,
};
use crate::{
    journal::{Journal, JournalError, Version},
    notice::{Notice, Observer, Told},
    sinks::{OpenError, Sink, SinkSpec},
};

/// How long sinks may take at the stop to deliver what waits: less than a manager's grace of 30 s.
const FLUSH: Duration = Duration::from_secs(20);

/// All sinks.
pub struct Hub {
    lanes: Vec<Arc<Lane>>,
    /// Until they run.
    sinks: Mutex<Option<Vec<Box<dyn Sink>>>>,
    journal: Option<Arc<Journal>>,
    keeper: Arc<Keeper>,
    scopes: Mutex<Vec<Arc<str>>>,
    flush: Duration,
    /// The lanes are closed.
    closing: Arc<Notify>,
}

/// Why the sinks cannot be used, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// There is nobody to tell.
    #[error("there is no sink: name one with --sink")]
    NoSink,
    /// Logs, metrics and the state file could not tell them apart.
    #[error("two sinks are named `{0}`: give one of them another name, as in `--sink …,name=NAME`")]
    DuplicateName(String),
    /// A sink cannot be opened.
    #[error("sink `{sink}`: {cause}")]
    Open {
        /// Its name.
        sink: String,
        /// What is wrong.
        cause: OpenError,
    },
    /// A sink's worker panicked.
    #[error("a sink panicked: {0}")]
    Panicked(String),
    /// They were run before.
    #[error("the sinks ran already: build them anew")]
    RanAlready,
    /// What was confirmed could not be written at the end.
    #[error("what the sinks confirmed last is not remembered, and will be told again")]
    Journal(#[source] JournalError),
}

impl Hub {
    /// Opens the sinks. With a journal, they continue where they were.
    pub fn open(specs: &[SinkSpec], journal: Option<Journal>, clock: Clock) -> Result<Self, HubError> {
        let sinks = specs.iter().map(|spec| {
            let sink = spec.open(clock).map_err(|cause| HubError::Open {
                sink: spec.name.clone(),
                cause,
            })?;
            Ok((spec.name.clone(), spec.limits, sink))
        });
        Self::new(sinks.collect::<Result<_, _>>()?, journal, clock)
    }

    /// The same with sinks that are open already, each with its name.
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
        let (lanes, sinks): (Vec<_>, _) = sinks
            .into_iter()
            .map(|(name, limits, sink)| {
                let lane = Lane::new(name, limits, clock, Arc::clone(&confirmed), journal.is_some());
                (Arc::new(lane), sink)
            })
            .unzip();
        let keeper = Keeper::new(journal.clone(), lanes.clone(), confirmed);
        Ok(Self {
            lanes,
            sinks: Mutex::new(Some(sinks)),
            journal,
            keeper: Arc::new(keeper),
            scopes: Mutex::default(),
            flush: FLUSH,
            closing: Arc::new(Notify::new()),
        })
    }

    /// How long sinks may take at the stop to deliver what waits. Default: 20 s.
    #[must_use]
    pub fn flush_within(mut self, flush: Duration) -> Self {
        self.flush = flush;
        self
    }

    /// Shows the sinks' figures among these metrics. Once.
    pub fn show(&self, metrics: &Metrics) {
        figures::show(metrics, &self.lanes);
    }

    /// The figures of each sink, by name.
    pub fn figures(&self) -> Vec<(String, Figures)> {
        let lanes = self.lanes.iter();
        lanes.map(|lane| (lane.name.clone(), lane.figures())).collect()
    }

    /// The sinks that cannot be delivered to at present, and why.
    pub fn troubles(&self) -> Vec<(String, String)> {
        let lanes = self.lanes.iter();
        lanes
            .filter_map(|lane| Some((lane.name.clone(), lane.trouble()?)))
            .collect()
    }

    /// Tells of another kind and selection. `scope` names both, and whatever else decides which objects are told of: the
    /// journal knows it by that, so that another selection is not taken for objects that are gone.
    ///
    /// # Panics
    ///
    /// If the scope was told of before: two watches of the same would undo each other.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "it is given away, and each sink has a share"
    )]
    pub fn feed(self: &Arc<Self>, scope: &str, kind: &Arc<ApiResource>, present: Arc<dyn Present>) -> Feed {
        let scope: Arc<str> = scope.into();
        let mut scopes = self.scopes.lock();
        assert!(!scopes.contains(&scope), "`{scope}` is told of already");
        let number = scopes.len();
        for lane in &self.lanes {
            let known = self
                .journal
                .as_ref()
                .and_then(|journal| journal.record().get(&*scope)?.get(&lane.name));
            let progress = known.cloned().unwrap_or_default();
            lane.feed(
                Arc::clone(&scope),
                Arc::clone(kind),
                Arc::clone(&present),
                progress,
            );
        }
        scopes.push(scope);
        Feed {
            hub: Arc::clone(self),
            number,
        }
    }

    /// Delivers until `stop`; then takes nothing more, and gives each sink the time to deliver what waits, until it fails.
    /// What is left is told after a restart, if there is a journal.
    ///
    /// Dropping it ends everything at once; nothing is confirmed that was not delivered.
    pub async fn run(&self, stop: impl Future<Output = ()>) -> Result<(), HubError> {
        let sinks = self.sinks.lock().take().ok_or(HubError::RanAlready)?;
        let mut workers = JoinSet::new();
        for (lane, sink) in self.lanes.iter().zip(sinks) {
            let worker = Worker::new(Arc::clone(lane), sink, Arc::clone(&self.keeper));
            workers.spawn(worker.run(Arc::clone(&self.closing)));
        }
        let flushed = Notify::new();
        let delivering = async {
            let delivered = self.deliver(&mut workers, stop).await;
            flushed.notify_one();
            delivered
        };
        let (delivered, kept) = tokio::join!(delivering, self.keeper.run(flushed.notified()));
        delivered.and(kept.map_err(HubError::Journal))
    }

    /// Until `stop`, and then as long as it takes to deliver what waits.
    async fn deliver(
        &self,
        workers: &mut JoinSet<()>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), HubError> {
        let ended = tokio::select! {
            () = stop => None,
            ended = workers.join_next() => ended,
        };
        for lane in &self.lanes {
            lane.close();
        }
        self.closing.notify_waiters();
        let flushed = timeout(self.flush, async {
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
        for lane in &self.lanes {
            if let (waiting @ 1.., _) = lane.backlog() {
                let kept = if self.journal.is_some() {
                    "they are told after a restart"
                } else {
                    "they are lost: --state keeps them"
                };
                tracing::warn!(sink = %lane.name, waiting, "notices were not delivered before the stop: {kept}");
            }
        }
        flushed.unwrap_or(Ok(()))
    }
}

/// Tells all sinks of one kind and selection.
pub struct Feed {
    hub: Arc<Hub>,
    number: usize,
}

impl Feed {
    /// A change that is not to be told: a sink that has confirmed `old` (`None`: knows nothing of the object) counts as having
    /// confirmed `new` (`None`: it is gone). For one that has not, nothing changes.
    pub fn pass(&self, key: &ObjectKey, old: Option<&Version>, new: Option<&Version>) {
        for lane in &self.hub.lanes {
            lane.pass(self.number, key, old, new);
        }
    }

    /// All objects that there were at the start have been told. What a sink has confirmed before a restart and is not there any
    /// more is told to it as deleted.
    pub fn listed(&self) {
        for lane in &self.hub.lanes {
            lane.listed(self.number);
        }
    }
}

impl Observer for Feed {
    /// `Dropped` if a sink has no room; it gets the object's state later, if it is still there.
    fn tell(&self, notice: Arc<Notice>) -> Told {
        let mut told = Told::Taken;
        for lane in &self.hub.lanes {
            if lane.tell(self.number, &notice) == Told::Dropped {
                told = Told::Dropped;
            }
        }
        told
    }
}

//! The garbage collector: deletes what has lost its owners, in the background, before its owner, or not at all.
//!
//! ```text
//!   discovery ──► a watch of metadata for each kind ──► Graph (who owns whom) ──► WorkQueue of UIDs
//!       ▲                      │                                                       │
//!       └── a CRD changed ─────┘             attempt: asks the server, then acts ◄─────┘
//! ```
//!
//! The graph is what the watches told so far, and they are not in step with each other: it says what to look at, and
//! nothing is deleted before the server has confirmed it. One task owns everything here.

mod attempt;
mod graph;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream, FuturesUnordered, SelectAll},
};
use kube::Client;
use tokio::{sync::oneshot, time::sleep};
use windlass_cache::{Caches, Change, KindName, Selection, Uid};
use windlass_runtime::{Error, Manager, TaskContext, events::Recorder};
use windlass_workqueue::WorkQueue;

use self::{
    attempt::Attempt,
    graph::{Graph, Look, Object},
};
use super::kinds::{Kind, Served};

/// How many objects are looked at at the same time; as many as by a real collector.
const WORKERS: usize = 20;

/// What its events are said to come from.
const SOURCE: &str = "garbage-collector-controller";

/// How long to wait after a discovery that failed.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) fn add(manager: Manager) -> Manager {
    manager.task("garbage-collector", run)
}

async fn run(ctx: TaskContext) -> Result<(), Error> {
    let collector = Arc::new(Collector {
        client: ctx.client().clone(),
        recorder: ctx.recorder().source(SOURCE),
        queue: WorkQueue::new(),
        graph: Mutex::default(),
        served: Mutex::default(),
    });
    let mut monitors = Monitors::new(ctx.caches().clone());
    let mut running: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
    let stopping = ctx.stopping();
    tokio::pin!(stopping);
    let mut stale = true;
    loop {
        if std::mem::take(&mut stale) {
            tokio::select! {
                () = &mut stopping => return Ok(()),
                fresh = collector.discover() => match fresh {
                    Ok(fresh) => collector.look(monitors.follow(&fresh, &collector.graph)),
                    Err(error) => {
                        tracing::warn!("the garbage collector cannot discover what is served: {error}");
                        tokio::select! {
                            () = &mut stopping => return Ok(()),
                            () = sleep(AGAIN) => {}
                        }
                        stale = true;
                        continue;
                    }
                },
            }
        }
        tokio::select! {
            () = &mut stopping => return Ok(()),
            Some((kind, change)) = monitors.changes.next() => {
                stale = kind.is("apiextensions.k8s.io", "customresourcedefinitions");
                let looks = collector.graph().observe(&kind, &change);
                collector.look(looks);
                monitors.saw(&kind, &change);
            }
            Some(taken) = collector.queue.take(), if running.len() < WORKERS => {
                let collector = Arc::clone(&collector);
                running.push(async move {
                    let uid = *taken.key();
                    match collector.attempt(uid).await {
                        Ok(Attempt::Done) => taken.done(),
                        Ok(Attempt::Again) => drop(taken.fail()),
                        Err(error) => {
                            tracing::debug!(?uid, "the garbage collector tries again: {error}");
                            taken.fail();
                        }
                    }
                }.boxed());
            }
            Some(()) = running.next() => {}
        }
    }
}

/// What an attempt needs.
struct Collector {
    client: Client,
    recorder: Recorder,
    queue: WorkQueue<Uid>,
    /// Locked for one step at a time, never across a wait.
    graph: Mutex<Graph>,
    served: Mutex<Arc<Served>>,
}

impl Collector {
    fn graph(&self) -> MutexGuard<'_, Graph> {
        lock(&self.graph)
    }

    fn served(&self) -> Arc<Served> {
        Arc::clone(&lock(&self.served))
    }

    async fn discover(&self) -> kube::Result<Arc<Served>> {
        let served = Arc::new(Served::discover(&self.client).await?);
        *lock(&self.served) = Arc::clone(&served);
        Ok(served)
    }

    fn look(&self, looks: impl IntoIterator<Item = Look>) {
        for Look { at, after } in looks {
            if after.is_zero() {
                self.queue.add(at);
            } else {
                self.queue.add_after(at, after);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The watches, one for each kind that is served.
struct Monitors {
    caches: Caches,
    /// By group and plural name.
    known: HashMap<(String, String), Monitor>,
    changes: SelectAll<BoxStream<'static, (Arc<Kind>, Change<Object>)>>,
}

struct Monitor {
    kind: Arc<Kind>,
    objects: usize,
    /// It is not served any more; the watch has yet to tell what became of its objects.
    leaving: bool,
    /// Ends the watch when it is dropped.
    _end: oneshot::Sender<()>,
}

impl Monitors {
    fn new(caches: Caches) -> Self {
        Self {
            caches,
            known: HashMap::new(),
            changes: SelectAll::new(),
        }
    }

    /// From now on the kinds that are served are watched.
    fn follow(&mut self, served: &Served, graph: &Mutex<Graph>) -> Vec<Look> {
        let mut looks = Vec::new();
        let shared = self.shared();
        for monitor in self.known.values_mut() {
            monitor.leaving = true;
        }
        for kind in served.collected() {
            match self.known.get_mut(&kind.name()) {
                Some(monitor) if monitor.kind.resource == kind.resource => monitor.leaving = false,
                Some(monitor) => {
                    looks.extend(lock(graph).forget(&monitor.kind));
                    self.start(kind, &shared);
                }
                None => self.start(kind, &shared),
            }
        }
        self.known
            .retain(|_, monitor| !monitor.leaving || monitor.objects > 0);
        looks
    }

    /// The kinds that somebody watches whole.
    fn shared(&self) -> HashSet<KindName> {
        let whole = Selection::all();
        let reports = self.caches.reports().into_iter();
        reports
            .filter(|report| report.selection == whole)
            .map(|report| report.kind)
            .collect()
    }

    /// Watches the metadata of a kind, as a part of what is watched anyway if there is such.
    fn start(&mut self, kind: &Arc<Kind>, shared: &HashSet<KindName>) {
        let (end, ended) = oneshot::channel();
        let whole = Selection::all();
        let selection = if shared.contains(&KindName::of::<Object>(&kind.resource)) {
            whole
        } else {
            whole.metadata_only()
        };
        let cache = self.caches.get_dynamic::<Object>(&kind.resource, &selection);
        let changes = stream::unfold(cache.subscribe(), |mut subscription| async move {
            let change = subscription.next().await?;
            Some((change, subscription))
        });
        let of_kind = Arc::clone(kind);
        let changes = changes
            .map(move |change| (Arc::clone(&of_kind), change))
            .take_until(ended);
        self.changes.push(changes.boxed());
        let monitor = Monitor {
            kind: Arc::clone(kind),
            objects: 0,
            leaving: false,
            _end: end,
        };
        self.known.insert(kind.name(), monitor);
    }

    /// Counts, and ends the watch of a kind that is gone with its last object.
    fn saw(&mut self, kind: &Kind, change: &Change<Object>) {
        let Some(monitor) = self.known.get_mut(&kind.name()) else {
            return;
        };
        match change {
            Change::Applied { old: None, .. } => monitor.objects += 1,
            Change::Applied { .. } => {}
            Change::Deleted { .. } => monitor.objects = monitor.objects.saturating_sub(1),
        }
        if monitor.leaving && monitor.objects == 0 {
            self.known.remove(&kind.name());
        }
    }
}

//! The garbage collector: deletes objects whose owners were deleted, with background, foreground and orphan propagation.
//!
//! ```text
//!   discovery ──► a metadata watch for each kind ──► Graph (owners and dependents) ──► WorkQueue of UIDs
//!       ▲                      │                                                            │
//!       └── a CRD changed ─────┘                 process: asks the server, then acts ◄──────┘
//! ```
//!
//! The watches are not synchronized with each other, so the graph only selects objects to process. Nothing is deleted
//! before the server has confirmed the graph. One task owns all of this.

mod graph;
mod process;

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
use windlass_cache::{CacheSet, Change, GroupVersionKind, Uid, WatchScope};
use windlass_runtime::{Error, Manager, TaskContext, events::Recorder};
use windlass_workqueue::WorkQueue;

use self::{
    graph::{Graph, Object, ProcessRequest},
    process::Outcome,
};
use super::kinds::{Kind, ServedKinds};

/// How many objects are processed concurrently, as in Kubernetes.
const WORKERS: usize = 20;

/// Source of the events.
const SOURCE: &str = "garbage-collector-controller";

/// The delay after a failed discovery.
const DISCOVERY_RETRY_DELAY: Duration = Duration::from_secs(1);

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
                    Ok(fresh) => collector.enqueue(monitors.sync(&fresh, &collector.graph)),
                    Err(error) => {
                        tracing::warn!("garbage collector: discovery failed, retrying: {error}");
                        tokio::select! {
                            () = &mut stopping => return Ok(()),
                            () = sleep(DISCOVERY_RETRY_DELAY) => {}
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
                let requests = collector.graph().observe(&kind, &change);
                collector.enqueue(requests);
                monitors.observe(&kind, &change);
            }
            Some(taken) = collector.queue.next(), if running.len() < WORKERS => {
                let collector = Arc::clone(&collector);
                running.push(async move {
                    let uid = *taken.key();
                    match collector.process(uid).await {
                        Ok(Outcome::Done) => taken.done(),
                        Ok(Outcome::Retry) => drop(taken.fail()),
                        Err(error) => {
                            tracing::debug!(?uid, "garbage collector: retrying: {error}");
                            taken.fail();
                        }
                    }
                }.boxed());
            }
            Some(()) = running.next() => {}
        }
    }
}

/// State shared by all workers.
struct Collector {
    client: Client,
    recorder: Recorder,
    queue: WorkQueue<Uid>,
    /// Never locked across an await.
    graph: Mutex<Graph>,
    served: Mutex<Arc<ServedKinds>>,
}

impl Collector {
    fn graph(&self) -> MutexGuard<'_, Graph> {
        lock(&self.graph)
    }

    fn served(&self) -> Arc<ServedKinds> {
        Arc::clone(&lock(&self.served))
    }

    async fn discover(&self) -> kube::Result<Arc<ServedKinds>> {
        let served = Arc::new(ServedKinds::discover(&self.client).await?);
        *lock(&self.served) = Arc::clone(&served);
        Ok(served)
    }

    fn enqueue(&self, requests: impl IntoIterator<Item = ProcessRequest>) {
        for ProcessRequest { uid, after } in requests {
            if after.is_zero() {
                self.queue.add(uid);
            } else {
                self.queue.add_after(uid, after);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The watches, one for each served kind.
struct Monitors {
    caches: CacheSet,
    /// By group and plural name.
    known: HashMap<(String, String), Monitor>,
    changes: SelectAll<BoxStream<'static, (Arc<Kind>, Change<Object>)>>,
}

struct Monitor {
    kind: Arc<Kind>,
    objects: usize,
    /// The kind is no longer served. The watch continues until all its objects are deleted.
    removed: bool,
    /// Ends the watch when it is dropped.
    _end: oneshot::Sender<()>,
}

impl Monitors {
    fn new(caches: CacheSet) -> Self {
        Self {
            caches,
            known: HashMap::new(),
            changes: SelectAll::new(),
        }
    }

    /// Starts watches for new kinds, and ends those of removed kinds.
    fn sync(&mut self, served: &ServedKinds, graph: &Mutex<Graph>) -> Vec<ProcessRequest> {
        let mut requests = Vec::new();
        let shared = self.cached_kinds();
        for monitor in self.known.values_mut() {
            monitor.removed = true;
        }
        for kind in served.collectable() {
            match self.known.get_mut(&kind.group_resource()) {
                Some(monitor) if monitor.kind.resource == kind.resource => monitor.removed = false,
                Some(monitor) => {
                    requests.extend(lock(graph).remove_kind(&monitor.kind));
                    self.start(kind, &shared);
                }
                None => self.start(kind, &shared),
            }
        }
        self.known
            .retain(|_, monitor| !monitor.removed || monitor.objects > 0);
        requests
    }

    /// Returns the kinds whose whole objects are cached already.
    fn cached_kinds(&self) -> HashSet<GroupVersionKind> {
        let whole = WatchScope::all();
        let reports = self.caches.reports().into_iter();
        reports
            .filter(|report| report.scope == whole)
            .map(|report| report.kind)
            .collect()
    }

    /// Watches the metadata of a kind. Shares an existing cache of whole objects, if there is one.
    fn start(&mut self, kind: &Arc<Kind>, shared: &HashSet<GroupVersionKind>) {
        let (end, ended) = oneshot::channel();
        let whole = WatchScope::all();
        let selection = if shared.contains(&GroupVersionKind::of::<Object>(&kind.resource)) {
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
            removed: false,
            _end: end,
        };
        self.known.insert(kind.group_resource(), monitor);
    }

    /// Counts objects, and ends the watch of a removed kind after its last object.
    fn observe(&mut self, kind: &Kind, change: &Change<Object>) {
        let Some(monitor) = self.known.get_mut(&kind.group_resource()) else {
            return;
        };
        match change {
            Change::Applied { old: None, .. } => monitor.objects += 1,
            Change::Applied { .. } => {}
            Change::Deleted { .. } => monitor.objects = monitor.objects.saturating_sub(1),
        }
        if monitor.removed && monitor.objects == 0 {
            self.known.remove(&kind.group_resource());
        }
    }
}

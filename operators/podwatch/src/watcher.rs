//! The watch of one kind: a controller whose reconcile reports changes.
//!
//! ```text
//!   watch ── tap ──► ChangeTracker ◄── open ── Watcher::reconcile ──► NoticeBuilder ──► Feed (notify or skip)
//!     └───── key ──► queue ───────────────────────┘
//! ```
//!
//! The queue orders keys and retries failures; [`ChangeTracker`] knows what happened, [`NoticeBuilder`] decides what to report.
//! Reporting never blocks: sinks have queues of their own.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use windlass::{
    cache::{CachedObject, ChangeQueue, Lister, ObjectKey, Query},
    kube::core::{ApiResource, DynamicObject},
    prelude::{Action, Context, Controller, Error, Reconciler, Request, Watch},
    runtime::Keyed,
};

use crate::{
    arguments::Scope,
    delivery::{CurrentState, Feed},
    journal::ObjectVersion,
    notice::{Notice, Observer},
    notice_builder::{Decision, MAX_PENDING_CHANGES, NoticeBuilder},
    tracker::{ChangeTracker, ObjectEvent},
};

/// Reports the changes of one kind's objects.
pub(crate) struct Watcher {
    tracker: Arc<ChangeTracker<DynamicObject>>,
    current: Arc<CachedState>,
    feed: Feed,
}

/// The current objects of one kind, read from the cache, for a sink that has fallen behind.
pub(crate) struct CachedState {
    builder: Arc<NoticeBuilder>,
    /// Set by the first reconcile.
    lister: OnceLock<Lister<DynamicObject>>,
}

impl CachedState {
    pub(crate) fn new(builder: &Arc<NoticeBuilder>) -> Arc<Self> {
        Arc::new(Self {
            builder: Arc::clone(builder),
            lister: OnceLock::new(),
        })
    }
}

/// A queue key of a watcher.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WatchKey {
    /// The start of reporting, also if there are no objects.
    Start,
    /// An object, which may be deleted.
    Object(ObjectKey),
}

impl fmt::Display for WatchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("(start)"),
            Self::Object(key) => key.fmt(f),
        }
    }
}

/// The controller that reports a kind's objects to `feed`.
pub(crate) fn controller(
    name: String,
    scope: &Scope,
    namespaced: bool,
    current: &Arc<CachedState>,
    feed: Feed,
) -> Controller<Keyed<WatchKey>, Watcher> {
    let capacity = if current.builder.every_change() {
        MAX_PENDING_CHANGES
    } else {
        0
    };
    let tracker = Arc::new(ChangeTracker::new(scope.known.iter().cloned(), capacity));
    let observer = Arc::clone(&tracker);
    let queue = ChangeQueue::new(capacity);
    let mut watch = Watch::dynamic(current.builder.resource().clone())
        .change_queue(queue.clone())
        .tap(move |change| {
            let coalesced = queue.coalesced_into_last();
            observer.observe(change, coalesced, change.latest().object().is_ok());
        });
    if !namespaced {
        watch = watch.cluster_scoped();
    }
    let known = scope.known.iter().cloned().map(WatchKey::Object);
    let first: Vec<_> = known.chain([WatchKey::Start]).collect();
    let objects = scope.apply_to(watch).map_key(|key| WatchKey::Object(key.clone()));
    Controller::keyed(name)
        .watch(objects)
        .field_manager("podwatch")
        .concurrency(scope.workers)
        .triggered_by(futures::stream::iter(first))
        .reconcile(Watcher {
            tracker,
            current: Arc::clone(current),
            feed,
        })
}

impl Reconciler<WatchKey> for Watcher {
    async fn reconcile(&self, request: Request<WatchKey>, ctx: Context<WatchKey>) -> Result<Action, Error> {
        let kind: &ApiResource = self.current.builder.resource();
        let lister = ctx.dynamic_lister::<DynamicObject>(kind)?;
        self.current.lister.get_or_init(|| lister.clone());
        match &request.key {
            WatchKey::Start => self.tracker.start(),
            WatchKey::Object(key) => {
                // An object that does not decode must not be taken for deleted.
                lister.try_get(key).map_err(Error::terminal)?;
                self.report(key)?;
            }
        }
        if self.tracker.initial_just_reported() {
            self.feed.initial_list_done();
        }
        Ok(Action::done())
    }
}

impl Watcher {
    /// Reports the unreported changes of an object.
    fn report(&self, key: &ObjectKey) -> Result<(), Error> {
        let changes = self.tracker.open(key);
        let events = changes.events();
        for (step, coalesced) in &events {
            let decision = self.current.builder.decide(key, step, *coalesced);
            match decision.map_err(Error::terminal)? {
                // A sink whose queue is full catches up later.
                Decision::Report(notice) => drop(self.feed.notify(notice)),
                Decision::Suppress => self.skip(key, step),
            }
        }
        changes.commit();
        let coalesced: u64 = events.iter().map(|(_, coalesced)| coalesced).sum();
        let dropped = self.tracker.take_dropped();
        self.current.builder.count_coalesced(coalesced + dropped);
        Ok(())
    }

    /// Advances the sinks' progress over a change that is not reported.
    fn skip(&self, key: &ObjectKey, step: &ObjectEvent<DynamicObject>) {
        let version = |stored: &CachedObject<DynamicObject>| ObjectVersion::from_meta(stored.meta());
        let (old, new) = match step {
            ObjectEvent::Synced(new) | ObjectEvent::Added(new) => (None, Some(version(new))),
            ObjectEvent::Updated { old, new } => (Some(version(old)), Some(version(new))),
            ObjectEvent::Deleted { old, .. } => (Some(version(old)), None),
            ObjectEvent::Missing => return,
        };
        self.feed.skip(key, old.as_ref(), new.as_ref());
    }
}

impl CurrentState for CachedState {
    fn versions(&self) -> Vec<ObjectVersion> {
        let Some(lister) = self.lister.get() else {
            return Vec::new();
        };
        let stored = lister.list_cached(&Query::all());
        stored
            .iter()
            .map(|object| ObjectVersion::from_meta(object.meta()))
            .collect()
    }

    fn read(&self, key: &ObjectKey) -> Option<Arc<Notice>> {
        let stored = self.lister.get()?.get_cached(key)?;
        self.builder.synced(&stored).ok().map(Arc::new)
    }

    fn accepts(&self, notice: &Notice) -> bool {
        self.builder.accepts(notice)
    }
}

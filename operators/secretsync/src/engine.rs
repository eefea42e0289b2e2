//! State shared by all parts: the desired copies, the existing copies, the results, and the queue.
//!
//! ```text
//!   watches ──► SyncIndex, copies ──┐
//!      └── jobs ──► queue ──► copy ─┼──► requests
//!                          status ◄── WorkTracker
//! ```

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, OnceLock, atomic::AtomicBool},
};

use parking_lot::{Mutex, RwLock};
use windlass::{
    cache::{Index, Lister, Query},
    prelude::{Action, Context, Error, ObjectKey, Reconciler, Request},
    runtime::{ChangedObject, SourceContext},
    workqueue::Priority,
};

use crate::{
    api::{SecretSync, SourceKind},
    copy_metadata::CopyMetadata,
    identity::{Job, SyncId, SyncOwner},
    metrics::SyncMetrics,
    removal_guard::RemovalGuard,
    sync_index::{Affected, OperatorConfig, SyncIndex},
    sync_status::StatusWrite,
    target_events::TargetEvents,
    unanswered::Unanswered,
    work_tracker::WorkTracker,
};

/// How many statuses may be written at the same time.
const STATUS_TURNS: usize = 64;

/// The shared state of the controller.
pub(crate) struct Engine {
    pub(crate) index: RwLock<SyncIndex>,
    pub(crate) tracker: Mutex<WorkTracker>,
    pub(crate) metrics: SyncMetrics,
    pub(crate) removals: RemovalGuard,
    /// Locked while a status is computed and written, a sync's always the same one: otherwise a status that was computed before a
    /// plan of removals could overwrite it.
    status_turns: [tokio::sync::Mutex<()>; STATUS_TURNS],
    /// Limits the events in target namespaces about what was done, and about failures.
    pub(crate) action_events: TargetEvents,
    pub(crate) failure_events: TargetEvents,
    pub(crate) unanswered: Unanswered,
    /// Set before the first reconcile.
    pub(crate) listers: OnceLock<Listers>,
    /// Set before the first change is reported.
    source_context: OnceLock<SourceContext<Job>>,
    /// When the status of each SecretSync was last written.
    pub(crate) status_writes: Mutex<HashMap<SyncId, StatusWrite>>,
    /// Whether this process is the leader.
    pub(crate) is_leader: AtomicBool,
}

/// The caches that reconciles read.
pub(crate) struct Listers {
    pub(crate) secrets: CopyLister,
    pub(crate) config_maps: CopyLister,
    pub(crate) syncs: Lister<SecretSync>,
}

/// The copies of a kind.
pub(crate) struct CopyLister {
    lister: Lister<CopyMetadata>,
    /// Indexed by SecretSync, since a namespace may have many copies.
    declared: Index<CopyMetadata>,
}

impl CopyLister {
    pub(crate) fn new(lister: Lister<CopyMetadata>) -> Self {
        let declared = lister.cache().index_by(|copy| match copy.owner.as_deref() {
            Some(SyncOwner::Sync { namespace, name, .. }) => vec![format!("{namespace}/{name}")],
            // An annotated source has at most one copy per namespace, with its own name.
            Some(SyncOwner::Annotation { .. }) | None => Vec::new(),
        });
        Self { lister, declared }
    }

    /// Returns the copy of this name.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<CopyMetadata>> {
        self.lister.get(key)
    }

    /// Returns the copies of a SecretSync, in one namespace or in all.
    pub(crate) fn of_sync(
        &self,
        sync: &ObjectKey,
        within: Option<&str>,
    ) -> Vec<(ObjectKey, Arc<CopyMetadata>)> {
        let mut query = Query::all().indexed(&self.declared, &sync.to_string());
        if let Some(namespace) = within {
            query = query.namespace(namespace);
        }
        self.list(&query)
    }

    /// Returns all copies, whatever wrote them.
    pub(crate) fn all(&self) -> Vec<(ObjectKey, Arc<CopyMetadata>)> {
        self.list(&Query::all())
    }

    fn list(&self, query: &Query) -> Vec<(ObjectKey, Arc<CopyMetadata>)> {
        let found = self.lister.list_cached(query);
        let copies = found
            .iter()
            .map(|stored| Some((stored.key().clone(), stored.object().ok()?)));
        copies.flatten().collect()
    }
}

impl Listers {
    pub(crate) fn copies(&self, kind: SourceKind) -> &CopyLister {
        match kind {
            SourceKind::Secret => &self.secrets,
            SourceKind::ConfigMap => &self.config_maps,
        }
    }
}

/// Why an item is enqueued.
#[derive(Clone)]
pub(crate) enum Cause {
    /// The object was in the initial list.
    Initial,
    /// A source or a SecretSync's spec changed: the time until all copies are written is measured.
    Change(Changed),
    Other(Changed),
}

/// The object that changed, if the cause is one.
pub(crate) type Changed = Option<Arc<ChangedObject>>;

impl Cause {
    pub(crate) fn changed(&self) -> Option<&Arc<ChangedObject>> {
        match self {
            Self::Initial => None,
            Self::Change(changed) | Self::Other(changed) => changed.as_ref(),
        }
    }
}

impl Engine {
    pub(crate) fn new(scope: OperatorConfig, metrics: SyncMetrics) -> Self {
        Self {
            removals: RemovalGuard::new(scope.limits.removal_percent),
            status_turns: std::array::from_fn(|_| tokio::sync::Mutex::default()),
            action_events: TargetEvents::new(),
            failure_events: TargetEvents::new(),
            unanswered: Unanswered::default(),
            index: RwLock::new(SyncIndex::new(scope)),
            tracker: Mutex::new(WorkTracker::new()),
            metrics,
            listers: OnceLock::new(),
            source_context: OnceLock::new(),
            status_writes: Mutex::default(),
            is_leader: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_source_context(&self, source: &SourceContext<Job>) {
        // Set once in the lifetime of a controller.
        let _ = self.source_context.set(source.clone());
    }

    pub(crate) fn listers(&self) -> &Listers {
        self.listers
            .get()
            .expect("no reconcile starts before the watches are complete")
    }

    pub(crate) fn add(&self, job: Job, priority: Priority, changed: Option<&Arc<ChangedObject>>) {
        let Some(source) = self.source_context.get() else {
            return;
        };
        match changed {
            Some(changed) => source.add_changed(job, priority, changed),
            None => source.add(job, priority),
        }
    }

    /// Updates the index, and enqueues the affected items.
    ///
    /// The items are recorded as pending before the change becomes visible: otherwise a sync could look finished.
    pub(crate) fn update_index<T>(
        &self,
        cause: &Cause,
        change: impl FnOnce(&mut SyncIndex) -> (Vec<Affected>, T),
    ) -> T {
        let mut index = self.index.write();
        let (affected, rest) = change(&mut index);
        self.mark_pending(&affected, cause);
        drop(index);
        self.enqueue_jobs(affected, cause);
        rest
    }

    /// Enqueues items although the index is unchanged.
    pub(crate) fn enqueue(&self, affected: Vec<Affected>, cause: &Cause) {
        self.mark_pending(&affected, cause);
        self.enqueue_jobs(affected, cause);
    }

    fn mark_pending(&self, affected: &[Affected], cause: &Cause) {
        let mut tracker = self.tracker.lock();
        for Affected { sync, namespace, .. } in affected {
            tracker.mark_pending(sync, namespace, matches!(cause, Cause::Change(_)));
        }
    }

    /// Removals get a higher priority than additions.
    fn enqueue_jobs(&self, affected: Vec<Affected>, cause: &Cause) {
        for Affected {
            sync,
            namespace,
            is_removal,
        } in affected
        {
            let priority = match cause {
                _ if is_removal => Priority::HIGH,
                Cause::Initial => Priority::LOW,
                Cause::Change(_) | Cause::Other(_) => Priority::NORMAL,
            };
            self.add(Job::Copy { sync, namespace }, priority, cause.changed());
        }
    }

    /// Enqueues a sync's status, and the finalizer of a SecretSync, with a higher priority than its many copies.
    pub(crate) fn enqueue_status(&self, sync: &SyncId, changed: Option<&Arc<ChangedObject>>) {
        let job = match sync {
            SyncId::Declared { namespace, name } => Job::Status {
                namespace: Arc::clone(namespace),
                name: Arc::clone(name),
            },
            SyncId::Annotated { kind, name } => Job::SourceStatus {
                kind: *kind,
                name: Arc::clone(name),
            },
        };
        self.add(job, Priority::HIGH, changed);
    }

    /// Waits until no other status of this sync is being written. Some syncs share a turn.
    pub(crate) async fn status_turn(&self, sync: &SyncId) -> tokio::sync::MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        sync.hash(&mut hasher);
        let shard = hasher.finish() % STATUS_TURNS as u64;
        let shard = usize::try_from(shard).expect("it is less than the number of turns");
        self.status_turns[shard].lock().await
    }

    /// Returns the sync that a copy belongs to, if this process is responsible for it.
    pub(crate) fn sync_of_copy(&self, kind: SourceKind, name: &str, copy: &CopyMetadata) -> Option<SyncId> {
        let mark = copy.owner.as_deref()?;
        if let SyncOwner::Annotation { source_namespace } = mark
            && *source_namespace != self.index.read().config.source_namespace
        {
            return None;
        }
        Some(mark.sync_id(kind, name))
    }
}

/// The controller's reconciler.
pub(crate) struct SyncReconciler(pub(crate) Arc<Engine>);

impl Reconciler<Job> for SyncReconciler {
    async fn reconcile(&self, request: Request<Job>, ctx: Context<Job>) -> Result<Action, Error> {
        match request.key {
            Job::Copy { sync, namespace } => self.0.sync_namespace(&sync, &namespace, &ctx).await,
            Job::Status { namespace, name } => self.0.reconcile_status(&namespace, &name, &ctx).await,
            Job::SourceStatus { kind, name } => self.0.reconcile_source_status(kind, &name, &ctx).await,
            Job::Consent { namespace } => Ok(self.0.report_consent_errors(&namespace, &ctx)),
        }
    }
}

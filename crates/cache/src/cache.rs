//! A cache of one kind: the owner of its watches, and the way from "started" to "readable".

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::FutureExt;
use kube::Client;
use parking_lot::Mutex;
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use crate::{
    backoff::Backoff,
    connection_log::ConnectionLog,
    core::{CacheError, Core, SyncFailure},
    driver,
    entry::Decode,
    index::{Index, Indexer},
    ingest::Ingested,
    kind::{Cacheable, GroupVersionKind, WatchScope},
    lister::Lister,
    pack_queue::run_packer,
    protocol::ListWatch,
    scan::Cursor,
    settings::{Settings, UntypedSettings},
    stats::Stats,
    store::{NamespaceScope, StagedObjects},
    subscription::Subscription,
    target::Target,
};

/// A cache of one kind, read as `T`s. It may not be complete yet.
///
/// It has no read methods: [`synced`](Self::synced) returns the [`Lister`] that has. Clones share one watch, which ends
/// when the last clone, lister and subscription are gone, or with [`close`](Self::close).
pub struct Cache<T> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) decode: Decode<T>,
}

impl<K: Cacheable> Cache<K> {
    /// Starts to list and watch the objects in this scope. Must be called within a tokio runtime.
    pub fn start(client: Client, scope: &WatchScope) -> Self
    where
        K::DynamicType: Default,
    {
        Self::start_dynamic(client, &K::DynamicType::default(), scope)
    }

    /// Like [`start`](Self::start) for a type that gets its kind at run time.
    pub fn start_dynamic(client: Client, dynamic: &K::DynamicType, scope: &WatchScope) -> Self {
        Cache::start_with(client, dynamic, scope, Settings::<K>::compact())
    }
}

impl<V: Send + Sync + 'static> Cache<V> {
    /// Like [`start`](Cache::start), with settings. `dynamic` is `&()` for static types.
    pub fn start_with<K: Cacheable>(
        client: Client,
        dynamic: &K::DynamicType,
        selection: &WatchScope,
        settings: Settings<K, V>,
    ) -> Self {
        let target = Target::of::<K>(dynamic, selection, K::metadata_api());
        Self {
            shared: Shared::start(
                client,
                GroupVersionKind::of::<K>(dynamic),
                target,
                settings.untyped,
                None,
                Arc::default(),
            ),
            decode: settings.decode,
        }
    }

    /// Returns the cached kind.
    pub fn kind(&self) -> &GroupVersionKind {
        &self.shared.core.kind
    }

    /// Waits for the first complete list and returns a lister (client-go's `WaitForCacheSync`).
    ///
    /// The error names what is missing and the last error. Cancellation-safe.
    pub async fn synced(&self, deadline: Duration) -> Result<Lister<V>, SyncError> {
        let mut progress = self.shared.core.progress.subscribe();
        let kind = || self.kind().clone();
        let outcome = timeout(
            deadline,
            progress.wait_for(|progress| progress.is_complete() || progress.closed),
        )
        .await;
        match outcome {
            Ok(Ok(progress)) if progress.is_complete() => {}
            Ok(_) => return Err(SyncError::Closed { kind: kind() }),
            Err(_) => {
                return Err(SyncError::Deadline {
                    kind: kind(),
                    waited: deadline,
                    missing: self.shared.core.progress.borrow().missing(),
                });
            }
        }
        Ok(Lister { cache: self.clone() })
    }

    /// Returns the error that currently keeps the cache from following the server; `None` while it follows.
    pub fn last_error(&self) -> Option<String> {
        self.shared.core.last_error()
    }

    /// Returns why the first list is not complete, once for each namespace; empty if it is, or if the server has not
    /// answered yet.
    pub fn sync_failures(&self) -> Vec<SyncFailure> {
        self.shared.core.sync_failures()
    }

    /// Logs errors before the first complete list at debug level only: the caller reports its
    /// [`sync_failures`](Self::sync_failures), perhaps together with those of other caches.
    pub fn quiet_until_synced(&self) {
        let quiet = &self.shared.core.quiet_until_synced;
        quiet.store(true, Ordering::Relaxed);
    }

    /// Subscribes to all current objects and every later change.
    pub fn subscribe(&self) -> Subscription<V> {
        Subscription {
            buffer: self.shared.core.store.subscribe(),
            core: Arc::clone(&self.shared.core),
            decode: self.decode,
            resync: None,
            _cache: Arc::clone(&self.shared) as _,
        }
    }

    /// Returns an index, built from the current objects. A second call with the same indexer returns the same index. It
    /// lives as long as the cache.
    pub fn index(&self, by: Indexer<V>) -> Index<V> {
        Index::of(self.shared.core.store.index(by))
    }

    /// Returns an index by the values that a function returns for each object. Decodes each object once per state.
    pub fn index_by(&self, values: impl Fn(&V) -> Vec<String> + Send + Sync + 'static) -> Index<V> {
        self.index(Indexer::function(self.decode, values))
    }

    /// Returns a view of the same objects as another type, for example `DynamicObject` or `PartialObjectMeta`. Nothing
    /// is stored twice. The type must be of the same kind.
    pub fn view<W: Cacheable>(&self) -> Cache<W> {
        Cache {
            shared: Arc::clone(&self.shared),
            decode: crate::settings::decode::<W>,
        }
    }

    /// Changes the cached namespaces for every user of this cache. Watches of other namespaces end and their objects
    /// are removed; watches of new ones start. A later request to [`CacheSet`](crate::CacheSet) for the old namespaces
    /// gets another cache. Has no effect for cluster-scoped kinds and for caches of all namespaces.
    pub fn set_namespaces(&self, namespaces: impl IntoIterator<Item = impl Into<String>>) {
        self.shared
            .set_namespaces(namespaces.into_iter().map(Into::into).collect());
    }

    /// Returns the statistics of this cache.
    pub fn stats(&self) -> Stats {
        self.shared.core.stats()
    }

    /// Ends the watch for every user of this cache and waits until its tasks are gone. Listers keep their last state;
    /// subscriptions end.
    pub async fn close(&self) {
        let tasks = std::mem::take(&mut *self.shared.tasks.lock());
        for mut task in tasks.into_values() {
            task.0.abort();
            let _ = (&mut task.0).await;
        }
        self.shared.core.close();
        let packing = self.shared.packing.lock().take();
        if let Some(mut packing) = packing {
            // It was stopped above; wait until it has finished its current batch.
            let _ = (&mut packing.0).await;
        }
    }
}

impl<T> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            decode: self.decode,
        }
    }
}

/// Why [`Cache::synced`] failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyncError {
    /// The first list was not complete in time.
    #[error("{kind} was not listed within {waited:?}: {missing}")]
    Deadline {
        /// The cached kind.
        kind: GroupVersionKind,
        /// The deadline.
        waited: Duration,
        /// What is missing, and the last error.
        missing: String,
    },
    /// The cache was closed.
    #[error("the cache of {kind} was closed")]
    Closed {
        /// The cached kind.
        kind: GroupVersionKind,
    },
}

/// The state that the users of a cache own together.
pub(crate) struct Shared {
    pub(crate) core: Arc<Core>,
    /// `None` for fixed objects, which nothing changes.
    client: Option<Client>,
    pub(crate) target: Target,
    closing: Option<watch::Sender<bool>>,
    /// One driver for each scope.
    tasks: Mutex<BTreeMap<NamespaceScope, Task>>,
    /// Packs the objects that the drivers stored; `None` for a projection, which keeps no JSON.
    packing: Mutex<Option<Task>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // A blocking thread cannot be aborted, only asked to stop.
        self.core.pack_queue.stop();
    }
}

/// A task that is aborted on drop.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Shared {
    /// Starts a cache that also ends when `closing` becomes true. Its tasks drop their receivers when they end.
    pub(crate) fn start(
        client: Client,
        kind: GroupVersionKind,
        target: Target,
        keeping: UntypedSettings,
        closing: Option<watch::Sender<bool>>,
        connection: Arc<ConnectionLog>,
    ) -> Arc<Self> {
        let packs = keeping.keep_json;
        let core = Arc::new(Core::new(kind, keeping).of_server(connection, &target));
        let scopes = target.scopes();
        let receiver = closing.as_ref().map(watch::Sender::subscribe);
        let reader = client.clone();
        let fresh = Arc::clone(&core.pack_queue);
        let packing = packs.then(|| {
            Task(tokio::spawn(async move {
                run_packer(fresh).await;
                // Held until here, so that `CacheSet::close` waits for this task too.
                drop(receiver);
            }))
        });
        let shared = Arc::new(Self {
            core,
            client: Some(client),
            target,
            closing,
            tasks: Mutex::default(),
            packing: Mutex::new(packing),
        });
        // Register all scopes first: otherwise the first complete one would make the cache look complete.
        for scope in &scopes {
            shared.core.add_scope(scope);
        }
        let mut tasks = shared.tasks.lock();
        for scope in scopes {
            let task = shared.spawn_driver(reader.clone(), &scope);
            tasks.insert(scope, task);
        }
        drop(tasks);
        shared
    }

    /// A cache of these objects only, without a server and without tasks.
    pub(crate) fn fixed(
        kind: GroupVersionKind,
        target: Target,
        objects: &[Vec<u8>],
    ) -> Result<Arc<Self>, String> {
        let core = Core::new(kind, UntypedSettings::default());
        let scope = NamespaceScope::from("");
        core.add_scope(&scope);
        let mut staged = StagedObjects::new();
        for text in objects {
            let found = Cursor::new(text).object().map_err(|_| "it is not an object")?;
            match core.ingest.lock().make_entry(text, &found) {
                Ingested::Object(entry) => drop(staged.insert(entry.meta.key.clone(), Some(entry))),
                Ingested::Invalid(invalid) => return Err(invalid.error),
            }
        }
        core.store.replace(&scope, staged, "");
        core.mark_complete(&scope);
        Ok(Arc::new(Self {
            core: Arc::new(core),
            client: None,
            target,
            closing: None,
            tasks: Mutex::default(),
            packing: Mutex::default(),
        }))
    }

    fn spawn_driver(&self, client: Client, scope: &NamespaceScope) -> Task {
        let core = Arc::clone(&self.core);
        let (target, scope) = (self.target.clone(), Arc::clone(scope));
        let mut closing = self.closing.as_ref().map(watch::Sender::subscribe);
        Task(tokio::spawn(async move {
            tokio::select! {
                () = run_driver(client, target, scope, Arc::clone(&core)) => {}
                () = wait_for_close(closing.as_mut()) => core.close(),
            }
        }))
    }

    /// Returns the current scope: namespaces may have changed since the start.
    pub(crate) fn watch_scope(&self) -> WatchScope {
        let mut selection = self.target.watch_scope.clone();
        let tasks = self.tasks.lock();
        if let Some(namespaces) = &mut selection.namespaces
            && !tasks.contains_key("")
            && !tasks.is_empty()
        {
            *namespaces = tasks.keys().map(|scope| (**scope).to_owned()).collect();
        }
        selection
    }

    fn set_namespaces(&self, wanted: BTreeSet<String>) {
        let mut tasks = self.tasks.lock();
        let Some(client) = self.client.as_ref().filter(|_| !tasks.contains_key("")) else {
            return;
        };
        let removed: Vec<NamespaceScope> = tasks
            .keys()
            .filter(|scope| !wanted.contains(&***scope))
            .cloned()
            .collect();
        for scope in wanted {
            if let Entry::Vacant(vacant) = tasks.entry(NamespaceScope::from(scope)) {
                self.core.add_scope(vacant.key());
                let task = self.spawn_driver(client.clone(), vacant.key());
                vacant.insert(task);
            }
        }
        for scope in removed {
            drop(tasks.remove(&scope));
            self.core.remove_scope(&scope);
        }
    }
}

/// Waits until the set is closed. Never returns for a cache without a set, or whose set was dropped: only its users
/// keep it alive.
async fn wait_for_close(closing: Option<&mut watch::Receiver<bool>>) {
    if let Some(closing) = closing
        && closing.wait_for(|closing| *closing).await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Runs the driver of a scope until it is cancelled. A driver that panics is replaced by a new one, which lists again;
/// until then the cache keeps its last state, as it does when the server cannot be reached.
async fn run_driver(client: Client, target: Target, scope: NamespaceScope, core: Arc<Core>) {
    let mut backoff = Backoff::new(fastrand::Rng::new());
    loop {
        let now = tokio::time::Instant::now().into_std();
        let protocol = ListWatch::new(fastrand::Rng::new(), now).when_unserved(core.when_unserved);
        let protocol = if core.watch_list {
            protocol
        } else {
            protocol.without_watch_list()
        };
        let driver = driver::run(
            client.clone(),
            target.clone(),
            Arc::clone(&scope),
            Arc::clone(&core),
            protocol,
        );
        if let Err(panic) = AssertUnwindSafe(driver).catch_unwind().await {
            core.record_error(&scope, CacheError::Panic(&*panic), None);
        }
        let delay = backoff.next(tokio::time::Instant::now().into_std());
        tokio::time::sleep(delay).await;
    }
}

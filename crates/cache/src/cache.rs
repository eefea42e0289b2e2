//! A cache of one kind: who owns the watches, and how to get from "started" to "readable".

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures::FutureExt;
use kube::Client;
use parking_lot::Mutex;
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use crate::{
    backoff::Backoff,
    core::{Core, Trouble},
    driver,
    entry::Decode,
    fresh::keep_packed,
    index::{Index, IndexBy},
    kind::{Cacheable, KindName, Selection},
    lister::Lister,
    protocol::ListWatch,
    settings::{Keeping, Settings},
    stats::Stats,
    store::Scope,
    subscription::Subscription,
    target::Target,
};

/// A cache of one kind that keeps itself current, possibly not complete yet, read as `T`s.
///
/// There is nothing to read here: [`synced`](Self::synced) gives the [`Lister`] that can. Clones share one watch.
/// It ends when the last clone, lister and subscription are gone, or with [`close`](Self::close).
pub struct Cache<T> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) decode: Decode<T>,
}

impl<K: Cacheable> Cache<K> {
    /// Starts to list and watch the selected objects. Must be called within a tokio runtime.
    pub fn start(client: Client, selection: &Selection) -> Self
    where
        K::DynamicType: Default,
    {
        Self::start_dynamic(client, &K::DynamicType::default(), selection)
    }

    /// Like [`start`](Self::start) for a type that learns its kind at run time.
    pub fn start_dynamic(client: Client, dynamic: &K::DynamicType, selection: &Selection) -> Self {
        Cache::start_with(client, dynamic, selection, Settings::<K>::compact())
    }
}

impl<V: Send + Sync + 'static> Cache<V> {
    /// Like [`start`](Cache::start), with settings. `dynamic` is `&()` for types that know their kind.
    pub fn start_with<K: Cacheable>(
        client: Client,
        dynamic: &K::DynamicType,
        selection: &Selection,
        settings: Settings<K, V>,
    ) -> Self {
        let target = Target::of::<K>(dynamic, selection, K::metadata_api());
        Self {
            shared: Shared::start(client, KindName::of::<K>(dynamic), target, settings.keeping, None),
            decode: settings.decode,
        }
    }

    /// Which kind is cached.
    pub fn kind(&self) -> &KindName {
        &self.shared.core.kind
    }

    /// Waits until the cache holds everything that was there when it started, and gives the means to read it.
    ///
    /// The error says what is missing and the last thing that went wrong. Cancellation-safe.
    pub async fn synced(&self, deadline: Duration) -> Result<Lister<V>, SyncError> {
        let mut progress = self.shared.core.progress.subscribe();
        let kind = || self.kind().clone();
        let outcome = timeout(
            deadline,
            progress.wait_for(|progress| progress.is_complete() || progress.ended),
        )
        .await;
        match outcome {
            Ok(Ok(progress)) if progress.is_complete() => {}
            Ok(_) => return Err(SyncError::Ended { kind: kind() }),
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

    /// What currently keeps the cache from following the server, in one line; `None` if nothing does.
    pub fn trouble(&self) -> Option<String> {
        self.shared.core.current_trouble()
    }

    /// All objects as they are now, and every change from now on.
    pub fn subscribe(&self) -> Subscription<V> {
        Subscription {
            buffer: self.shared.core.store.subscribe(),
            core: Arc::clone(&self.shared.core),
            decode: self.decode,
            resync: None,
            _cache: Arc::clone(&self.shared) as _,
        }
    }

    /// An index, filled at once from what is there; asking again for the same one gives the same. It lives as long as
    /// the cache.
    pub fn index(&self, by: IndexBy<V>) -> Index<V> {
        Index::of(self.shared.core.store.index(by))
    }

    /// An index by what a function says of each object, which is decoded for that once per state.
    pub fn index_by(&self, values: impl Fn(&V) -> Vec<String> + Send + Sync + 'static) -> Index<V> {
        self.index(IndexBy::function(self.decode, values))
    }

    /// The same objects read as another type, for example as `DynamicObject` or `PartialObjectMeta`; nothing is
    /// stored twice. It must be a type of the same kind.
    pub fn view<W: Cacheable>(&self) -> Cache<W> {
        Cache {
            shared: Arc::clone(&self.shared),
            decode: crate::settings::decode::<W>,
        }
    }

    /// From now on these namespaces are cached, for every user of this cache: others end, and their objects with them;
    /// new ones start. Who asks [`Caches`](crate::Caches) for the old set gets a cache of its own. Says nothing for kinds that live outside namespaces, nor for a cache of all namespaces.
    pub fn set_namespaces(&self, namespaces: impl IntoIterator<Item = impl Into<String>>) {
        self.shared
            .set_namespaces(namespaces.into_iter().map(Into::into).collect());
    }

    /// The figures of this cache.
    pub fn stats(&self) -> Stats {
        self.shared.core.stats()
    }

    /// Ends the watch for every user of this cache and waits until its tasks are gone. Listers keep what they have;
    /// subscriptions end.
    pub async fn close(&self) {
        let tasks = std::mem::take(&mut *self.shared.tasks.lock());
        for mut task in tasks.into_values() {
            task.0.abort();
            // It was aborted.
            let _ = (&mut task.0).await;
        }
        self.shared.core.end();
        let packing = self.shared.packing.lock().take();
        if let Some(mut packing) = packing {
            // It was told to end, and is waited for with what it has begun.
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

/// Why a cache could not be read in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyncError {
    /// The first list did not come in time.
    #[error("{kind} was not listed within {waited:?}: {missing}")]
    Deadline {
        /// Which kind.
        kind: KindName,
        /// How long it was waited for.
        waited: Duration,
        /// What is missing, and the last thing that went wrong.
        missing: String,
    },
    /// The cache was closed.
    #[error("the cache of {kind} has ended")]
    Ended {
        /// Which cache.
        kind: KindName,
    },
}

/// What the users of a cache own together.
pub(crate) struct Shared {
    pub(crate) core: Arc<Core>,
    client: Client,
    pub(crate) target: Target,
    closing: Option<watch::Sender<bool>>,
    /// One for each scope.
    tasks: Mutex<BTreeMap<Scope, Task>>,
    /// Makes small what the drivers took; none where nothing is kept that could be packed.
    packing: Mutex<Option<Task>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // A thread that packs cannot be aborted, only told.
        self.core.fresh.stop();
    }
}

/// A task of the cache; it does not outlive its owner.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Shared {
    /// Starts a cache that also ends when `closing` turns true; no receiver is left when its tasks are gone.
    pub(crate) fn start(
        client: Client,
        kind: KindName,
        target: Target,
        keeping: Keeping,
        closing: Option<watch::Sender<bool>>,
    ) -> Arc<Self> {
        let packs = keeping.text;
        let core = Arc::new(Core::new(kind, keeping));
        let scopes = target.scopes();
        let receiver = closing.as_ref().map(watch::Sender::subscribe);
        let fresh = Arc::clone(&core.fresh);
        let packing = packs.then(|| {
            Task(tokio::spawn(async move {
                keep_packed(fresh).await;
                // Held until then: whoever waits for the end of all tasks waits for this one too.
                drop(receiver);
            }))
        });
        let shared = Arc::new(Self {
            core,
            client,
            target,
            closing,
            tasks: Mutex::default(),
            packing: Mutex::new(packing),
        });
        // All are known before one is complete, or the first would make the cache look complete.
        for scope in &scopes {
            shared.core.open(scope);
        }
        let mut tasks = shared.tasks.lock();
        for scope in scopes {
            let task = shared.follow(&scope);
            tasks.insert(scope, task);
        }
        drop(tasks);
        shared
    }

    fn follow(&self, scope: &Scope) -> Task {
        let core = Arc::clone(&self.core);
        let (client, target, scope) = (self.client.clone(), self.target.clone(), Arc::clone(scope));
        let mut closing = self.closing.as_ref().map(watch::Sender::subscribe);
        Task(tokio::spawn(async move {
            tokio::select! {
                () = drive(client, target, scope, Arc::clone(&core)) => {}
                () = asked_to_close(closing.as_mut()) => core.end(),
            }
        }))
    }

    /// What is cached now: namespaces may have come and gone.
    pub(crate) fn selection(&self) -> Selection {
        let mut selection = self.target.selection.clone();
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
        if tasks.contains_key("") {
            return;
        }
        let gone: Vec<Scope> = tasks
            .keys()
            .filter(|scope| !wanted.contains(&***scope))
            .cloned()
            .collect();
        for scope in wanted {
            if let Entry::Vacant(vacant) = tasks.entry(Scope::from(scope)) {
                self.core.open(vacant.key());
                let task = self.follow(vacant.key());
                vacant.insert(task);
            }
        }
        for scope in gone {
            drop(tasks.remove(&scope));
            self.core.abandon(&scope);
        }
    }
}

/// Never returns for a cache that is not part of a set, or whose set is gone: such a one lives by its users alone.
async fn asked_to_close(closing: Option<&mut watch::Receiver<bool>>) {
    if let Some(closing) = closing
        && closing.wait_for(|closing| *closing).await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Follows a scope for as long as it is polled. A driver that panics is replaced by a new one, which lists again: until
/// then the cache shows what it has, as it does when the server cannot be reached.
async fn drive(client: Client, target: Target, scope: Scope, core: Arc<Core>) {
    let mut backoff = Backoff::new(fastrand::Rng::new());
    loop {
        let now = tokio::time::Instant::now().into_std();
        let protocol = ListWatch::new(fastrand::Rng::new(), now);
        let protocol = if core.streaming {
            protocol
        } else {
            protocol.listing()
        };
        let driver = driver::run(
            client.clone(),
            target.clone(),
            Arc::clone(&scope),
            Arc::clone(&core),
            protocol,
        );
        if let Err(panic) = AssertUnwindSafe(driver).catch_unwind().await {
            core.trouble(&scope, Trouble::Panic(&*panic));
        }
        let delay = backoff.next(tokio::time::Instant::now().into_std());
        tokio::time::sleep(delay).await;
    }
}

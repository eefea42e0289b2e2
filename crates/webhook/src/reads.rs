//! The caches that handlers read.
//!
//! They are those of the manager, so a kind that a controller watches is not watched again. A handler is called once all have
//! synced; conversions do not wait, because a cache may need one to sync.

use std::{
    any::{Any, type_name},
    fmt,
    sync::Arc,
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, try_join_all},
};
use tokio::sync::OnceCell;
use windlass_cache::{
    Cache, CacheSet, Cacheable, GroupVersionKind, Lister, SyncError, WatchScope, is_cluster_scoped,
};
use windlass_runtime::Error;

/// More than any request waits, which has a deadline of its own.
const SYNC_WAIT: Duration = Duration::from_mins(1);

/// Declared reads, before there is a cache.
#[derive(Default)]
pub(crate) struct Reads(Vec<Start>);

type Start = Box<dyn Fn(&CacheSet, &WatchScope) -> Box<dyn StartedRead> + Send + Sync>;

/// A cache of some type.
trait StartedRead: Send + Sync {
    fn synced(&self) -> BoxFuture<'_, Result<SyncedLister, SyncError>>;
}

impl<K: Cacheable> StartedRead for Cache<K> {
    fn synced(&self) -> BoxFuture<'_, Result<SyncedLister, SyncError>> {
        async {
            Ok(SyncedLister {
                kind: self.kind().clone(),
                lister: Box::new(Cache::synced(self, SYNC_WAIT).await?),
            })
        }
        .boxed()
    }
}

struct SyncedLister {
    kind: GroupVersionKind,
    /// A `Lister<K>`.
    lister: Box<dyn Any + Send + Sync>,
}

/// The listers of all declared kinds.
#[derive(Default)]
pub(crate) struct Listers(Vec<SyncedLister>);

/// The caches of all declared kinds, and their listers once they have synced.
#[derive(Default)]
pub(crate) struct ReadCaches {
    caches: Vec<Box<dyn StartedRead>>,
    listers: OnceCell<Arc<Listers>>,
}

impl Reads {
    /// Declares a kind; without a scope, its objects in that of the manager.
    pub(crate) fn add<K: Cacheable>(&mut self, dynamic: K::DynamicType, scope: Option<WatchScope>)
    where
        K::DynamicType: Send + Sync + 'static,
    {
        self.0.push(Box::new(move |caches, within| {
            let scope = scope.clone().unwrap_or_else(|| {
                if is_cluster_scoped::<K>() {
                    WatchScope::all()
                } else {
                    within.clone()
                }
            });
            Box::new(caches.get_dynamic::<K>(&dynamic, &scope))
        }));
    }

    /// Starts the caches, within a tokio runtime.
    pub(crate) fn start(&self, caches: &CacheSet, within: &WatchScope) -> ReadCaches {
        ReadCaches {
            caches: self.0.iter().map(|start| start(caches, within)).collect(),
            listers: OnceCell::new(),
        }
    }
}

impl ReadCaches {
    /// The listers, once all caches have synced. Cancellation-safe.
    pub(crate) async fn listers(&self) -> Result<Arc<Listers>, SyncError> {
        let synced = self.listers.get_or_try_init(|| async {
            let listers = try_join_all(self.caches.iter().map(|cache| cache.synced())).await?;
            Ok(Arc::new(Listers(listers)))
        });
        synced.await.cloned()
    }
}

impl Listers {
    /// Adds a lister that needs no cache.
    pub(crate) fn add<K: Cacheable>(&mut self, lister: Lister<K>) {
        self.0.push(SyncedLister {
            kind: lister.kind().clone(),
            lister: Box::new(lister),
        });
    }

    pub(crate) fn get<K: Cacheable>(&self, dynamic: &K::DynamicType) -> Result<&Lister<K>, Error> {
        let kind = GroupVersionKind::of::<K>(dynamic);
        let found = self.0.iter().find_map(|read| {
            let lister = read.lister.downcast_ref::<Lister<K>>()?;
            (read.kind == kind).then_some(lister)
        });
        found.ok_or_else(|| {
            let ty = type_name::<K>().rsplit("::").next().unwrap_or_default();
            Error::terminal(format!(
                "the webhooks do not cache {kind}: add `.reads::<{ty}>()` to them, and serve them with the caches of a manager"
            ))
        })
    }
}

impl fmt::Debug for Listers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|read| &read.kind))
            .finish()
    }
}

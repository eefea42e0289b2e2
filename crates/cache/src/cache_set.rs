//! A set of caches, one per kind and scope, shared by all users.

use std::{
    any::TypeId,
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use kube::Client;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    cache::{Cache, Shared},
    connection_log::ConnectionLog,
    entry::Decode,
    kind::{Cacheable, GroupVersionKind, WatchScope},
    report::{Report, StaleCache},
    settings::{Settings, UntypedSettings, decode},
    target::Target,
    write_through,
};

/// The caches of one client. Two requests for the same kind and scope share one watch, even if they read it as
/// different types. A watch ends with its last user, not with this set.
#[derive(Clone)]
pub struct CacheSet {
    /// Used by the watches.
    reader: Client,
    /// The same client, but its writes go into the caches.
    client: Client,
    state: Arc<Mutex<State>>,
    /// The task of every watch holds a receiver.
    closing: watch::Sender<bool>,
    connection: Arc<ConnectionLog>,
}

#[derive(Default)]
pub(crate) struct State {
    caches: Vec<RegisteredCache>,
    settings: HashMap<GroupVersionKind, UntypedSettings>,
}

struct RegisteredCache {
    /// Weak, so that the registration keeps no watch alive.
    shared: Weak<Shared>,
    /// The type of a projection, which has a cache of its own; all other views read one copy.
    view: Option<TypeId>,
}

impl State {
    /// Returns the caches that are in use.
    pub(crate) fn in_use(&self) -> Vec<Arc<Shared>> {
        self.caches
            .iter()
            .filter_map(|known| known.shared.upgrade())
            .collect()
    }

    /// Finds the cache with exactly this scope now, whatever scope it was started with.
    fn find(&self, kind: &GroupVersionKind, scope: &WatchScope, view: Option<TypeId>) -> Option<Arc<Shared>> {
        let alike = self.caches.iter().filter(|known| known.view == view);
        alike
            .filter_map(|known| known.shared.upgrade())
            .find(|shared| shared.core.kind == *kind && shared.watch_scope() == *scope)
    }
}

impl CacheSet {
    /// Creates a set without caches.
    pub fn new(client: Client) -> Self {
        let state = Arc::default();
        Self {
            client: write_through::write_through(client.clone(), Arc::downgrade(&state)),
            reader: client,
            state,
            closing: watch::Sender::new(false),
            connection: Arc::default(),
        }
    }

    /// Reports errors of the connection to this log, which other users of the client share. Default: a log of this set.
    #[must_use]
    pub fn with_connection_log(self, connection: Arc<ConnectionLog>) -> Self {
        Self { connection, ..self }
    }

    /// Returns a client whose writes are visible to the next cached read.
    ///
    /// The response to a create, update, patch, apply or delete, of one object or of a collection, is put into the
    /// caches of that kind before the caller gets it; older watch events cannot undo it. A response in another shape
    /// than the cached one (another API version, or a subresource such as scale) is held back until the watch has
    /// delivered the write, but no longer than 5 s. Reads go to the server.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Sets the settings of caches of `K` that are started later. Running caches keep theirs.
    pub fn configure<K: Cacheable>(&self, settings: Settings<K>)
    where
        K::DynamicType: Default,
    {
        let kind = GroupVersionKind::of::<K>(&K::DynamicType::default());
        self.state.lock().settings.insert(kind, settings.untyped);
    }

    /// Returns the cache of the objects in this scope, and starts it if it is not in use. Must be called within a tokio
    /// runtime.
    pub fn get<K: Cacheable>(&self, scope: &WatchScope) -> Cache<K>
    where
        K::DynamicType: Default,
    {
        self.get_dynamic(&K::DynamicType::default(), scope)
    }

    /// Like [`get`](Self::get) for a type that gets its kind at run time.
    pub fn get_dynamic<K: Cacheable>(&self, dynamic: &K::DynamicType, scope: &WatchScope) -> Cache<K> {
        let kind = GroupVersionKind::of::<K>(dynamic);
        let keeping = self.state.lock().settings.get(&kind).cloned().unwrap_or_default();
        let target = Target::of::<K>(dynamic, scope, false);
        self.shared(kind, target, keeping, None, decode::<K>)
    }

    /// Returns the cache of a projection of the objects in this scope. The settings of the first request for a
    /// projection type are used.
    pub fn projected<K: Cacheable, V: Send + Sync + 'static>(
        &self,
        selection: &WatchScope,
        settings: Settings<K, V>,
    ) -> Cache<V>
    where
        K::DynamicType: Default,
    {
        let dynamic = K::DynamicType::default();
        let target = Target::of::<K>(&dynamic, selection, false);
        let view = Some(TypeId::of::<V>());
        self.shared(
            GroupVersionKind::of::<K>(&dynamic),
            target,
            settings.untyped,
            view,
            settings.decode,
        )
    }

    fn shared<T>(
        &self,
        kind: GroupVersionKind,
        target: Target,
        keeping: UntypedSettings,
        view: Option<TypeId>,
        decode: Decode<T>,
    ) -> Cache<T> {
        let mut state = self.state.lock();
        if let Some(shared) = state.find(&kind, &target.watch_scope, view) {
            return Cache { shared, decode };
        }
        state.caches.retain(|known| known.shared.strong_count() > 0);
        let closing = Some(self.closing.clone());
        let connection = Arc::clone(&self.connection);
        let shared = Shared::start(self.reader.clone(), kind, target, keeping, closing, connection);
        state.caches.push(RegisteredCache {
            shared: Arc::downgrade(&shared),
            view,
        });
        Cache { shared, decode }
    }

    /// Returns one report for each watch that is in use.
    pub fn reports(&self) -> Vec<Report> {
        let known = self.state.lock().in_use();
        let mut reports: Vec<_> = known.iter().map(Report::of).collect();
        reports.sort_by_cached_key(|report| (report.kind.to_string(), format!("{:?}", report.scope)));
        reports
    }

    /// Returns the synced caches that have not followed the server for at least this long. Cheap, unlike
    /// [`reports`](Self::reports).
    pub fn stale(&self, at_least: Duration) -> Vec<StaleCache> {
        let known = self.state.lock().in_use();
        let stale = known.iter().filter_map(|shared| {
            let (since, error) = shared.core.staleness()?;
            (since >= at_least).then(|| StaleCache {
                kind: shared.core.kind.clone(),
                since,
                error,
            })
        });
        stale.collect()
    }

    /// Ends every watch, including those still in use, and waits until their tasks are gone. A cache that is requested
    /// afterwards ends immediately. Cancellation-safe.
    pub async fn close(&self) {
        self.closing.send_replace(true);
        self.closing.closed().await;
    }
}

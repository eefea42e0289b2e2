//! Reading from a synced cache.

use std::{sync::Arc, time::Duration};

use crate::{
    cache::Cache,
    index::Index,
    key::ObjectKey,
    kind::KindName,
    query::Query,
    stored::{Stored, Undecodable, read},
    subscription::Subscription,
};

/// Reads objects of one kind as `T`s. It exists only for a cache that is complete, from [`Cache::synced`].
///
/// Reads take no part in the writer's work: each one sees a consistent state, and objects are shared and
/// immutable. What is read may be older than the server by as much as the watch is behind, but never older than what
/// was written through [`Caches::client`](crate::Caches::client).
pub struct Lister<T> {
    pub(crate) cache: Cache<T>,
}

impl<T: Send + Sync + 'static> Lister<T> {
    /// The object under this key, if there is one. One that does not decode is reported once and not given; see
    /// [`try_get`](Self::try_get).
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.try_get(key).ok().flatten()
    }

    /// Like [`get`](Self::get), and tells an object that does not decode from none: for whoever cleans up after what is
    /// gone.
    pub fn try_get(&self, key: &ObjectKey) -> Result<Option<Arc<T>>, Undecodable> {
        let core = &self.cache.shared.core;
        let snapshot = core.store.snapshot();
        let entry = snapshot.objects.get(key);
        entry
            .map(|entry| read(entry, core, self.cache.decode))
            .transpose()
    }

    /// The object under this key, not decoded.
    pub fn stored(&self, key: &ObjectKey) -> Option<Stored<T>> {
        let core = &self.cache.shared.core;
        let entry = core.store.snapshot().objects.get(key).cloned()?;
        Some(Stored::new(entry, core, self.cache.decode))
    }

    /// The objects that match, ordered by key. Those that do not decode are reported and left out.
    ///
    /// ```no_run
    /// # use windlass_cache::Lister;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # fn f(pods: Lister<Pod>) -> Result<(), Box<dyn std::error::Error>> {
    /// use kube::core::Expression;
    /// use windlass_cache::Query;
    ///
    /// let everything = pods.list(&Query::all());
    /// let web = Expression::Equal("app".into(), "web".into());
    /// let here = pods.list(&Query::all().namespace("shop").labels(web).fields("spec.nodeName=n1".parse()?));
    /// # Ok(()) }
    /// ```
    pub fn list(&self, query: &Query) -> Vec<Arc<T>> {
        let (core, decode) = (&self.cache.shared.core, self.cache.decode);
        let snapshot = core.store.snapshot();
        let found = query.run(&snapshot, &core.store.definitions());
        found
            .into_iter()
            .filter_map(|entry| read(entry, core, decode).ok())
            .collect()
    }

    /// Like [`list`](Self::list), and fails if one of them does not decode: for whoever counts them, or acts on what is
    /// missing.
    pub fn try_list(&self, query: &Query) -> Result<Vec<Arc<T>>, Undecodable> {
        let (core, decode) = (&self.cache.shared.core, self.cache.decode);
        let snapshot = core.store.snapshot();
        let found = query.run(&snapshot, &core.store.definitions());
        found.into_iter().map(|entry| read(entry, core, decode)).collect()
    }

    /// The objects that match, ordered by key, not decoded.
    pub fn list_stored(&self, query: &Query) -> Vec<Stored<T>> {
        let (core, decode) = (&self.cache.shared.core, self.cache.decode);
        let snapshot = core.store.snapshot();
        let found = query.run(&snapshot, &core.store.definitions());
        found
            .into_iter()
            .map(|entry| Stored::new(Arc::clone(entry), core, decode))
            .collect()
    }

    /// The objects that have this value in the index, ordered by key.
    ///
    /// ```no_run
    /// # use windlass_cache::{IndexBy, Lister};
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # fn f(pods: Lister<Pod>) -> Result<(), Box<dyn std::error::Error>> {
    /// let by_node = pods.cache().index(IndexBy::field("spec.nodeName".parse()?));
    /// let on_n1 = pods.by_index(&by_node, "n1");
    /// # Ok(()) }
    /// ```
    pub fn by_index(&self, index: &Index<T>, value: &str) -> Vec<Arc<T>> {
        let (core, decode) = (&self.cache.shared.core, self.cache.decode);
        let (snapshot, definition) = (core.store.snapshot(), &index.definition);
        let Some(buckets) = snapshot.indexes.get(&definition.id) else {
            // It is an index of another cache.
            return self.list(&Query::all().indexed(index, value));
        };
        let Some(bucket) = buckets.get(&*definition.asked(value)) else {
            return Vec::new();
        };
        let found = bucket.values().filter_map(|slot| snapshot.objects.in_slot(*slot));
        let mut objects = Vec::with_capacity(bucket.len());
        objects.extend(found.filter_map(|entry| read(entry, core, decode).ok()));
        objects
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.cache.shared.core.store.snapshot().objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The server's version that reads reflect now; with several namespaces, the oldest of theirs. Empty after the
    /// kind was uninstalled.
    pub fn resource_version(&self) -> Arc<str> {
        Arc::clone(&self.cache.shared.core.store.snapshot().resource_version)
    }

    /// Waits until reads reflect at least this version, for a write that somebody else made and told of. `false` if
    /// it did not happen in time. Cancellation-safe.
    pub async fn reaches(&self, resource_version: u64, deadline: Duration) -> bool {
        let reached = || {
            self.resource_version()
                .parse::<u64>()
                .is_ok_and(|now| now >= resource_version)
        };
        let mut written = self.cache.shared.core.store.written();
        let arrived = async {
            while !reached() {
                if written.changed().await.is_err() {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(deadline, arrived).await.unwrap_or(false)
    }

    /// Which kind is cached.
    pub fn kind(&self) -> &KindName {
        self.cache.kind()
    }

    /// The cache, for its indexes and figures.
    pub fn cache(&self) -> &Cache<T> {
        &self.cache
    }

    /// All objects as they are now, and every [`Change`](crate::Change) from now on.
    pub fn subscribe(&self) -> Subscription<T> {
        self.cache.subscribe()
    }
}

impl<T> Clone for Lister<T> {
    fn clone(&self) -> Self {
        Self {
            cache: self.cache.clone(),
        }
    }
}

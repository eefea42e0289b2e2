//! Reading from a synced cache.

use std::{sync::Arc, time::Duration};

use serde::Serialize;

use crate::{
    cache::{Cache, Shared},
    cached_object::{CachedObject, DecodeError, read},
    index::Index,
    key::ObjectKey,
    kind::{Cacheable, GroupVersionKind, WatchScope},
    query::Query,
    settings::decode,
    subscription::Subscription,
    target::Target,
};

/// Reads objects of one kind as `T`s. Exists only for a synced cache; see [`Cache::synced`].
///
/// Reads never block the writer: each one sees a consistent snapshot, and objects are shared and immutable. Reads may
/// lag behind the server as much as the watch does, but always include writes made through
/// [`CacheSet::client`](crate::CacheSet::client).
pub struct Lister<T> {
    pub(crate) cache: Cache<T>,
}

impl<K: Cacheable + Serialize> Lister<K> {
    /// Creates a lister of these objects, without a server, a watch or a task: for unit tests of code that reads from a
    /// lister. Indexes and queries work; the objects never change.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use windlass_cache::{Lister, ObjectKey};
    ///
    /// let mut settings = ConfigMap::default();
    /// settings.metadata.namespace = Some("shop".to_owned());
    /// settings.metadata.name = Some("settings".to_owned());
    /// let configs = Lister::fixed([settings])?;
    /// assert!(configs.get(&ObjectKey::namespaced("shop", "settings")).is_some());
    /// # Ok::<(), String>(())
    /// ```
    ///
    /// Fails if an object has no name or does not serialize.
    pub fn fixed(objects: impl IntoIterator<Item = K>) -> Result<Self, String>
    where
        K::DynamicType: Default,
    {
        let dynamic = K::DynamicType::default();
        let target = Target::of::<K>(&dynamic, &WatchScope::all(), K::metadata_api());
        let texts = objects.into_iter().map(|object| serde_json::to_vec(&object));
        let texts: Vec<_> = texts
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        let kind = GroupVersionKind::of::<K>(&dynamic);
        let shared =
            Shared::fixed(kind.clone(), target, &texts).map_err(|error| format!("{kind}: {error}"))?;
        Ok(Self {
            cache: Cache {
                shared,
                decode: decode::<K>,
            },
        })
    }
}

impl<T: Send + Sync + 'static> Lister<T> {
    /// Returns the object with this key, or `None`. An object that does not decode is logged once and counts as absent;
    /// see [`try_get`](Self::try_get).
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.try_get(key).ok().flatten()
    }

    /// Like [`get`](Self::get), but fails for an object that does not decode. Use it where an absent object has
    /// consequences, such as cleaning up after it.
    pub fn try_get(&self, key: &ObjectKey) -> Result<Option<Arc<T>>, DecodeError> {
        let core = &self.cache.shared.core;
        let snapshot = core.store.snapshot();
        let entry = snapshot.objects.get(key);
        entry
            .map(|entry| read(entry, core, self.cache.decode))
            .transpose()
    }

    /// Returns the object with this key without decoding it.
    pub fn get_cached(&self, key: &ObjectKey) -> Option<CachedObject<T>> {
        let core = &self.cache.shared.core;
        let entry = core.store.snapshot().objects.get(key).cloned()?;
        Some(CachedObject::new(entry, core, self.cache.decode))
    }

    /// Returns the matching objects, ordered by key. Objects that do not decode are logged and left out.
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

    /// Like [`list`](Self::list), but fails if an object does not decode. Use it to count objects or to act on missing
    /// ones.
    pub fn try_list(&self, query: &Query) -> Result<Vec<Arc<T>>, DecodeError> {
        let (core, decode) = (&self.cache.shared.core, self.cache.decode);
        let snapshot = core.store.snapshot();
        let found = query.run(&snapshot, &core.store.definitions());
        found.into_iter().map(|entry| read(entry, core, decode)).collect()
    }

    /// Returns the matching objects, ordered by key, without decoding them.
    pub fn list_cached(&self, query: &Query) -> Vec<CachedObject<T>> {
        let (core, decode) = (&self.cache.shared.core, self.cache.decode);
        let snapshot = core.store.snapshot();
        let found = query.run(&snapshot, &core.store.definitions());
        found
            .into_iter()
            .map(|entry| CachedObject::new(Arc::clone(entry), core, decode))
            .collect()
    }

    /// Returns the objects with this value in the index, ordered by key.
    ///
    /// ```no_run
    /// # use windlass_cache::{Indexer, Lister};
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # fn f(pods: Lister<Pod>) -> Result<(), Box<dyn std::error::Error>> {
    /// let by_node = pods.cache().index(Indexer::field("spec.nodeName".parse()?));
    /// let on_n1 = pods.by_index(&by_node, "n1");
    /// # Ok(()) }
    /// ```
    pub fn by_index(&self, index: &Index<T>, value: &str) -> Vec<Arc<T>> {
        let (core, decode) = (&self.cache.shared.core, self.cache.decode);
        let (snapshot, definition) = (core.store.snapshot(), &index.definition);
        let Some(buckets) = snapshot.indexes.get(&definition.id) else {
            // An index of another cache.
            return self.list(&Query::all().indexed(index, value));
        };
        let Some(bucket) = buckets.get(&*definition.lookup_value(value)) else {
            return Vec::new();
        };
        let found = bucket.values().filter_map(|slot| snapshot.objects.in_slot(*slot));
        let mut objects = Vec::with_capacity(bucket.len());
        objects.extend(found.filter_map(|entry| read(entry, core, decode).ok()));
        objects
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.cache.shared.core.store.snapshot().objects.len()
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the resource version that reads reflect; with several namespaces, the oldest of theirs. Empty after the
    /// kind was uninstalled, unless [`Settings::keep_unserved`](crate::Settings::keep_unserved) is set.
    pub fn resource_version(&self) -> Arc<str> {
        Arc::clone(&self.cache.shared.core.store.snapshot().resource_version)
    }

    /// Waits until reads reflect at least this resource version, for example of a write by another process. Returns
    /// `false` at the deadline. Cancellation-safe.
    pub async fn wait_for_resource_version(&self, resource_version: u64, deadline: Duration) -> bool {
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

    /// Returns the cached kind.
    pub fn kind(&self) -> &GroupVersionKind {
        self.cache.kind()
    }

    /// Returns the cache, for its indexes and statistics.
    pub fn cache(&self) -> &Cache<T> {
        &self.cache
    }

    /// Subscribes to all current objects and every later [`Change`](crate::Change).
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

//! Reading from a synced cache.

use std::{ops::Bound, sync::Arc};

use kube::core::{Selector, SelectorExt};

use crate::{
    cache::Cache,
    key::ObjectKey,
    kind::{Cacheable, KindName},
    store::{Entry, Snapshot},
    subscription::Subscription,
};

/// Reads objects of one kind. It exists only for a cache that is complete, from [`Cache::synced`].
///
/// Reads take no part in the writer's work: each one sees a consistent state, and objects are shared and
/// immutable. What is read may be older than the server by as much as the watch is behind.
pub struct Lister<K> {
    pub(crate) cache: Cache<K>,
}

impl<K: Cacheable> Lister<K> {
    /// The object under this key, if there is one.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.snapshot().objects.get(key).map(Entry::object)
    }

    /// The objects of one namespace, or of all for `None`, whose labels match; ordered by key.
    ///
    /// ```no_run
    /// # use windlass_cache::Lister;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # fn f(pods: Lister<Pod>) -> Result<(), Box<dyn std::error::Error>> {
    /// use kube::core::{Expression, Selector};
    ///
    /// let everything = pods.list(None, &Selector::default());
    /// let web = pods.list(Some("shop"), &Expression::Equal("app".into(), "web".into()).into());
    /// # Ok(()) }
    /// ```
    pub fn list(&self, namespace: Option<&str>, selector: &Selector) -> Vec<Arc<K>> {
        let objects = self.snapshot().objects;
        let start = namespace.map_or(Bound::Unbounded, |namespace| {
            Bound::Included(ObjectKey::namespaced(namespace, ""))
        });
        let none = std::collections::BTreeMap::new();
        objects
            .range((start, Bound::Unbounded))
            .take_while(|(key, _)| namespace.is_none_or(|namespace| key.namespace() == Some(namespace)))
            .map(|(_, entry)| entry.object())
            .filter(|object| selector.matches(object.meta().labels.as_ref().unwrap_or(&none)))
            .collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.snapshot().objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The server's version that reads reflect now. Empty after the kind was uninstalled.
    pub fn resource_version(&self) -> Arc<str> {
        self.snapshot().resource_version
    }

    /// Which kind is cached.
    pub fn kind(&self) -> &KindName {
        self.cache.kind()
    }

    /// All objects as they are now, and every [`Change`](crate::Change) from now on.
    pub fn subscribe(&self) -> Subscription<K> {
        self.cache.subscribe()
    }

    fn snapshot(&self) -> Snapshot<K> {
        self.cache.shared.core.store.snapshot()
    }
}

impl<K> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Self {
            cache: self.cache.clone(),
        }
    }
}

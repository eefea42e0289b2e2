//! A consistent state of the store: persistent maps, so that a reader's costs nothing and the writer never waits.

use std::{ops::Bound, sync::Arc};

use imbl::{OrdMap, OrdSet};

use crate::{entry::Entry, key::ObjectKey};

/// Objects by namespace and name. Those outside any namespace are in the one with the empty name.
#[derive(Clone, Default)]
pub(crate) struct Objects {
    namespaces: OrdMap<Arc<str>, Names>,
    len: usize,
}

type Names = OrdMap<Arc<str>, Arc<Entry>>;

/// Which objects have a value, for one index.
pub(crate) type Buckets = OrdMap<Arc<str>, OrdSet<ObjectKey>>;

/// What readers see.
#[derive(Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) objects: Objects,
    /// By the number of their definition. No bucket is empty.
    pub(crate) indexes: OrdMap<u64, Buckets>,
    /// The oldest version of all scopes.
    pub(crate) resource_version: Arc<str>,
}

impl Objects {
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Arc<Entry>> {
        self.namespaces.get(&key.namespace)?.get(&key.name)
    }

    pub(crate) fn insert(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        let ObjectKey { namespace, name } = entry.meta.key.clone();
        let replaced = match self.namespaces.get_mut(&namespace) {
            Some(names) => names.insert(name, entry),
            None => {
                self.namespaces.insert(namespace, Names::unit(name, entry));
                None
            }
        };
        self.len += usize::from(replaced.is_none());
        replaced
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Entry>> {
        let names = self.namespaces.get_mut(&key.namespace)?;
        let removed = names.remove(&key.name)?;
        if names.is_empty() {
            self.namespaces.remove(&key.namespace);
        }
        self.len -= 1;
        Some(removed)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Everything, ordered by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.namespaces.values().flat_map(OrdMap::values)
    }

    /// The objects of one namespace, or of all.
    pub(crate) fn within(&self, namespace: Option<&str>) -> impl Iterator<Item = &Arc<Entry>> {
        let range = match namespace {
            Some(namespace) => (Bound::Included(namespace), Bound::Included(namespace)),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        self.namespaces
            .range::<_, str>(range)
            .flat_map(|(_, names)| names.values())
    }
}

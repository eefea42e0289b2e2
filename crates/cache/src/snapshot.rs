//! A consistent, immutable state of the store, made of persistent maps: cheap for readers, and the writer never waits.
//!
//! ```text
//!   hash of a key ─► SlotTable ─┐
//!   namespace ─► name ──────────┼─► slot ─► Entry       a new state of an object changes only its slot
//!   index ─► value ─► key ──────┘
//! ```

use std::{hash::BuildHasher, ops::Bound, sync::Arc};

use foldhash::fast::RandomState;
use imbl::{OrdMap, Vector};

use crate::{entry::Entry, key::ObjectKey, paged::Paged, slot_table::SlotTable};

/// Objects by namespace and name. Cluster-scoped objects have the empty namespace.
#[derive(Clone, Default)]
pub(crate) struct Objects {
    slots: Paged<Option<Arc<Entry>>>,
    table: SlotTable,
    /// Keeps the objects in order.
    namespaces: OrdMap<Arc<str>, Names>,
    /// Empty slots below the highest one in use.
    free: Vector<Slot>,
    len: u32,
    hasher: RandomState,
}

/// The slot number of an object, constant while an object with its key exists.
pub(crate) type Slot = u32;

type Names = OrdMap<Arc<str>, Slot>;

/// The objects with one index value.
pub(crate) type Bucket = OrdMap<ObjectKey, Slot>;

/// The objects of one index by value.
pub(crate) type Buckets = OrdMap<Arc<str>, Bucket>;

/// The state that readers see.
#[derive(Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) objects: Objects,
    /// By the id of their definition. No bucket is empty.
    pub(crate) indexes: OrdMap<u64, Buckets>,
    /// The oldest version of all scopes.
    pub(crate) resource_version: Arc<str>,
}

impl Objects {
    #[inline]
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Arc<Entry>> {
        self.in_slot(self.slot(key)?)
    }

    #[inline]
    pub(crate) fn slot(&self, key: &ObjectKey) -> Option<Slot> {
        self.table.find(self.hash(key), |slot| {
            self.in_slot(slot).is_some_and(|entry| entry.meta.key == *key)
        })
    }

    /// Like `get`, without an allocated key.
    pub(crate) fn get_by_name(&self, namespace: &str, name: &str) -> Option<&Arc<Entry>> {
        // Same hash as that of a key.
        let hash = (self.hasher.hash_one((namespace, name)) >> 32) as u32;
        let slot = self.table.find(hash, |slot| {
            self.in_slot(slot).is_some_and(|entry| {
                let ObjectKey {
                    namespace: ours,
                    name: our_name,
                } = &entry.meta.key;
                **our_name == *name && **ours == *namespace
            })
        });
        self.in_slot(slot?)
    }

    #[inline]
    pub(crate) fn in_slot(&self, slot: Slot) -> Option<&Arc<Entry>> {
        self.slots.get(slot as usize)?.as_ref()
    }

    #[inline]
    fn hash(&self, key: &ObjectKey) -> u32 {
        (self.hasher.hash_one(key) >> 32) as u32
    }

    pub(crate) fn insert(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        let key = &entry.meta.key;
        if let Some(slot) = self.slot(key) {
            return self.slots.set(slot as usize, Some(entry));
        }
        // Without an empty slot, all slots below the number of objects are in use.
        let slot = self.free.pop_back().unwrap_or(self.len);
        self.table.insert(self.hash(key), slot);
        let ObjectKey { namespace, name } = key.clone();
        match self.namespaces.get_mut(&namespace) {
            Some(names) => drop(names.insert(name, slot)),
            None => drop(self.namespaces.insert(namespace, Names::unit(name, slot))),
        }
        self.slots.set(slot as usize, Some(entry));
        self.len += 1;
        None
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Entry>> {
        let slot = self.slot(key)?;
        self.table.remove(self.hash(key), slot);
        if let Some(names) = self.namespaces.get_mut(&key.namespace) {
            names.remove(&key.name);
            if names.is_empty() {
                self.namespaces.remove(&key.namespace);
            }
        }
        self.free.push_back(slot);
        self.len -= 1;
        if self.len == 0 {
            // No slot is in use any more: free the memory of all.
            let mut all = std::mem::take(self);
            return all.slots.set(slot as usize, None);
        }
        self.slots.set(slot as usize, None)
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns all objects, ordered by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.in_namespace(None)
    }

    /// Returns the objects of one namespace, or of all.
    pub(crate) fn in_namespace(&self, namespace: Option<&str>) -> impl Iterator<Item = &Arc<Entry>> {
        let range = match namespace {
            Some(namespace) => (Bound::Included(namespace), Bound::Included(namespace)),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        self.namespaces
            .range::<_, str>(range)
            .flat_map(|(_, names)| names.values())
            .filter_map(|slot| self.in_slot(*slot))
    }
}

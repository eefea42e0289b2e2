//! A least-recently-used map.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

/// A map with a maximum number of entries; inserting one more evicts the least recently used.
///
/// Keys are cloned into the order of use, so they should be cheap to clone.
pub(super) struct Lru<K, V> {
    limit: usize,
    entries: HashMap<K, Entry<V>>,
    /// Every key of `entries` exactly once, ordered by last use.
    order: BTreeMap<u64, K>,
    uses: u64,
}

struct Entry<V> {
    value: V,
    /// The entry's key in `order`.
    used: u64,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    /// The limit is at least one, so that a new entry is always kept.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            entries: HashMap::new(),
            order: BTreeMap::new(),
            uses: 0,
        }
    }

    /// Returns an entry and marks it as used.
    pub(super) fn get<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let entry = self.entries.get_mut(key)?;
        // A busy object is often the most recently used already.
        if entry.used != self.uses {
            let key = self.order.remove(&entry.used).expect("`order` has every entry");
            self.uses += 1;
            entry.used = self.uses;
            self.order.insert(self.uses, key);
        }
        Some(&mut entry.value)
    }

    /// Adds or replaces an entry. Returns the evicted one.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<(K, V)> {
        self.remove(&key);
        let oldest = (self.entries.len() >= self.limit).then(|| self.order.pop_first());
        let forgotten = oldest.flatten().map(|(_, key)| {
            let entry = self
                .entries
                .remove(&key)
                .expect("`entries` has every key of `order`");
            (key, entry.value)
        });
        self.uses += 1;
        self.order.insert(self.uses, key.clone());
        self.entries.insert(
            key,
            Entry {
                value,
                used: self.uses,
            },
        );
        forgotten
    }

    pub(super) fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let entry = self.entries.remove(key)?;
        self.order.remove(&entry.used);
        Some(entry.value)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values().map(|entry| &entry.value)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.entries.len(), self.order.len());
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares with a linear list.
        #[test]
        fn lru_keeps_the_most_recently_used(limit in 1usize..6, steps in prop::collection::vec((0u8..3, 0u8..10), 0..200)) {
            let mut lru = Lru::new(limit);
            // The most recently used is last.
            let mut model: Vec<(u8, usize)> = Vec::new();
            for (at, (what, key)) in steps.into_iter().enumerate() {
                let known = model.iter().position(|(k, _)| *k == key).map(|i| model.remove(i));
                match what {
                    0 => {
                        let forgotten = (model.len() == limit).then(|| model.remove(0));
                        prop_assert_eq!(lru.insert(key, at), forgotten);
                        model.push((key, at));
                    }
                    1 => {
                        prop_assert_eq!(lru.get(&key).copied(), known.map(|(_, value)| value));
                        model.extend(known);
                    }
                    _ => prop_assert_eq!(lru.remove(&key), known.map(|(_, value)| value)),
                }
                prop_assert_eq!(lru.len(), model.len());
            }
        }
    }
}

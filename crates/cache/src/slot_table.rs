//! A persistent hash table from the hash of a key to the slot of its object.
//!
//! An entry contains the hash as well, so that a search compares few other objects, and growing compares none.

use crate::paged::Paged;

/// An entry that was never used ends a search; a deleted one does not.
const EMPTY: u64 = 0;
const DELETED: u64 = 1;
/// Slots are stored with this offset, so that no entry equals the two values above.
const FIRST_SLOT: u64 = 2;

const MIN_CAPACITY: usize = 32;

/// Slots by hash, with open addressing. The capacity is a power of two, and at most 7/8 of it is in use.
#[derive(Clone, Default)]
pub(crate) struct SlotTable {
    table: Paged<u64>,
    capacity: usize,
    /// Entries that do not end a search: used and deleted ones.
    used: usize,
    len: usize,
}

impl SlotTable {
    /// Returns the slot with this hash for which `is_it` returns true.
    #[inline]
    pub(crate) fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        self.search(hash, is_it).map(|(_, slot)| slot)
    }

    #[inline]
    fn search(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<(usize, u32)> {
        let mut at = self.start(hash);
        for _ in 0..self.capacity {
            let entry = *self.table.get(at)?;
            if entry == EMPTY {
                return None;
            }
            if let Some(slot) = slot_in(entry)
                && hash_in(entry) == hash
                && is_it(slot)
            {
                return Some((at, slot));
            }
            at = self.after(at);
        }
        None
    }

    /// Inserts a slot that is not in the table.
    pub(crate) fn insert(&mut self, hash: u32, slot: u32) {
        if (self.used + 1) * 8 > self.capacity * 7 {
            self.grow();
        }
        self.put(u64::from(hash) << 32 | (u64::from(slot) + FIRST_SLOT));
    }

    pub(crate) fn remove(&mut self, hash: u32, slot: u32) {
        if let Some((at, _)) = self.search(hash, |found| found == slot) {
            self.table.set(at, DELETED);
            self.len -= 1;
        }
    }

    fn put(&mut self, entry: u64) {
        let mut at = self.start(hash_in(entry));
        while self.table.get(at).is_some_and(|other| *other != EMPTY) {
            at = self.after(at);
        }
        self.table.set(at, entry);
        self.used += 1;
        self.len += 1;
    }

    /// Rebuilds the table, twice as large unless it is full of deleted entries.
    fn grow(&mut self) {
        let old = std::mem::take(self);
        self.capacity = ((old.len + 1) * 3 / 2).next_power_of_two().max(MIN_CAPACITY);
        let entries = (0..old.capacity).filter_map(|at| old.table.get(at));
        for entry in entries.filter(|place| slot_in(**place).is_some()) {
            self.put(*entry);
        }
    }

    #[inline]
    fn start(&self, hash: u32) -> usize {
        hash as usize & self.capacity.wrapping_sub(1)
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.capacity - 1)
    }
}

fn hash_in(entry: u64) -> u32 {
    (entry >> 32) as u32
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
fn slot_in(entry: u64) -> Option<u32> {
    (entry > DELETED).then(|| (entry as u32).wrapping_sub(FIRST_SLOT as u32))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few hashes, so that many collide; slots are their own keys.
        #[test]
        fn slots_are_found_until_removed(
            acts in prop::collection::vec((any::<bool>(), 0_u32..300, 0_u32..5), 0..1500)
        ) {
            let mut table = SlotTable::default();
            let mut model = HashMap::new();
            for (adds, slot, wide) in acts {
                let known = model.get(&slot).copied();
                match (adds, known) {
                    (true, None) => {
                        let hash = if wide == 0 { slot.wrapping_mul(0x9E37_79B9) } else { slot % 7 };
                        table.insert(hash, slot);
                        model.insert(slot, hash);
                    }
                    (false, Some(hash)) => {
                        let before = table.clone();
                        table.remove(hash, slot);
                        model.remove(&slot);
                        prop_assert_eq!(before.find(hash, |found| found == slot), Some(slot));
                        prop_assert_eq!(table.find(hash, |found| found == slot), None);
                    }
                    _ => {}
                }
            }
            for (slot, hash) in &model {
                prop_assert_eq!(table.find(*hash, |found| found == *slot), Some(*slot));
            }
            prop_assert_eq!(table.len, model.len());
            prop_assert!(table.used * 8 <= table.capacity * 7);
        }
    }
}

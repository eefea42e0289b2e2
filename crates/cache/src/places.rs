//! In which slot an object is, by the hash of its key: a hash table that snapshots share.
//!
//! A place holds the hash as well, so that a search looks at few objects that it is not about, and the table grows
//! without a look at any.

use crate::paged::Paged;

/// A place that nothing was ever put in ends a search; one whose object is gone does not.
const NEVER: u64 = 0;
const GONE: u64 = 1;
/// Slots are counted from here, so that no place of one looks like the two above.
const FIRST: u64 = 2;

const FEWEST: usize = 32;

/// Slots by hash; a power of two of places, at most seven of eight in use.
#[derive(Clone, Default)]
pub(crate) struct Places {
    table: Paged<u64>,
    capacity: usize,
    /// Places that end no search.
    used: usize,
    len: usize,
}

impl Places {
    /// The slot under this hash for which `is_it` holds.
    #[inline]
    pub(crate) fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        self.search(hash, is_it).map(|(_, slot)| slot)
    }

    #[inline]
    fn search(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<(usize, u32)> {
        let mut at = self.start(hash);
        for _ in 0..self.capacity {
            let place = *self.table.get(at)?;
            if place == NEVER {
                return None;
            }
            if let Some(slot) = slot_in(place)
                && hash_in(place) == hash
                && is_it(slot)
            {
                return Some((at, slot));
            }
            at = self.after(at);
        }
        None
    }

    /// Notes a slot that is not there yet.
    pub(crate) fn insert(&mut self, hash: u32, slot: u32) {
        if (self.used + 1) * 8 > self.capacity * 7 {
            self.grow();
        }
        self.put(u64::from(hash) << 32 | (u64::from(slot) + FIRST));
    }

    /// Forgets a slot that is there.
    pub(crate) fn remove(&mut self, hash: u32, slot: u32) {
        if let Some((at, _)) = self.search(hash, |found| found == slot) {
            self.table.set(at, GONE);
            self.len -= 1;
        }
    }

    fn put(&mut self, place: u64) {
        let mut at = self.start(hash_in(place));
        while self.table.get(at).is_some_and(|other| *other != NEVER) {
            at = self.after(at);
        }
        self.table.set(at, place);
        self.used += 1;
        self.len += 1;
    }

    /// Makes the table anew, twice as large unless it is full of what is gone.
    fn grow(&mut self) {
        let old = std::mem::take(self);
        self.capacity = ((old.len + 1) * 3 / 2).next_power_of_two().max(FEWEST);
        let places = (0..old.capacity).filter_map(|at| old.table.get(at));
        for place in places.filter(|place| slot_in(**place).is_some()) {
            self.put(*place);
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

fn hash_in(place: u64) -> u32 {
    (place >> 32) as u32
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
fn slot_in(place: u64) -> Option<u32> {
    (place > GONE).then(|| (place as u32).wrapping_sub(FIRST as u32))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few hashes, so that many collide; slots are their own keys.
        #[test]
        fn what_was_put_in_is_found_until_it_is_taken_out(
            acts in prop::collection::vec((any::<bool>(), 0_u32..300, 0_u32..5), 0..1500)
        ) {
            let mut places = Places::default();
            let mut model = HashMap::new();
            for (adds, slot, wide) in acts {
                let known = model.get(&slot).copied();
                match (adds, known) {
                    (true, None) => {
                        let hash = if wide == 0 { slot.wrapping_mul(0x9E37_79B9) } else { slot % 7 };
                        places.insert(hash, slot);
                        model.insert(slot, hash);
                    }
                    (false, Some(hash)) => {
                        let before = places.clone();
                        places.remove(hash, slot);
                        model.remove(&slot);
                        prop_assert_eq!(before.find(hash, |found| found == slot), Some(slot));
                        prop_assert_eq!(places.find(hash, |found| found == slot), None);
                    }
                    _ => {}
                }
            }
            for (slot, hash) in &model {
                prop_assert_eq!(places.find(*hash, |found| found == *slot), Some(*slot));
            }
            prop_assert_eq!(places.len, model.len());
            prop_assert!(places.used * 8 <= places.capacity * 7);
        }
    }
}

//! The keys in the queue, each in a numbered slot, found by hash.
//!
//! The other parts of the queue refer to slots by number; only this one touches keys. Numbers of removed keys are
//! reused. When most slots are empty, the rest are compacted and the memory is freed (see [`Slots::is_sparse`]).

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use tokio::time::Instant;

use crate::Priority;
use crate::list::NONE;

/// Capacity that is never freed: below it, compacting is not worth the effort.
const MIN_CAPACITY: usize = 4096;

pub(crate) struct Slots<K, T> {
    entries: Vec<Option<Slot<K, T>>>,
    /// The numbers of the empty slots.
    free: Vec<u32>,
    /// The numbers of the others, by the hash of their key.
    index: HashTable<IndexEntry>,
}

/// Contains the hash as well, so that the index grows without reading the slots.
#[derive(Clone, Copy)]
struct IndexEntry {
    hash: u32,
    slot: u32,
}

impl IndexEntry {
    /// Spreads the stored half of the hash over 64 bits again, for the hash table.
    #[inline]
    fn table_hash(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// State of one key. It exists exactly while the key is queued, delayed or being processed.
pub(crate) struct Slot<K, T> {
    pub(crate) key: K,
    /// The tag of the pending run.
    pub(crate) tag: Option<T>,
    /// Computed once, when the key was added.
    hash: u32,
    pub(crate) pending: Pending,
    /// Consecutive failures, and rate-limited adds, since the last forget.
    pub(crate) failures: u32,
    /// The number of its run; `NONE` if it is not being processed.
    pub(crate) run: u32,
    /// When it became pending; set only if there are metrics.
    pub(crate) pending_since: Option<Instant>,
}

/// When a key is due to be handed out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pending {
    /// Not at all: the key is being processed, and its slot is removed when the run ends.
    No,
    /// It is queued; or it is being processed and is queued again as soon as the run ends.
    Now(Priority),
    /// It is in `Delays`.
    Later(Priority),
}

impl<K, T> Slot<K, T> {
    pub(crate) fn is_running(&self) -> bool {
        self.run != NONE
    }
}

impl<K, T> Slots<K, T> {
    pub(crate) fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
        }
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &Slot<K, T> {
        self.entries[slot as usize]
            .as_ref()
            .expect("only slots in use are referred to")
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Slot<K, T> {
        self.entries[slot as usize]
            .as_mut()
            .expect("only slots in use are referred to")
    }

    pub(crate) fn find(&self, hash: u32, key: &K) -> Option<u32>
    where
        K: Eq,
    {
        let same = |found: &IndexEntry| found.hash == hash && self.get(found.slot).key == *key;
        self.index
            .find(IndexEntry::table_hash(hash), same)
            .map(|found| found.slot)
    }

    /// Returns the slot of this key, a new one if it has none.
    #[inline]
    pub(crate) fn find_or_insert(&mut self, hash: u32, key: K) -> u32
    where
        K: Eq,
    {
        let entries = &self.entries;
        let same = |found: &IndexEntry| {
            found.hash == hash
                && entries[found.slot as usize]
                    .as_ref()
                    .is_some_and(|slot| slot.key == key)
        };
        let hash_of = |found: &IndexEntry| IndexEntry::table_hash(found.hash);
        match self.index.entry(IndexEntry::table_hash(hash), same, hash_of) {
            Entry::Occupied(found) => found.get().slot,
            Entry::Vacant(vacant) => {
                let new = Slot {
                    key,
                    tag: None,
                    hash,
                    pending: Pending::No,
                    failures: 0,
                    run: NONE,
                    pending_since: None,
                };
                let slot = if let Some(slot) = self.free.pop() {
                    self.entries[slot as usize] = Some(new);
                    slot
                } else {
                    let slot = u32::try_from(self.entries.len())
                        .ok()
                        .filter(|&slot| slot != NONE);
                    self.entries.push(Some(new));
                    slot.expect("fewer than 2^32 - 1 keys fit in memory")
                };
                vacant.insert(IndexEntry { hash, slot });
                slot
            }
        }
    }

    /// Removes a slot; returns its key and tag, to be dropped outside of the lock.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) -> (K, Option<T>) {
        let removed = self.entries[slot as usize]
            .take()
            .expect("only slots in use are referred to");
        let found = self
            .index
            .find_entry(IndexEntry::table_hash(removed.hash), |found| found.slot == slot);
        found.ok().expect("every slot in use is indexed").remove();
        self.free.push(slot);
        (removed.key, removed.tag)
    }

    /// Returns whether fewer than a quarter of the slots are in use, so that compacting is worthwhile. A shrinking
    /// queue compacts each time it has become four times smaller, so the cost per removed key is constant.
    #[inline]
    pub(crate) fn is_sparse(&self) -> bool {
        self.entries.len() > MIN_CAPACITY && self.len() < self.entries.len() / 4
    }

    /// Moves the slots together and frees the memory of the empty ones. Calls `moved(slot, from, to)` for each slot
    /// that gets a new number. All numbers are below [`Self::len`] afterwards.
    pub(crate) fn compact(&mut self, mut moved: impl FnMut(&Slot<K, T>, u32, u32)) {
        let mut hole = 0;
        let mut last = self.entries.len();
        loop {
            while hole < last && self.entries[hole].is_some() {
                hole += 1;
            }
            while hole < last && self.entries[last - 1].is_none() {
                last -= 1;
            }
            if hole >= last {
                break;
            }
            self.entries.swap(hole, last - 1);
            let number = |index| u32::try_from(index).expect("slots are numbered by u32");
            let (from, to) = (number(last - 1), number(hole));
            let slot = self.entries[hole]
                .as_ref()
                .expect("the last slot in use was moved here");
            self.index
                .find_mut(IndexEntry::table_hash(slot.hash), |found| found.slot == from)
                .expect("every slot in use is indexed")
                .slot = to;
            moved(slot, from, to);
        }
        self.entries.truncate(self.index.len());
        self.entries.shrink_to(MIN_CAPACITY);
        self.free.clear();
        self.free.shrink_to(MIN_CAPACITY);
        self.index
            .shrink_to(MIN_CAPACITY, |found| IndexEntry::table_hash(found.hash));
    }
}

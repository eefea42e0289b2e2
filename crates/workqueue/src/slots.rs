//! The keys that the queue knows, each in a numbered slot, found by hash.
//!
//! The other parts of the queue speak of slots by number; only this one touches keys. Numbers of removed keys are used
//! again. When most slots are empty, the rest move together and the memory goes back (see [`Slots::is_sparse`]).

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use tokio::time::Instant;

use crate::Priority;
use crate::list::NONE;

/// Below this many slots, empty ones are not worth giving back.
const KEPT: usize = 4096;

pub(crate) struct Slots<K> {
    entries: Vec<Option<Slot<K>>>,
    /// The numbers of the empty slots.
    free: Vec<u32>,
    /// The numbers of the others, by the hash of their key.
    index: HashTable<Indexed>,
}

/// The hash stands here as well, so that the index grows without a look at the slots.
#[derive(Clone, Copy)]
struct Indexed {
    hash: u32,
    slot: u32,
}

impl Indexed {
    /// What the table goes by: the half of the hash that is kept, spread over all bits again.
    #[inline]
    fn table_hash(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// What the queue knows about one key. It exists exactly while the key is queued, delayed or in a worker's hand.
pub(crate) struct Slot<K> {
    pub(crate) key: K,
    /// Computed once, when the key came in.
    hash: u32,
    pub(crate) wanted: Wanted,
    /// Consecutive failures, and rate-limited adds, since the last forget.
    pub(crate) failures: u32,
    /// The run of the worker that has it; `NONE` if no worker does.
    pub(crate) run: u32,
    /// When it became wanted; only kept for metrics.
    pub(crate) since: Option<Instant>,
}

/// When a key shall be handed out next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Not at all: the key is in a worker's hand, and gone when that ends.
    No,
    /// It is queued; or, while it is in a worker's hand, it will be as soon as that ends.
    Now(Priority),
    /// It is in `Delays`.
    Later(Priority),
}

impl<K> Slot<K> {
    pub(crate) fn is_running(&self) -> bool {
        self.run != NONE
    }
}

impl<K> Slots<K> {
    pub(crate) fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
        }
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &Slot<K> {
        self.entries[slot as usize]
            .as_ref()
            .expect("only slots in use are referred to")
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Slot<K> {
        self.entries[slot as usize]
            .as_mut()
            .expect("only slots in use are referred to")
    }

    pub(crate) fn find(&self, hash: u32, key: &K) -> Option<u32>
    where
        K: Eq,
    {
        let same = |found: &Indexed| found.hash == hash && self.get(found.slot).key == *key;
        self.index
            .find(Indexed::table_hash(hash), same)
            .map(|found| found.slot)
    }

    /// The slot of this key, a new one if it has none.
    #[inline]
    pub(crate) fn find_or_insert(&mut self, hash: u32, key: K) -> u32
    where
        K: Eq,
    {
        let entries = &self.entries;
        let same = |found: &Indexed| {
            found.hash == hash
                && entries[found.slot as usize]
                    .as_ref()
                    .is_some_and(|slot| slot.key == key)
        };
        let hash_of = |found: &Indexed| Indexed::table_hash(found.hash);
        match self.index.entry(Indexed::table_hash(hash), same, hash_of) {
            Entry::Occupied(found) => found.get().slot,
            Entry::Vacant(vacant) => {
                let new = Slot {
                    key,
                    hash,
                    wanted: Wanted::No,
                    failures: 0,
                    run: NONE,
                    since: None,
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
                vacant.insert(Indexed { hash, slot });
                slot
            }
        }
    }

    /// Empties a slot; returns its key, to be dropped outside of the lock.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) -> K {
        let removed = self.entries[slot as usize]
            .take()
            .expect("only slots in use are referred to");
        let found = self
            .index
            .find_entry(Indexed::table_hash(removed.hash), |found| found.slot == slot);
        found.ok().expect("every slot in use is indexed").remove();
        self.free.push(slot);
        removed.key
    }

    /// Fewer than a quarter of the slots are in use, so that it is worth to move them together. A queue that shrinks
    /// does this once each time it has become four times smaller, so the cost per removed key is constant.
    #[inline]
    pub(crate) fn is_sparse(&self) -> bool {
        self.entries.len() > KEPT && self.len() < self.entries.len() / 4
    }

    /// Moves the slots together and gives the memory of the empty ones back. Calls `moved` for each slot, as it is, that
    /// gets a new number: `(slot, from, to)`. All numbers are below [`Self::len`] afterwards.
    pub(crate) fn compact(&mut self, mut moved: impl FnMut(&Slot<K>, u32, u32)) {
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
                .find_mut(Indexed::table_hash(slot.hash), |found| found.slot == from)
                .expect("every slot in use is indexed")
                .slot = to;
            moved(slot, from, to);
        }
        self.entries.truncate(self.index.len());
        self.entries.shrink_to(KEPT);
        self.free.clear();
        self.free.shrink_to(KEPT);
        self.index
            .shrink_to(KEPT, |found| Indexed::table_hash(found.hash));
    }
}

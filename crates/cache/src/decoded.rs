//! Decides which decoded objects stay in memory, within a budget of bytes. A segmented cache that resists scans.
//!
//! ```text
//!   decoded ──► protected, while there is room: second chance (CLOCK) for entries read since the last pass
//!          └──► probation, a small part of the budget: first in, first out; some entries are promoted
//! ```
//!
//! A controller that reconciles everything reads all objects one after the other. With LRU, such a scan of more than
//! fits would never hit: each object would be evicted just before its turn. So most new entries go to probation, where
//! they stay long enough for a reconcile to read them again, and the protected ones stay.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use crate::entry::{AnyObject, Entry};

/// The fraction of the budget for probation is one over this.
const PROBATION_SHARE: usize = 16;

/// One of this many entries that leave probation is promoted, if it was read.
const PROMOTE_EVERY: usize = 16;

/// How many protected entries are checked on each insert, to find dropped ones.
const CHECKED_PER_INSERT: usize = 2;

/// The decoded objects that stay in memory.
pub(crate) struct DecodedCache {
    budget: usize,
    segments: Mutex<Segments>,
}

#[derive(Default)]
struct Segments {
    protected: Ring,
    probation: Ring,
    /// How many entries have left probation.
    evictions: usize,
}

/// Entries with their weights. A dropped entry counts until it is checked.
#[derive(Default)]
struct Ring {
    entries: VecDeque<(Weak<Entry>, usize)>,
    used: usize,
}

impl Ring {
    fn push(&mut self, entry: Weak<Entry>, weight: usize) {
        self.used += weight;
        self.entries.push_back((entry, weight));
    }

    fn pop(&mut self) -> Option<(Weak<Entry>, usize)> {
        let (entry, weight) = self.entries.pop_front()?;
        self.used -= weight;
        Some((entry, weight))
    }
}

impl DecodedCache {
    pub(crate) fn new(budget: usize) -> Self {
        Self {
            budget,
            segments: Mutex::default(),
        }
    }

    /// Stores `object` with its entry, and evicts others beyond the budget.
    pub(crate) fn insert(&self, entry: &Arc<Entry>, object: AnyObject, weight: usize) {
        // Two readers may have decoded it at the same time.
        if weight > self.budget || !entry.keep_decoded(object) {
            return;
        }
        let probation_budget = (self.budget / PROBATION_SHARE).max(weight);
        let protected_budget = self.budget - probation_budget;
        let mut segments = self.segments.lock();
        if segments.protected.used + weight > protected_budget {
            segments.remove_dropped();
        }
        if segments.protected.used + weight <= protected_budget {
            segments.protected.push(Arc::downgrade(entry), weight);
        } else {
            segments.probation.push(Arc::downgrade(entry), weight);
        }
        while segments.probation.used > probation_budget {
            segments.evict_from_probation();
        }
        while segments.protected.used > protected_budget {
            segments.evict_from_protected();
        }
    }

    /// Returns the bytes in use, by estimate.
    pub(crate) fn used(&self) -> usize {
        let segments = self.segments.lock();
        segments.protected.used + segments.probation.used
    }
}

impl Segments {
    /// Removes dropped entries among the next few.
    fn remove_dropped(&mut self) {
        for _ in 0..CHECKED_PER_INSERT {
            match self.protected.pop() {
                Some((entry, weight)) if entry.strong_count() > 0 => self.protected.push(entry, weight),
                _ => {}
            }
        }
    }

    fn evict_from_probation(&mut self) {
        let Some((guest, weight)) = self.probation.pop() else {
            return;
        };
        let Some(entry) = guest.upgrade() else { return };
        let was_read = entry.take_recently_read();
        self.evictions += 1;
        if was_read && self.evictions.is_multiple_of(PROMOTE_EVERY) {
            self.protected.push(guest, weight);
        } else {
            entry.drop_decoded();
        }
    }

    fn evict_from_protected(&mut self) {
        let Some((resident, weight)) = self.protected.pop() else {
            return;
        };
        match resident.upgrade() {
            Some(entry) if entry.take_recently_read() => self.protected.push(resident, weight),
            Some(entry) => entry.drop_decoded(),
            None => {}
        }
    }
}

/// Estimates the memory of a decoded object. It takes several times its JSON: optional fields, tree nodes, an
/// allocation for each string. Measured with pods: 3.7 times.
pub(crate) fn weight_of<T>(text: usize) -> usize {
    text * 4 + size_of::<T>()
}

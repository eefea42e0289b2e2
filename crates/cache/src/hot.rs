//! Which decoded objects stay, within a budget of bytes.
//!
//! ```text
//!   decoded ──► residents, while there is room: who was read since the hand came by stays when it needs a place
//!          └──► guests, a small part of the budget: first in, first out; now and then one of them becomes a resident
//! ```
//!
//! A controller reads all objects one after the other whenever everything is to be reconciled. If the newest always
//! stayed, such a round through more than fits would find nothing: each object would be gone just before its turn. So
//! most newcomers are guests, which stay long enough for a reconcile to read them again, and the residents stay.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use crate::entry::{AnyObject, Entry};

/// The part of the budget that is for guests.
const GUESTS: usize = 16;

/// One of so many guests becomes a resident.
const PROMOTED: usize = 16;

/// How many residents are looked at with each newcomer, to find those whose entries are gone.
const LOOKED_AT: usize = 2;

/// The decoded objects that stay.
pub(crate) struct Hot {
    budget: usize,
    house: Mutex<House>,
}

#[derive(Default)]
struct House {
    residents: Ring,
    guests: Ring,
    /// How many guests have left.
    left: usize,
}

/// Entries with their weights. One that is gone weighs until somebody looks at it.
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

impl Hot {
    pub(crate) fn new(budget: usize) -> Self {
        Self {
            budget,
            house: Mutex::default(),
        }
    }

    /// Keeps `object` with its entry while there is room.
    pub(crate) fn keep(&self, entry: &Arc<Entry>, object: AnyObject, weight: usize) {
        // Two readers may have decoded it at once.
        if weight > self.budget || !entry.warm(object) {
            return;
        }
        let for_guests = (self.budget / GUESTS).max(weight);
        let for_residents = self.budget - for_guests;
        let mut house = self.house.lock();
        if house.residents.used + weight > for_residents {
            house.look_around();
        }
        if house.residents.used + weight <= for_residents {
            house.residents.push(Arc::downgrade(entry), weight);
        } else {
            house.guests.push(Arc::downgrade(entry), weight);
        }
        while house.guests.used > for_guests {
            house.part_with_a_guest();
        }
        while house.residents.used > for_residents {
            house.part_with_a_resident();
        }
    }

    /// Bytes in use, as far as can be told.
    pub(crate) fn used(&self) -> usize {
        let house = self.house.lock();
        house.residents.used + house.guests.used
    }
}

impl House {
    /// Finds room that entries have left which are gone.
    fn look_around(&mut self) {
        for _ in 0..LOOKED_AT {
            match self.residents.pop() {
                Some((entry, weight)) if entry.strong_count() > 0 => self.residents.push(entry, weight),
                _ => {}
            }
        }
    }

    fn part_with_a_guest(&mut self) {
        let Some((guest, weight)) = self.guests.pop() else {
            return;
        };
        let Some(entry) = guest.upgrade() else { return };
        let was_read = entry.was_read();
        self.left += 1;
        if was_read && self.left.is_multiple_of(PROMOTED) {
            self.residents.push(guest, weight);
        } else {
            entry.cool();
        }
    }

    fn part_with_a_resident(&mut self) {
        let Some((resident, weight)) = self.residents.pop() else {
            return;
        };
        match resident.upgrade() {
            Some(entry) if entry.was_read() => self.residents.push(resident, weight),
            Some(entry) => entry.cool(),
            None => {}
        }
    }
}

/// A decoded object takes several times its JSON: optional fields, tree nodes, an allocation for each text. Measured
/// on pods it was 3.7 times.
pub(crate) fn weight_of<T>(text: usize) -> usize {
    text * 4 + size_of::<T>()
}

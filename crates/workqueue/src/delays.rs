//! The delayed keys, earliest deadline first.
//!
//! An indexed binary heap: it knows the position of each key, so that a delay can be cancelled or replaced without
//! leaving a dead entry behind. The standard heap cannot do that, and timer wheels (tokio-util's `DelayQueue`) round
//! every deadline to their tick and lose the order of equal deadlines.

use tokio::time::Instant;

use crate::list::NONE;

pub(crate) struct Delays {
    /// Heap order by `(at, sequence)`: no entry is earlier than its parent at `(i - 1) / 2`.
    heap: Vec<Delay>,
    /// The index of each slot in `heap`; `NONE` if it is not delayed.
    position: Vec<u32>,
    /// Numbers the entries in order of arrival, so that equal deadlines keep that order.
    sequence: u64,
}

#[derive(Clone, Copy)]
struct Delay {
    at: Instant,
    turn: u64,
    slot: u32,
}

impl Delay {
    fn before(&self, other: &Self) -> bool {
        (self.at, self.turn) < (other.at, other.turn)
    }
}

impl Delays {
    pub(crate) fn new() -> Self {
        Self {
            heap: Vec::new(),
            position: Vec::new(),
            sequence: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// The earliest deadline.
    #[inline]
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.heap.first().map(|delay| delay.at)
    }

    /// The slot with the earliest deadline.
    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        self.heap.first().map(|delay| delay.slot)
    }

    /// The slot with the earliest deadline, if that has passed.
    pub(crate) fn first_due(&self, now: Instant) -> Option<u32> {
        self.heap
            .first()
            .filter(|delay| delay.at <= now)
            .map(|delay| delay.slot)
    }

    /// The deadline of `slot`, which must be delayed.
    pub(crate) fn at(&self, slot: u32) -> Instant {
        self.heap[self.position[slot as usize] as usize].at
    }

    /// Delays `slot` until `at`, replacing a delay that it may have.
    pub(crate) fn set(&mut self, slot: u32, at: Instant) {
        let index = slot as usize;
        if self.position.len() <= index {
            self.position.resize(index + 1, NONE);
        }
        if self.position[index] != NONE {
            self.remove(slot);
        }
        let turn = self.sequence;
        self.sequence += 1;
        self.heap.push(Delay { at, turn, slot });
        self.sift_up(self.heap.len() - 1);
    }

    /// Ends the delay of `slot`, which must be delayed.
    pub(crate) fn remove(&mut self, slot: u32) {
        let at = std::mem::replace(&mut self.position[slot as usize], NONE) as usize;
        self.heap.swap_remove(at);
        if at < self.heap.len() {
            self.sift_up(at);
            let at = self.position[self.heap[at].slot as usize] as usize;
            self.sift_down(at);
        }
    }

    /// Renames slot `from` to `to`.
    pub(crate) fn renumber(&mut self, from: u32, to: u32) {
        let at = std::mem::replace(&mut self.position[from as usize], NONE);
        self.position[to as usize] = at;
        self.heap[at as usize].slot = to;
    }

    /// Frees the memory of the slots from `len` on, none of which is delayed.
    pub(crate) fn shrink(&mut self, len: usize) {
        self.position.truncate(len);
        self.position.shrink_to_fit();
        self.heap.shrink_to_fit();
    }

    fn sift_up(&mut self, mut at: usize) {
        let moving = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / 2;
            if !moving.before(&self.heap[parent]) {
                break;
            }
            self.place(at, self.heap[parent]);
            at = parent;
        }
        self.place(at, moving);
    }

    fn sift_down(&mut self, mut at: usize) {
        let moving = self.heap[at];
        loop {
            let mut child = 2 * at + 1;
            if child >= self.heap.len() {
                break;
            }
            if child + 1 < self.heap.len() && self.heap[child + 1].before(&self.heap[child]) {
                child += 1;
            }
            if !self.heap[child].before(&moving) {
                break;
            }
            self.place(at, self.heap[child]);
            at = child;
        }
        self.place(at, moving);
    }

    fn place(&mut self, at: usize, delay: Delay) {
        self.heap[at] = delay;
        self.position[delay.slot as usize] = u32::try_from(at).expect("slots are numbered by u32");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn delays_stay_ordered_after_replacing_and_cancelling(
            steps in prop::collection::vec((0u32..40, 0u64..50, any::<bool>()), 0..300)
        ) {
            let start = Instant::now();
            let mut delays = Delays::new();
            let mut model = BTreeMap::new();
            for (turn, (slot, millis, cancel)) in steps.into_iter().enumerate() {
                if cancel && model.remove(&slot).is_some() {
                    delays.remove(slot);
                } else {
                    let at = start + Duration::from_millis(millis);
                    delays.set(slot, at);
                    model.insert(slot, (at, turn));
                }
            }
            let mut expected: Vec<_> = model.into_iter().map(|(slot, due)| (due, slot)).collect();
            expected.sort_unstable();
            for (due, slot) in expected {
                prop_assert_eq!((delays.next_at(), delays.first()), (Some(due.0), Some(slot)));
                delays.remove(slot);
            }
            prop_assert!(delays.is_empty());
        }
    }
}

//! The order in which queued keys are handed out: by priority, then by arrival, and at intervals by age.
//!
//! ```text
//!   classes  (high)  [   0] -> d 4 -> e 7
//!            (low)   [-100] -> a 1 -> b 2 -> c 5          each with the ticket it got on arrival
//! ```
//!
//! The next key is the front of the highest class. At the interval that [`Ageing`] sets, it is the one with the lowest
//! ticket instead, which is always at the front of a class.

use std::num::NonZeroU32;

use crate::Priority;
use crate::list::{Link, List};

/// How often a key of low priority may be skipped in favour of higher ones. Default: 9 times.
///
/// With a limit of *n*, **the key that has been queued the longest is skipped at most *n* times in a row**: the next
/// [`next`](crate::WorkQueue::next) returns it, whatever its priority. So a key with *a* keys queued before it is
/// returned after at most (*a* + 1) × (*n* + 1) calls, and at least one call in *n* + 1 follows age alone, however fast
/// urgent keys arrive. A key's age starts when it is queued, not while it is delayed or being processed. It starts
/// again when an add raises the key's priority, which puts it at the end of its new class.
///
/// Urgent keys pay for it: at most one call in *n* + 1 skips them, 10 % by default. Counting calls rather than time
/// keeps the bound when the queue is overloaded; a time limit would then age every key and disable priorities exactly
/// when they matter.
///
/// ```
/// use windlass_workqueue::{Ageing, WorkQueue};
/// // One call in three returns the oldest key.
/// let queue = WorkQueue::<String>::builder().ageing(Ageing::max_skips(2)).build();
/// # drop(queue);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ageing {
    /// Every how many calls the oldest key is returned; `None`: never.
    every: Option<NonZeroU32>,
}

impl Ageing {
    /// Skips the oldest key at most this many times in a row. Zero ignores priorities: oldest first.
    pub const fn max_skips(limit: u32) -> Self {
        Self {
            every: NonZeroU32::MIN.checked_add(limit),
        }
    }

    /// Makes priorities strict: a low one waits as long as higher ones keep coming.
    pub const fn off() -> Self {
        Self { every: None }
    }
}

impl Default for Ageing {
    fn default() -> Self {
        Self::max_skips(9)
    }
}

/// All slots that are pending now, and the order of the queued ones.
pub(crate) struct Ready {
    /// Ascending by priority; every class has a depth of at least one.
    classes: Vec<Class>,
    /// The links of the queued slots within their classes.
    links: Vec<Link>,
    /// The tickets of the queued slots; ascending within a class.
    tickets: Vec<u64>,
    next_ticket: u64,
    /// How many calls in a row may have skipped the oldest slot.
    skips: u32,
    ageing: Ageing,
    /// The sum of the classes' depths.
    pending: usize,
    /// The sum of the classes' lengths.
    queued: usize,
}

/// The slot to hand out next. Valid until the next change.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) slot: u32,
    class: usize,
}

struct Class {
    priority: Priority,
    /// The queued slots.
    queue: List,
    /// How many slots are pending: the queued ones, and those that were added again while being processed.
    depth: usize,
}

impl Ready {
    pub(crate) fn new(ageing: Ageing) -> Self {
        Self {
            classes: Vec::new(),
            links: Vec::new(),
            tickets: Vec::new(),
            next_ticket: 0,
            skips: 0,
            ageing,
            pending: 0,
            queued: 0,
        }
    }

    /// How many slots are queued.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.queued
    }

    /// How many slots are pending now, including those that are being processed.
    #[inline]
    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    /// Counts a slot of this priority as pending while it is still being processed; it must be [pushed](Self::push)
    /// when its run ends. Returns how many slots of the class are pending.
    #[inline]
    pub(crate) fn mark_pending(&mut self, priority: Priority) -> usize {
        let at = self.class_or_new(priority);
        self.mark_pending_at(at)
    }

    /// Counts a slot of this priority as pending and queues it. Returns how many slots of the class are pending.
    #[inline]
    pub(crate) fn mark_pending_and_push(&mut self, slot: u32, priority: Priority) -> usize {
        let at = self.class_or_new(priority);
        self.push_at(slot, at);
        self.mark_pending_at(at)
    }

    /// Queues a slot that is counted as pending already, at the end of its class.
    #[inline]
    pub(crate) fn push(&mut self, slot: u32, priority: Priority) {
        self.push_at(slot, self.class(priority));
    }

    #[inline]
    fn mark_pending_at(&mut self, at: usize) -> usize {
        self.pending += 1;
        self.classes[at].depth += 1;
        self.classes[at].depth
    }

    #[inline]
    fn push_at(&mut self, slot: u32, at: usize) {
        let index = slot as usize;
        if self.links.len() <= index {
            self.links.resize(index + 1, Link::FREE);
            self.tickets.resize(index + 1, 0);
        }
        self.tickets[index] = self.next_ticket;
        self.next_ticket += 1;
        self.classes[at].queue.push_back(&mut self.links, slot);
        self.queued += 1;
    }

    /// Moves a pending slot to another class, at its end if the slot is queued. Returns the depths of the old and the
    /// new class.
    pub(crate) fn change_class(
        &mut self,
        queued: Option<u32>,
        from: Priority,
        to: Priority,
    ) -> (usize, usize) {
        let depth = self.mark_pending(to);
        let at = self.class(from);
        if let Some(slot) = queued {
            self.classes[at].queue.remove(&mut self.links, slot);
            self.queued -= 1;
            self.push(slot, to);
        }
        (self.unmark_pending(at), depth)
    }

    /// Returns the slot to hand out next. It stays queued until it is [popped](Self::pop).
    #[inline]
    pub(crate) fn next(&self) -> Option<Candidate> {
        if self.classes.len() > 1 && self.skips_are_used_up() {
            return self.oldest();
        }
        let mut classes = self.classes.iter().enumerate().rev();
        classes.find_map(|(class, it)| {
            Some(Candidate {
                slot: it.queue.front()?,
                class,
            })
        })
    }

    /// The slot with the lowest ticket.
    #[cold]
    fn oldest(&self) -> Option<Candidate> {
        let fronts = self.classes.iter().enumerate();
        let turns = fronts.filter_map(|(class, it)| {
            Some(Candidate {
                slot: it.queue.front()?,
                class,
            })
        });
        turns.min_by_key(|turn| self.tickets[turn.slot as usize])
    }

    /// Removes the slot that [`next`](Self::next) returned; returns how many slots of its class are still pending.
    #[inline]
    pub(crate) fn pop(&mut self, turn: Candidate) -> usize {
        self.skips = if self.skips_are_used_up() {
            0
        } else {
            self.skips.saturating_add(1)
        };
        self.classes[turn.class].queue.remove(&mut self.links, turn.slot);
        self.queued -= 1;
        self.unmark_pending(turn.class)
    }

    /// Renames the queued slot `from` to `to`.
    pub(crate) fn renumber(&mut self, from: u32, to: u32, priority: Priority) {
        let at = self.class(priority);
        self.classes[at].queue.renumber(&mut self.links, from, to);
        self.tickets[to as usize] = self.tickets[from as usize];
    }

    /// Frees the memory of the slots from `len` on, none of which is queued.
    pub(crate) fn shrink(&mut self, len: usize) {
        self.links.truncate(len);
        self.links.shrink_to_fit();
        self.tickets.truncate(len);
        self.tickets.shrink_to_fit();
    }

    /// Returns whether the oldest slot is next.
    #[inline]
    fn skips_are_used_up(&self) -> bool {
        // The front of the only class is the oldest.
        self.classes.len() == 1
            || self
                .ageing
                .every
                .is_some_and(|every| self.skips + 1 >= every.get())
    }

    /// Counts one pending slot less in the class at this index; returns how many are left.
    #[inline]
    fn unmark_pending(&mut self, at: usize) -> usize {
        self.pending -= 1;
        self.classes[at].depth -= 1;
        let depth = self.classes[at].depth;
        if depth == 0 {
            self.classes.remove(at);
        }
        depth
    }

    /// The index of a pending slot's class.
    #[inline]
    fn class(&self, priority: Priority) -> usize {
        self.find_class(priority).expect("a pending slot's class exists")
    }

    #[inline]
    fn class_or_new(&mut self, priority: Priority) -> usize {
        self.find_class(priority).unwrap_or_else(|at| {
            self.classes.insert(
                at,
                Class {
                    priority,
                    queue: List::EMPTY,
                    depth: 0,
                },
            );
            at
        })
    }

    /// The index of a class, or where to insert it.
    #[inline]
    fn find_class(&self, priority: Priority) -> Result<usize, usize> {
        // Nearly always there is only one class, or it is the highest one.
        match self.classes.last() {
            Some(highest) if highest.priority == priority => Ok(self.classes.len() - 1),
            _ => self
                .classes
                .binary_search_by_key(&priority, |class| class.priority),
        }
    }
}

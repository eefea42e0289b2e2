//! The order in which queued keys are handed out: by priority, then by arrival, and by age when it is time.
//!
//! ```text
//!   classes  (high)  [   0] -> d 4 -> e 7
//!            (low)   [-100] -> a 1 -> b 2 -> c 5          each with the ticket that it drew on arrival
//! ```
//!
//! A take serves the front of the highest class. As often as [`Ageing`] asks, it serves the lowest ticket instead, which
//! is always at the front of a class.

use std::num::NonZeroU32;

use crate::Priority;
use crate::list::{Link, List};

/// How long a key of low priority may wait behind higher ones. Default: passed over 9 times.
///
/// With a limit of *n*, **the key that has been queued the longest is passed over at most *n* times in a row**: take
/// number *n* + 1 serves it, whatever its priority. So a key with *a* keys queued before it is taken after at most
/// (*a* + 1) × (*n* + 1) takes, and at least one take in *n* + 1 follows age alone, however fast urgent keys arrive.
/// A key's wait starts when it is queued: not while it is delayed or in a worker's hand, and anew when an add raises its
/// priority, which puts it at the end of its new class.
///
/// The price is paid by the urgent: at most one take in *n* + 1 goes past them, 10 % by default. Counting takes rather
/// than time keeps the bound when the queue is overloaded; a limit in time would then turn every key into an aged one, and
/// priorities off, exactly when they matter.
///
/// ```
/// use windlass_workqueue::{Ageing, WorkQueue};
/// // One take in three goes to the oldest.
/// let queue = WorkQueue::<String>::builder().ageing(Ageing::passes(2)).build();
/// # drop(queue);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ageing {
    /// `None`: never; otherwise the number of the take that serves the oldest.
    every: Option<NonZeroU32>,
}

impl Ageing {
    /// The oldest key is passed over at most this many times in a row. Zero: priorities are ignored, oldest first.
    pub const fn passes(limit: u32) -> Self {
        Self {
            every: NonZeroU32::MIN.checked_add(limit),
        }
    }

    /// Priorities are strict: a low one waits for as long as higher ones keep coming.
    pub const fn off() -> Self {
        Self { every: None }
    }
}

impl Default for Ageing {
    fn default() -> Self {
        Self::passes(9)
    }
}

/// All slots that are wanted now, and the order of those that may be taken.
pub(crate) struct Ready {
    /// Ascending by priority; every class has a depth of at least one.
    classes: Vec<Class>,
    /// The places of the queued slots in their classes.
    links: Vec<Link>,
    /// The tickets of the queued slots; ascending within a class.
    tickets: Vec<u64>,
    next_ticket: u64,
    /// How many takes in a row may not have served the oldest.
    passes: u32,
    ageing: Ageing,
    /// The sum of the classes' depths.
    wanted: usize,
    /// The sum of the classes' lengths.
    queued: usize,
}

/// Whose turn it is. Valid until the next change.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) slot: u32,
    class: usize,
}

struct Class {
    priority: Priority,
    /// The slots that may be taken.
    queue: List,
    /// Those, and the slots that are wanted again while they are still in a worker's hand.
    depth: usize,
}

impl Ready {
    pub(crate) fn new(ageing: Ageing) -> Self {
        Self {
            classes: Vec::new(),
            links: Vec::new(),
            tickets: Vec::new(),
            next_ticket: 0,
            passes: 0,
            ageing,
            wanted: 0,
            queued: 0,
        }
    }

    /// How many slots may be taken.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.queued
    }

    /// How many slots are wanted now, including those that are in a worker's hand.
    #[inline]
    pub(crate) fn wanted(&self) -> usize {
        self.wanted
    }

    /// A slot of this priority is wanted while it is still in a hand; returns how many of that class are wanted. It must be
    /// [pushed](Self::push) when it leaves the hand.
    #[inline]
    pub(crate) fn want(&mut self, priority: Priority) -> usize {
        let at = self.class_or_new(priority);
        self.want_at(at)
    }

    /// A slot of this priority is wanted and in no hand, so it is queued; returns how many of that class are wanted.
    #[inline]
    pub(crate) fn want_and_push(&mut self, slot: u32, priority: Priority) -> usize {
        let at = self.class_or_new(priority);
        self.push_at(slot, at);
        self.want_at(at)
    }

    /// Queues a slot that was wanted already at the end of its class.
    #[inline]
    pub(crate) fn push(&mut self, slot: u32, priority: Priority) {
        self.push_at(slot, self.class(priority));
    }

    #[inline]
    fn want_at(&mut self, at: usize) -> usize {
        self.wanted += 1;
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

    /// A wanted slot has another priority now, and goes to the end of that class if it is queued. Returns the depths of
    /// the old and the new class.
    pub(crate) fn change_class(
        &mut self,
        queued: Option<u32>,
        from: Priority,
        to: Priority,
    ) -> (usize, usize) {
        let depth = self.want(to);
        let at = self.class(from);
        if let Some(slot) = queued {
            self.classes[at].queue.remove(&mut self.links, slot);
            self.queued -= 1;
            self.push(slot, to);
        }
        (self.unwant(at), depth)
    }

    /// The slot whose turn it is, and where its class stands. It stays queued until it is [popped](Self::pop).
    #[inline]
    pub(crate) fn next(&self) -> Option<Turn> {
        if self.classes.len() > 1 && self.passes_are_used_up() {
            return self.oldest();
        }
        let mut classes = self.classes.iter().enumerate().rev();
        classes.find_map(|(class, it)| {
            Some(Turn {
                slot: it.queue.front()?,
                class,
            })
        })
    }

    /// The slot with the lowest ticket.
    #[cold]
    fn oldest(&self) -> Option<Turn> {
        let fronts = self.classes.iter().enumerate();
        let turns = fronts.filter_map(|(class, it)| {
            Some(Turn {
                slot: it.queue.front()?,
                class,
            })
        });
        turns.min_by_key(|turn| self.tickets[turn.slot as usize])
    }

    /// Hands out the slot that [`next`](Self::next) named; returns how many of its class are still wanted.
    #[inline]
    pub(crate) fn pop(&mut self, turn: Turn) -> usize {
        self.passes = if self.passes_are_used_up() {
            0
        } else {
            self.passes.saturating_add(1)
        };
        self.classes[turn.class].queue.remove(&mut self.links, turn.slot);
        self.queued -= 1;
        self.unwant(turn.class)
    }

    /// The queued slot `from` has become slot `to`.
    pub(crate) fn renumber(&mut self, from: u32, to: u32, priority: Priority) {
        let at = self.class(priority);
        self.classes[at].queue.renumber(&mut self.links, from, to);
        self.tickets[to as usize] = self.tickets[from as usize];
    }

    /// No slot from `len` on is queued: gives their memory back.
    pub(crate) fn shrink(&mut self, len: usize) {
        self.links.truncate(len);
        self.links.shrink_to_fit();
        self.tickets.truncate(len);
        self.tickets.shrink_to_fit();
    }

    /// It is the turn of the oldest.
    #[inline]
    fn passes_are_used_up(&self) -> bool {
        // The front of the only class is the oldest.
        self.classes.len() == 1
            || self
                .ageing
                .every
                .is_some_and(|every| self.passes + 1 >= every.get())
    }

    /// One slot less is wanted in the class that stands there; returns how many still are.
    #[inline]
    fn unwant(&mut self, at: usize) -> usize {
        self.wanted -= 1;
        self.classes[at].depth -= 1;
        let depth = self.classes[at].depth;
        if depth == 0 {
            self.classes.remove(at);
        }
        depth
    }

    /// Where the class of a wanted slot stands.
    #[inline]
    fn class(&self, priority: Priority) -> usize {
        self.find_class(priority).expect("a wanted slot's class exists")
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

    /// Where a class stands, or would.
    #[inline]
    fn find_class(&self, priority: Priority) -> Result<usize, usize> {
        // Nearly always there is one class, or the highest is meant.
        match self.classes.last() {
            Some(highest) if highest.priority == priority => Ok(self.classes.len() - 1),
            _ => self
                .classes
                .binary_search_by_key(&priority, |class| class.priority),
        }
    }
}

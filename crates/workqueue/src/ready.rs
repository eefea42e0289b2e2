//! The order in which queued keys are handed out: by priority, then by arrival, and by age when it is time.
//!
//! ```text
//!   classes  (high)  [ 0 ] -> d -> e
//!            (low)   [-100] -> a -> b -> c
//!   by age            a -> b -> c -> d -> e      every queued slot, in the order in which they became ready
//! ```
//!
//! A take serves the front of the highest class. When the front of `by_age` has been passed over as often as [`Ageing`]
//! allows, it is served instead.

use std::num::NonZeroU32;

use crate::Priority;
use crate::list::{Link, List};

/// How long a key of low priority may wait behind higher ones. Default: passed over 9 times.
///
/// With a limit of *n*, **the key that has been queued the longest is passed over at most *n* times in a row**: take
/// number *n* + 1 serves it, whatever its priority. So a key with *a* keys queued before it is taken after at most
/// (*a* + 1) × (*n* + 1) takes, and at least one take in *n* + 1 follows age alone, however fast urgent keys arrive. Keys
/// that are delayed, or in a worker's hand, are not queued, and their wait does not count.
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
    /// Every slot that is in a class's `queue`, in the order in which they became ready.
    by_age: List,
    class_links: Vec<Link>,
    age_links: Vec<Link>,
    /// How many takes in a row have not served the front of `by_age`.
    passed_over: u32,
    ageing: Ageing,
    /// The sum of the classes' depths.
    wanted: usize,
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
            by_age: List::EMPTY,
            class_links: Vec::new(),
            age_links: Vec::new(),
            passed_over: 0,
            ageing,
            wanted: 0,
        }
    }

    /// How many slots may be taken.
    pub(crate) fn len(&self) -> usize {
        self.by_age.len()
    }

    /// How many slots are wanted now, including those that are in a worker's hand.
    pub(crate) fn wanted(&self) -> usize {
        self.wanted
    }

    /// Counts one more wanted slot in a class; returns the class's new depth.
    pub(crate) fn want(&mut self, priority: Priority) -> usize {
        self.wanted += 1;
        let class = self.class_or_new(priority);
        class.depth += 1;
        class.depth
    }

    /// Counts one wanted slot less in a class; returns the class's new depth.
    pub(crate) fn unwant(&mut self, priority: Priority) -> usize {
        self.wanted -= 1;
        let at = self.class(priority);
        let class = &mut self.classes[at];
        class.depth -= 1;
        let depth = class.depth;
        if depth == 0 {
            self.classes.remove(at);
        }
        depth
    }

    /// Queues `slot`, already counted by [`want`](Self::want), at the end of its class.
    pub(crate) fn push(&mut self, slot: u32, priority: Priority) {
        let needed = slot as usize + 1;
        if self.age_links.len() < needed {
            self.age_links.resize(needed, Link::FREE);
            self.class_links.resize(needed, Link::FREE);
        }
        let at = self.class(priority);
        self.classes[at].queue.push_back(&mut self.class_links, slot);
        self.by_age.push_back(&mut self.age_links, slot);
    }

    /// Moves a queued `slot` to the end of another class, counted there already; its age stays.
    pub(crate) fn change_class(&mut self, slot: u32, from: Priority, to: Priority) {
        let at = self.class(from);
        self.classes[at].queue.remove(&mut self.class_links, slot);
        let at = self.class(to);
        self.classes[at].queue.push_back(&mut self.class_links, slot);
    }

    /// The slot whose turn it is. It stays queued until it is [popped](Self::pop).
    pub(crate) fn next(&self) -> Option<u32> {
        let oldest = self.by_age.front()?;
        if self
            .ageing
            .every
            .is_some_and(|every| self.passed_over + 1 >= every.get())
        {
            return Some(oldest);
        }
        self.classes.iter().rev().find_map(|class| class.queue.front())
    }

    /// Takes `slot`, which [`next`](Self::next) named, out of the order. Its class still counts it.
    pub(crate) fn pop(&mut self, slot: u32, priority: Priority) {
        if self.by_age.front() == Some(slot) {
            self.passed_over = 0;
        } else {
            self.passed_over = self.passed_over.saturating_add(1);
        }
        let at = self.class(priority);
        self.classes[at].queue.remove(&mut self.class_links, slot);
        self.by_age.remove(&mut self.age_links, slot);
    }

    /// The queued slot `from` has become slot `to`.
    pub(crate) fn renumber(&mut self, from: u32, to: u32, priority: Priority) {
        let at = self.class(priority);
        self.classes[at].queue.renumber(&mut self.class_links, from, to);
        self.by_age.renumber(&mut self.age_links, from, to);
    }

    /// No slot from `len` on is queued: gives their memory back.
    pub(crate) fn shrink(&mut self, len: usize) {
        for links in [&mut self.class_links, &mut self.age_links] {
            links.truncate(len);
            links.shrink_to_fit();
        }
    }

    /// Where the class of a wanted slot stands.
    fn class(&self, priority: Priority) -> usize {
        // Nearly always there is one class, or the highest is meant.
        match self.classes.last() {
            Some(class) if class.priority == priority => self.classes.len() - 1,
            _ => self
                .classes
                .binary_search_by_key(&priority, |class| class.priority)
                .expect("a wanted slot's class exists"),
        }
    }

    fn class_or_new(&mut self, priority: Priority) -> &mut Class {
        let at = self.classes.partition_point(|class| class.priority < priority);
        if self
            .classes
            .get(at)
            .is_none_or(|class| class.priority != priority)
        {
            self.classes.insert(
                at,
                Class {
                    priority,
                    queue: List::EMPTY,
                    depth: 0,
                },
            );
        }
        &mut self.classes[at]
    }
}

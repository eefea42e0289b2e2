//! The `next` calls that wait: which one is woken for a new key, and which one has the timer.
//!
//! ```text
//!                 wait                       wake
//!   (a call) ──────────────► queued ───────────────► woken ──► polled: gets a key, or waits again
//!        │                                  ▲
//!        └─────► timekeeper ────────────────┘        a waiter can leave (or be dropped) in any state
//! ```
//!
//! At most one waiter, the timekeeper, has a timer, and only while a key is delayed. So a deadline wakes one worker and
//! not all of them. Every change of the queue calls [`Waiters::balance`] before it releases the lock, which
//! establishes, for *ready* queued keys:
//!
//! - `woken ≥ min(ready, waiters)`: no key is queued while all waiters sleep. If a woken waiter is dropped instead of
//!   polled, that is a change too, so its wake-up goes to the next waiter;
//! - as long as a key is delayed and a call waits, there is a timekeeper, or a woken waiter that will become it.

use std::task::Waker;

use tokio::time::Instant;

use crate::list::{Link, List};

pub(crate) struct Waiters {
    slab: Vec<Waiter>,
    free: Vec<u32>,
    queue: List,
    links: Vec<Link>,
    /// The waiter with the timer, and the timer's deadline.
    timekeeper: Option<(u32, Instant)>,
    /// How many were woken and have neither been polled nor removed since.
    woken: usize,
}

struct Waiter {
    state: State,
    waker: Waker,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Queued,
    Timekeeper,
    Woken,
}

/// Wakers to call once the lock is released: nearly always none or one.
#[must_use]
pub(crate) enum WakeList {
    None,
    One(Waker),
    Many(Vec<Waker>),
}

impl WakeList {
    fn push(&mut self, waker: Waker) {
        *self = match std::mem::replace(self, Self::None) {
            Self::None => Self::One(waker),
            Self::One(first) => Self::Many(vec![first, waker]),
            Self::Many(mut wakers) => {
                wakers.push(waker);
                Self::Many(wakers)
            }
        }
    }

    #[inline]
    pub(crate) fn wake(self) {
        match self {
            Self::None => {}
            Self::One(waker) => waker.wake(),
            Self::Many(wakers) => wakers.into_iter().for_each(Waker::wake),
        }
    }
}

impl Waiters {
    pub(crate) fn new() -> Self {
        Self {
            slab: Vec::new(),
            free: Vec::new(),
            queue: List::EMPTY,
            links: Vec::new(),
            timekeeper: None,
            woken: 0,
        }
    }

    /// Makes a call that found no key wait. Returns the deadline for its timer if it became the timekeeper.
    pub(crate) fn wait(
        &mut self,
        waiter: &mut Option<u32>,
        waker: &Waker,
        next_at: Option<Instant>,
    ) -> Option<Instant> {
        let id = match *waiter {
            Some(id) => {
                self.detach(id);
                id
            }
            None => *waiter.insert(self.new_waiter(waker)),
        };
        let timekeeps = next_at.filter(|_| self.timekeeper.is_none());
        let entry = &mut self.slab[id as usize];
        entry.waker.clone_from(waker);
        if let Some(at) = timekeeps {
            entry.state = State::Timekeeper;
            self.timekeeper = Some((id, at));
        } else {
            entry.state = State::Queued;
            self.queue.push_back(&mut self.links, id);
        }
        timekeeps
    }

    /// Removes a waiter that got a key or was dropped.
    #[inline]
    pub(crate) fn leave(&mut self, waiter: &mut Option<u32>) {
        if let Some(id) = waiter.take() {
            self.detach(id);
            self.slab[id as usize].waker.clone_from(Waker::noop());
            self.free.push(id);
        }
    }

    /// Returns whether no waiter could be woken.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.front().is_none() && self.timekeeper.is_none()
    }

    /// Wakes as many waiters as needed for this number of ready keys and this earliest deadline.
    pub(crate) fn balance(&mut self, ready: usize, next_at: Option<Instant>) -> WakeList {
        let mut wakes = WakeList::None;
        while self.woken < ready && self.wake_one(&mut wakes) {}
        match (next_at, self.timekeeper) {
            // No timekeeper: a woken waiter becomes it.
            (Some(_), None) if self.woken == 0 => {
                self.wake_one(&mut wakes);
            }
            (Some(at), Some((id, set_to))) if at < set_to => self.wake(id, &mut wakes),
            _ => {}
        }
        wakes
    }

    /// Wakes all waiters: the queue is exhausted.
    pub(crate) fn wake_all(&mut self) -> WakeList {
        let mut wakes = WakeList::None;
        while self.wake_one(&mut wakes) {}
        wakes
    }

    /// Wakes the first queued waiter, or the timekeeper if there is no other.
    fn wake_one(&mut self, wakes: &mut WakeList) -> bool {
        let Some(id) = self.queue.front().or(self.timekeeper.map(|(id, _)| id)) else {
            return false;
        };
        self.wake(id, wakes);
        true
    }

    fn wake(&mut self, id: u32, wakes: &mut WakeList) {
        self.detach(id);
        let waiter = &mut self.slab[id as usize];
        waiter.state = State::Woken;
        self.woken += 1;
        wakes.push(waiter.waker.clone());
    }

    /// Removes the waiter from the structure that its state refers to; the caller sets a new state.
    fn detach(&mut self, id: u32) {
        match self.slab[id as usize].state {
            State::Queued => self.queue.remove(&mut self.links, id),
            State::Timekeeper => self.timekeeper = None,
            State::Woken => self.woken -= 1,
        }
    }

    /// Returns a waiter whose state the caller has to set.
    fn new_waiter(&mut self, waker: &Waker) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slab.push(Waiter {
                state: State::Woken,
                waker: waker.clone(),
            });
            self.links.push(Link::FREE);
            u32::try_from(self.slab.len() - 1).expect("fewer than 2^32 calls wait")
        })
    }
}

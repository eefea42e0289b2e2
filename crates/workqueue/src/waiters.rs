//! The takes that wait: who is woken when work comes, and who watches the clock.
//!
//! ```text
//!                 wait                       wake
//!   (a take) ──────────────► in line ──────────────► woken ──► polls: takes, or waits again
//!        │                                  ▲
//!        └─────► timekeeper ────────────────┘        leaving (also when dropped) is possible from everywhere
//! ```
//!
//! At most one take keeps the time, and only while a key is delayed: the others have no timer, so a deadline wakes
//! one worker and not all of them. Whoever changes the queue calls [`Waiters::balance`] before it gives up the lock;
//! it establishes, for *ready* queued keys,
//!
//! - `woken ≥ min(ready, takes that wait)`: no key lies there while everybody sleeps. A woken take that is dropped
//!   instead of polled leaves, which is such a change, so its wake-up goes to the next in line;
//! - somebody keeps the time, or is woken and will, as long as a key is delayed and a take waits.

use std::task::Waker;

use tokio::time::Instant;

use crate::list::{Link, List};

pub(crate) struct Waiters {
    places: Vec<Place>,
    free: Vec<u32>,
    line: List,
    links: Vec<Link>,
    /// Who keeps the time, and the deadline it has set its timer to.
    timekeeper: Option<(u32, Instant)>,
    /// How many were woken and have neither polled nor left since.
    woken: usize,
}

struct Place {
    state: State,
    waker: Waker,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    InLine,
    Timekeeper,
    Woken,
}

/// Wakers to call once the lock is free: nearly always none or one.
#[must_use]
pub(crate) enum Wakes {
    None,
    One(Waker),
    Many(Vec<Waker>),
}

impl Wakes {
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
            places: Vec::new(),
            free: Vec::new(),
            line: List::EMPTY,
            links: Vec::new(),
            timekeeper: None,
            woken: 0,
        }
    }

    /// A take found nothing and waits. Returns the deadline that it has to watch, if that fell to it.
    pub(crate) fn wait(
        &mut self,
        place: &mut Option<u32>,
        waker: &Waker,
        next_at: Option<Instant>,
    ) -> Option<Instant> {
        let id = match *place {
            Some(id) => {
                self.step_out(id);
                id
            }
            None => *place.insert(self.new_place(waker)),
        };
        let timekeeps = next_at.filter(|_| self.timekeeper.is_none());
        let entry = &mut self.places[id as usize];
        entry.waker.clone_from(waker);
        if let Some(at) = timekeeps {
            entry.state = State::Timekeeper;
            self.timekeeper = Some((id, at));
        } else {
            entry.state = State::InLine;
            self.line.push_back(&mut self.links, id);
        }
        timekeeps
    }

    /// A take that waited does so no longer: it got a key, or it was dropped.
    #[inline]
    pub(crate) fn leave(&mut self, place: &mut Option<u32>) {
        if let Some(id) = place.take() {
            self.step_out(id);
            self.places[id as usize].waker.clone_from(Waker::noop());
            self.free.push(id);
        }
    }

    /// Nobody could be woken.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.line.front().is_none() && self.timekeeper.is_none()
    }

    /// Wakes whom the queue needs, given how many keys are ready and when the first delayed one is due.
    pub(crate) fn balance(&mut self, ready: usize, next_at: Option<Instant>) -> Wakes {
        let mut wakes = Wakes::None;
        while self.woken < ready && self.wake_one(&mut wakes) {}
        match (next_at, self.timekeeper) {
            // Nobody watches, or a deadline that has passed out of sight: a woken take will look at it.
            (Some(_), None) if self.woken == 0 => {
                self.wake_one(&mut wakes);
            }
            (Some(at), Some((id, set_to))) if at < set_to => self.wake(id, &mut wakes),
            _ => {}
        }
        wakes
    }

    /// Wakes everybody: nothing will come any more.
    pub(crate) fn wake_all(&mut self) -> Wakes {
        let mut wakes = Wakes::None;
        while self.wake_one(&mut wakes) {}
        wakes
    }

    /// Wakes the first in line; the timekeeper only if there is nobody else.
    fn wake_one(&mut self, wakes: &mut Wakes) -> bool {
        let Some(id) = self.line.front().or(self.timekeeper.map(|(id, _)| id)) else {
            return false;
        };
        self.wake(id, wakes);
        true
    }

    fn wake(&mut self, id: u32, wakes: &mut Wakes) {
        self.step_out(id);
        let place = &mut self.places[id as usize];
        place.state = State::Woken;
        self.woken += 1;
        wakes.push(place.waker.clone());
    }

    /// Undoes what the place's state stands for; the caller gives it a new one.
    fn step_out(&mut self, id: u32) {
        match self.places[id as usize].state {
            State::InLine => self.line.remove(&mut self.links, id),
            State::Timekeeper => self.timekeeper = None,
            State::Woken => self.woken -= 1,
        }
    }

    /// A place whose state is still to be given.
    fn new_place(&mut self, waker: &Waker) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.places.push(Place {
                state: State::Woken,
                waker: waker.clone(),
            });
            self.links.push(Link::FREE);
            u32::try_from(self.places.len() - 1).expect("fewer than 2^32 takes wait")
        })
    }
}

//! The queue's state and every transition of it, under one lock and without waiting. [`WorkQueue`](crate::WorkQueue)
//! is the lock around it, [`take`](crate::take) the waiting, [`Taken`](crate::Taken) the hand.

mod ends;

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use crate::delays::Delays;
use crate::now::Now;
use crate::ready::{Ready, Turn};
use crate::runs::Runs;
use crate::slots::{Slots, Wanted};
use crate::waiters::{Waiters, Wakes};
use crate::{Add, Ageing, DelayedOnClose, Metrics, Priority, RateLimiter};

pub(crate) struct Core<K> {
    slots: Slots<K>,
    /// Every slot that is `Wanted::Now`; those among them that are not running are in its order.
    ready: Ready,
    /// Every slot that is `Wanted::Later`.
    delays: Delays,
    runs: Runs,
    waiters: Waiters,
    closed: bool,
    config: Config<K>,
}

/// What a [`Builder`](crate::Builder) collects.
pub(crate) struct Config<K> {
    pub(crate) limiter: Box<dyn RateLimiter<K>>,
    pub(crate) max_retries: Option<u32>,
    pub(crate) ageing: Ageing,
    pub(crate) metrics: Option<Arc<dyn Metrics>>,
    pub(crate) delayed_on_close: DelayedOnClose,
}

/// A key that was just taken.
pub(crate) struct Hand<K> {
    pub(crate) run: u32,
    pub(crate) key: K,
    pub(crate) priority: Priority,
}

/// What a take finds.
pub(crate) enum Found<K> {
    Key(Hand<K>),
    /// The queue is closed and nothing is left.
    End,
    /// Nothing yet: wait to be woken, and for this deadline as well if there is one.
    Wait(Option<Instant>),
}

/// What is left to do when a key may have left the queue.
pub(crate) struct Ended<K> {
    /// The queue's own copy of the key, if it no longer knows it. To be dropped outside of the lock.
    pub(crate) removed: Option<K>,
    /// The queue is closed and idle: whoever drains may go on.
    pub(crate) drained: bool,
}

impl<K> Core<K> {
    pub(crate) fn new(config: Config<K>) -> Self {
        Self {
            slots: Slots::new(),
            ready: Ready::new(config.ageing),
            delays: Delays::new(),
            runs: Runs::default(),
            waiters: Waiters::new(),
            closed: false,
            config,
        }
    }

    /// Moves what is due from the delays to the ready order, in the order of the deadlines.
    ///
    /// Every operation that looks at the order starts with this, so that a key that became due takes its place before
    /// one that is added later, although no timer may have fired yet.
    #[inline]
    fn settle(&mut self, now: &Now) {
        if !self.delays.is_empty() {
            self.end_due_delays(now);
        }
    }

    fn end_due_delays(&mut self, now: &Now) {
        while let Some(slot) = self.delays.first_due(now.get()) {
            self.end_delay(slot, now);
        }
    }

    /// A plain add.
    #[inline]
    pub(crate) fn add_now(&mut self, hash: u32, key: K, priority: Priority)
    where
        K: Eq,
    {
        if self.closed {
            return;
        }
        let now = Now::default();
        self.settle(&now);
        let slot = self.slots.find_or_insert(hash, key);
        self.want_now(slot, priority, &now);
    }

    pub(crate) fn add(&mut self, hash: u32, key: K, add: Add)
    where
        K: Eq,
    {
        if self.closed {
            return;
        }
        let now = Now::default();
        self.settle(&now);
        let slot = self.slots.find_or_insert(hash, key);
        let mut delay = add.after;
        if add.rate_limited {
            let limited = self.count_failure(slot, &now);
            if delay.is_zero() || limited < delay {
                delay = limited;
            }
        }
        self.want(slot, add.priority, delay, add.replace_delay, &now);
    }

    /// Ends the delay of a key, which is then gone unless a worker has it.
    pub(crate) fn cancel_delay(&mut self, hash: u32, key: &K) -> Option<Ended<K>>
    where
        K: Eq,
    {
        self.settle(&Now::default());
        let slot = self.slots.find(hash, key)?;
        let Wanted::Later(_) = self.slots.get(slot).wanted else {
            return None;
        };
        let removed = self.drop_delay(slot);
        Some(Ended {
            removed,
            drained: self.closed && self.slots.is_empty(),
        })
    }

    pub(crate) fn forget(&mut self, hash: u32, key: &K)
    where
        K: Eq,
    {
        if let Some(slot) = self.slots.find(hash, key) {
            self.slots.get_mut(slot).failures = 0;
        }
    }

    pub(crate) fn failures(&self, hash: u32, key: &K) -> u32
    where
        K: Eq,
    {
        self.slots
            .find(hash, key)
            .map_or(0, |slot| self.slots.get(slot).failures)
    }

    /// Takes a key if there is one.
    #[inline]
    pub(crate) fn try_take(&mut self) -> Option<Hand<K>>
    where
        K: Clone,
    {
        let now = Now::default();
        self.settle(&now);
        let turn = self.ready.next()?;
        Some(self.hand_out(turn, &now))
    }

    /// One attempt of a take, which waits at `place` if it has one.
    pub(crate) fn take(&mut self, place: &mut Option<u32>, waker: &Waker) -> Found<K>
    where
        K: Clone,
    {
        if let Some(hand) = self.try_take() {
            self.waiters.leave(place);
            return Found::Key(hand);
        }
        if self.is_exhausted() {
            self.waiters.leave(place);
            return Found::End;
        }
        Found::Wait(self.waiters.wait(place, waker, self.delays.next_at()))
    }

    /// A take that waited at `place` was dropped.
    pub(crate) fn leave(&mut self, place: &mut Option<u32>) {
        self.waiters.leave(place);
    }

    #[inline]
    fn hand_out(&mut self, turn: Turn, now: &Now) -> Hand<K>
    where
        K: Clone,
    {
        let slot = self.slots.get_mut(turn.slot);
        let Wanted::Now(priority) = slot.wanted else {
            unreachable!("only wanted slots are in the order")
        };
        // First, so that a clone that panics leaves the key where it was.
        let key = slot.key.clone();
        slot.wanted = Wanted::No;
        let since = slot.since.take();
        let depth = self.ready.pop(turn);
        let started = self.config.metrics.as_ref().map(|metrics| {
            metrics.depth(priority, depth);
            metrics.taken(since.map_or(Duration::ZERO, |since| now.get().saturating_duration_since(since)));
            now.get()
        });
        let run = self.runs.start(turn.slot, started);
        slot.run = run;
        Hand { run, key, priority }
    }

    /// Counts a failure and asks the limiter how long the key has to wait.
    fn count_failure(&mut self, slot: u32, now: &Now) -> Duration {
        let slot = self.slots.get_mut(slot);
        let delay = self.config.limiter.delay(&slot.key, slot.failures, now.get());
        slot.failures = slot.failures.saturating_add(1);
        delay
    }

    /// A slot shall be handed out, after `delay`. The higher priority and the earlier time win over what it has already,
    /// except that `replace` makes a new delay win over an old one.
    #[inline]
    fn want(&mut self, id: u32, priority: Priority, delay: Duration, replace: bool, now: &Now) {
        if delay.is_zero() {
            return self.want_now(id, priority, now);
        }
        if let Some(metrics) = &self.config.metrics {
            metrics.retried();
        }
        let at = now.get().checked_add(delay).unwrap_or(now.get() + FAR_AWAY);
        match self.slots.get(id).wanted {
            Wanted::Now(_) => self.want_now(id, priority, now),
            Wanted::Later(old) => {
                self.slots.get_mut(id).wanted = Wanted::Later(old.max(priority));
                if replace || at < self.delays.at(id) {
                    self.delays.set(id, at);
                }
            }
            Wanted::No => {
                self.slots.get_mut(id).wanted = Wanted::Later(priority);
                self.delays.set(id, at);
            }
        }
    }

    #[inline]
    fn want_now(&mut self, id: u32, priority: Priority, now: &Now) {
        let slot = self.slots.get_mut(id);
        let running = slot.is_running();
        match slot.wanted {
            Wanted::No => {
                slot.wanted = Wanted::Now(priority);
                let depth = if running {
                    self.ready.want(priority)
                } else {
                    self.ready.want_and_push(id, priority)
                };
                if let Some(metrics) = &self.config.metrics {
                    slot.since = Some(now.get());
                    metrics.added();
                    metrics.depth(priority, depth);
                }
            }
            Wanted::Later(old) => {
                slot.wanted = Wanted::No;
                self.delays.remove(id);
                self.want_now(id, old.max(priority), now);
            }
            Wanted::Now(old) if old < priority => {
                slot.wanted = Wanted::Now(priority);
                let queued = (!running).then_some(id);
                let (old_depth, depth) = self.ready.change_class(queued, old, priority);
                if let Some(metrics) = &self.config.metrics {
                    metrics.depth(priority, depth);
                    metrics.depth(old, old_depth);
                }
            }
            Wanted::Now(_) => {}
        }
    }

    /// The delay of a slot is over.
    fn end_delay(&mut self, id: u32, now: &Now) {
        let Wanted::Later(priority) = self.slots.get(id).wanted else {
            unreachable!("only delayed slots have a delay")
        };
        self.want_now(id, priority, now);
    }

    /// The delay of a slot is off; returns the key if it is gone.
    fn drop_delay(&mut self, id: u32) -> Option<K> {
        self.delays.remove(id);
        let slot = self.slots.get_mut(id);
        slot.wanted = Wanted::No;
        (!slot.is_running()).then(|| self.remove(id))
    }

    /// No new work from here on. Returns what is dropped by that, and whether nothing is left at all.
    pub(crate) fn close(&mut self) -> (Vec<K>, bool) {
        let now = Now::default();
        self.settle(&now);
        let mut dropped = Vec::new();
        // What is delayed on a closed queue was spared when it was closed.
        let delayed = if self.closed {
            DelayedOnClose::Wait
        } else {
            self.config.delayed_on_close
        };
        self.closed = true;
        match delayed {
            DelayedOnClose::Wait => {}
            DelayedOnClose::RunNow => {
                while let Some(slot) = self.delays.first() {
                    self.end_delay(slot, &now);
                }
            }
            DelayedOnClose::Drop => {
                while let Some(slot) = self.delays.first() {
                    dropped.extend(self.drop_delay(slot));
                }
            }
        }
        (dropped, self.slots.is_empty())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// The queue knows no key: nothing queued, delayed or in a worker's hand.
    pub(crate) fn is_idle(&self) -> bool {
        self.slots.is_empty()
    }

    /// Closed, and nothing is left that a take could get.
    fn is_exhausted(&self) -> bool {
        self.closed && self.ready.wanted() == 0 && self.delays.is_empty()
    }

    /// Somebody might have to be woken.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Whom to wake after a change. Every change ends with this.
    pub(crate) fn wakes(&mut self) -> Wakes {
        if self.is_exhausted() {
            return self.waiters.wake_all();
        }
        self.waiters.balance(self.ready.len(), self.delays.next_at())
    }

    pub(crate) fn queued(&mut self) -> usize {
        self.settle(&Now::default());
        self.ready.len()
    }

    pub(crate) fn delayed(&mut self) -> usize {
        self.settle(&Now::default());
        self.delays.len()
    }

    pub(crate) fn running(&self) -> usize {
        self.runs.len()
    }

    /// The key in this run was added meanwhile.
    pub(crate) fn is_queued_again(&mut self, run: u32) -> bool {
        self.settle(&Now::default());
        matches!(self.slots.get(self.runs.slot(run)).wanted, Wanted::Now(_))
    }

    /// The key waits to be taken, or was added while in a worker's hand.
    pub(crate) fn is_wanted(&mut self, hash: u32, key: &K) -> bool
    where
        K: Eq,
    {
        self.settle(&Now::default());
        self.slots
            .find(hash, key)
            .is_some_and(|slot| matches!(self.slots.get(slot).wanted, Wanted::Now(_)))
    }

    pub(crate) fn report_metrics(&mut self) {
        let now = Now::default();
        self.settle(&now);
        if let Some(metrics) = &self.config.metrics {
            let times = self
                .runs
                .started()
                .map(|started| now.get().saturating_duration_since(started));
            let (unfinished, longest) = times
                .fold((Duration::ZERO, Duration::ZERO), |(sum, longest), time| {
                    (sum + time, longest.max(time))
                });
            metrics.running(unfinished, longest);
        }
    }

    #[inline]
    fn remove(&mut self, id: u32) -> K {
        let removed = self.slots.remove(id);
        if self.slots.is_sparse() {
            self.compact();
        }
        removed
    }

    /// Moves the slots together, and everything that refers to them along.
    #[cold]
    fn compact(&mut self) {
        let Self {
            slots,
            ready,
            delays,
            runs,
            ..
        } = self;
        slots.compact(|slot, from, to| {
            if slot.is_running() {
                runs.renumber(slot.run, to);
            }
            match slot.wanted {
                Wanted::Now(priority) if !slot.is_running() => ready.renumber(from, to, priority),
                Wanted::Later(_) => delays.renumber(from, to),
                Wanted::Now(_) | Wanted::No => {}
            }
        });
        ready.shrink(slots.len());
        delays.shrink(slots.len());
    }
}

/// For delays that the clock cannot hold: a hundred years.
const FAR_AWAY: Duration = Duration::from_hours(100 * 365 * 24);

//! The queue's state and all its transitions, under one lock and without waiting. [`WorkQueue`](crate::WorkQueue) is
//! the lock around it, [`next`](crate::next) does the waiting, [`WorkItem`](crate::WorkItem) is the guard of a run.

mod completion;

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use crate::delays::Delays;
use crate::now::LazyNow;
use crate::ready::{Candidate, Ready};
use crate::runs::Runs;
use crate::slots::{Pending, Slots};
use crate::waiters::{Waiters, WakeList};
use crate::{AddOptions, Ageing, DelayedOnClose, Metrics, Priority, RateLimiter, Tag};

pub(crate) struct Core<K, T> {
    slots: Slots<K, T>,
    /// Every slot that is `Pending::Now`; those that are not running are in its order.
    ready: Ready,
    /// Every slot that is `Pending::Later`.
    delays: Delays,
    runs: Runs,
    waiters: Waiters,
    closed: bool,
    config: Config<K>,
}

/// The options that [`Builder`](crate::Builder) sets.
pub(crate) struct Config<K> {
    pub(crate) limiter: Box<dyn RateLimiter<K>>,
    pub(crate) max_retries: Option<u32>,
    pub(crate) ageing: Ageing,
    pub(crate) metrics: Option<Arc<dyn Metrics>>,
    pub(crate) delayed_on_close: DelayedOnClose,
}

/// A run that was just started.
pub(crate) struct StartedRun<K, T> {
    pub(crate) run: u32,
    pub(crate) key: K,
    /// The merged tag of the adds that caused it.
    pub(crate) tag: Option<T>,
    pub(crate) priority: Priority,
    /// Whether a failure of this run drops the key.
    pub(crate) is_last_attempt: bool,
}

/// Result of polling for the next key.
pub(crate) enum PolledNext<K, T> {
    Key(StartedRun<K, T>),
    /// The queue is closed and no key will be queued any more.
    Exhausted,
    /// Nothing yet: wait to be woken, and for this deadline if there is one.
    Wait(Option<Instant>),
}

/// What remains to be done outside of the lock when a run or delay has ended.
pub(crate) struct Cleanup<K, T> {
    /// The queue's own copy of the key, and its tag, if its slot was removed, to be dropped outside of the lock.
    pub(crate) removed: Option<(K, Option<T>)>,
    /// The queue is closed and idle: `drain` returns.
    pub(crate) drained: bool,
}

impl<K, T> Core<K, T> {
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

    /// Moves due keys from the delays to the ready order, in the order of their deadlines.
    ///
    /// Every operation that depends on the order starts with this, so that a key that became due goes before one that
    /// is added later, even if no timer has fired yet.
    #[inline]
    fn promote_due_keys(&mut self, now: &LazyNow) {
        if !self.delays.is_empty() {
            self.end_due_delays(now);
        }
    }

    fn end_due_delays(&mut self, now: &LazyNow) {
        while let Some(slot) = self.delays.first_due(now.get()) {
            self.end_delay(slot, now);
        }
    }

    /// Adds a key without delay or rate limit.
    #[inline]
    pub(crate) fn add_now(&mut self, hash: u32, key: K, priority: Priority)
    where
        K: Eq,
    {
        if self.closed {
            return;
        }
        let now = LazyNow::default();
        self.promote_due_keys(&now);
        let slot = self.slots.find_or_insert(hash, key);
        self.schedule_now(slot, priority, &now);
    }

    pub(crate) fn add(&mut self, hash: u32, key: K, add: AddOptions)
    where
        K: Eq,
    {
        if self.closed {
            return;
        }
        let now = LazyNow::default();
        self.promote_due_keys(&now);
        let slot = self.slots.find_or_insert(hash, key);
        self.add_slot(slot, add, &now);
    }

    /// Like [`add`](Self::add), and merges the tag into that of the pending key.
    pub(crate) fn add_tagged(&mut self, hash: u32, key: K, add: AddOptions, tag: T)
    where
        K: Eq,
        T: Tag,
    {
        if self.closed {
            return;
        }
        let now = LazyNow::default();
        self.promote_due_keys(&now);
        let slot = self.slots.find_or_insert(hash, key);
        match &mut self.slots.get_mut(slot).tag {
            Some(pending) => pending.merge(tag),
            none => *none = Some(tag),
        }
        self.add_slot(slot, add, &now);
    }

    fn add_slot(&mut self, slot: u32, add: AddOptions, now: &LazyNow) {
        let mut delay = add.after;
        if add.rate_limited {
            let limited = self.count_failure(slot, now);
            if delay.is_zero() || limited < delay {
                delay = limited;
            }
        }
        self.schedule(slot, add.priority, delay, add.replace_delay, now);
    }

    /// Cancels the delay of a key and removes the key unless it is being processed.
    pub(crate) fn cancel_delay(&mut self, hash: u32, key: &K) -> Option<Cleanup<K, T>>
    where
        K: Eq,
    {
        self.promote_due_keys(&LazyNow::default());
        let slot = self.slots.find(hash, key)?;
        let Pending::Later(_) = self.slots.get(slot).pending else {
            return None;
        };
        let removed = self.drop_delay(slot);
        Some(Cleanup {
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

    /// Starts a run of the next key, if one is queued.
    #[inline]
    pub(crate) fn try_next(&mut self) -> Option<StartedRun<K, T>>
    where
        K: Clone,
    {
        let now = LazyNow::default();
        self.promote_due_keys(&now);
        let turn = self.ready.next()?;
        Some(self.start_run(turn, &now))
    }

    /// Polls for the next key. The caller becomes a waiter if there is none.
    pub(crate) fn poll_next(&mut self, waiter: &mut Option<u32>, waker: &Waker) -> PolledNext<K, T>
    where
        K: Clone,
    {
        if let Some(hand) = self.try_next() {
            self.waiters.leave(waiter);
            return PolledNext::Key(hand);
        }
        if self.is_exhausted() {
            self.waiters.leave(waiter);
            return PolledNext::Exhausted;
        }
        PolledNext::Wait(self.waiters.wait(waiter, waker, self.delays.next_at()))
    }

    /// Removes a waiter that was dropped.
    pub(crate) fn leave(&mut self, waiter: &mut Option<u32>) {
        self.waiters.leave(waiter);
    }

    #[inline]
    fn start_run(&mut self, turn: Candidate, now: &LazyNow) -> StartedRun<K, T>
    where
        K: Clone,
    {
        let slot = self.slots.get_mut(turn.slot);
        let Pending::Now(priority) = slot.pending else {
            unreachable!("only pending slots are in the order")
        };
        // Clone first: if the clone panics, the key stays queued.
        let key = slot.key.clone();
        let tag = slot.tag.take();
        slot.pending = Pending::No;
        let since = slot.pending_since.take();
        let depth = self.ready.pop(turn);
        let started = self.config.metrics.as_ref().map(|metrics| {
            metrics.depth(priority, depth);
            metrics.started(since.map_or(Duration::ZERO, |since| now.get().saturating_duration_since(since)));
            now.get()
        });
        let run = self.runs.start(turn.slot, started);
        slot.run = run;
        StartedRun {
            run,
            key,
            tag,
            priority,
            is_last_attempt: self.has_no_retries_left(turn.slot),
        }
    }

    /// Counts a failure and returns the limiter's delay.
    fn count_failure(&mut self, slot: u32, now: &LazyNow) -> Duration {
        let slot = self.slots.get_mut(slot);
        let delay = self.config.limiter.delay(&slot.key, slot.failures, now.get());
        slot.failures = slot.failures.saturating_add(1);
        delay
    }

    /// Schedules a slot after `delay`. The higher priority and the earlier deadline win over those it has already,
    /// except that with `replace` the new deadline wins.
    #[inline]
    fn schedule(&mut self, id: u32, priority: Priority, delay: Duration, replace: bool, now: &LazyNow) {
        if delay.is_zero() {
            return self.schedule_now(id, priority, now);
        }
        if let Some(metrics) = &self.config.metrics {
            metrics.retried();
        }
        let at = now.get().checked_add(delay).unwrap_or(now.get() + FAR_FUTURE);
        match self.slots.get(id).pending {
            Pending::Now(_) => self.schedule_now(id, priority, now),
            Pending::Later(old) => {
                self.slots.get_mut(id).pending = Pending::Later(old.max(priority));
                if replace || at < self.delays.at(id) {
                    self.delays.set(id, at);
                }
            }
            Pending::No => {
                self.slots.get_mut(id).pending = Pending::Later(priority);
                self.delays.set(id, at);
            }
        }
    }

    #[inline]
    fn schedule_now(&mut self, id: u32, priority: Priority, now: &LazyNow) {
        let slot = self.slots.get_mut(id);
        let running = slot.is_running();
        match slot.pending {
            Pending::No => {
                slot.pending = Pending::Now(priority);
                let depth = if running {
                    self.ready.mark_pending(priority)
                } else {
                    self.ready.mark_pending_and_push(id, priority)
                };
                if let Some(metrics) = &self.config.metrics {
                    slot.pending_since = Some(now.get());
                    metrics.added();
                    metrics.depth(priority, depth);
                }
            }
            Pending::Later(old) => {
                slot.pending = Pending::No;
                self.delays.remove(id);
                self.schedule_now(id, old.max(priority), now);
            }
            Pending::Now(old) if old < priority => {
                slot.pending = Pending::Now(priority);
                let queued = (!running).then_some(id);
                let (old_depth, depth) = self.ready.change_class(queued, old, priority);
                if let Some(metrics) = &self.config.metrics {
                    metrics.depth(priority, depth);
                    metrics.depth(old, old_depth);
                }
            }
            Pending::Now(_) => {}
        }
    }

    /// Queues a delayed slot now.
    fn end_delay(&mut self, id: u32, now: &LazyNow) {
        let Pending::Later(priority) = self.slots.get(id).pending else {
            unreachable!("only delayed slots have a delay")
        };
        self.schedule_now(id, priority, now);
    }

    /// Cancels the delay of a slot; returns the key and its tag if its slot was removed.
    fn drop_delay(&mut self, id: u32) -> Option<(K, Option<T>)> {
        self.delays.remove(id);
        let slot = self.slots.get_mut(id);
        slot.pending = Pending::No;
        if slot.is_running() {
            slot.tag = None;
            return None;
        }
        Some(self.remove(id))
    }

    /// Closes the queue. Returns the delayed keys that were dropped, and whether the queue is idle.
    pub(crate) fn close(&mut self) -> (Vec<(K, Option<T>)>, bool) {
        let now = LazyNow::default();
        self.promote_due_keys(&now);
        let mut dropped = Vec::new();
        // Delays that survived the first close are kept by later ones.
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

    /// Returns whether no key is queued, delayed or being processed.
    pub(crate) fn is_idle(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns whether the queue is closed and no key will be handed out any more.
    fn is_exhausted(&self) -> bool {
        self.closed && self.ready.pending() == 0 && self.delays.is_empty()
    }

    /// Returns whether a waiter may have to be woken.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Returns the waiters to wake. Every change ends with this.
    pub(crate) fn wakeups(&mut self) -> WakeList {
        if self.is_exhausted() {
            return self.waiters.wake_all();
        }
        self.waiters.balance(self.ready.len(), self.delays.next_at())
    }

    pub(crate) fn queued(&mut self) -> usize {
        self.promote_due_keys(&LazyNow::default());
        self.ready.len()
    }

    pub(crate) fn delayed(&mut self) -> usize {
        self.promote_due_keys(&LazyNow::default());
        self.delays.len()
    }

    pub(crate) fn running(&self) -> usize {
        self.runs.len()
    }

    /// Returns whether the key of this run was added again.
    pub(crate) fn is_queued_again(&mut self, run: u32) -> bool {
        self.promote_due_keys(&LazyNow::default());
        matches!(self.slots.get(self.runs.slot(run)).pending, Pending::Now(_))
    }

    /// Returns whether the key is queued, or was added again while being processed.
    pub(crate) fn is_pending(&mut self, hash: u32, key: &K) -> bool
    where
        K: Eq,
    {
        self.promote_due_keys(&LazyNow::default());
        self.slots
            .find(hash, key)
            .is_some_and(|slot| matches!(self.slots.get(slot).pending, Pending::Now(_)))
    }

    pub(crate) fn report_metrics(&mut self) {
        let now = LazyNow::default();
        self.promote_due_keys(&now);
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
    fn remove(&mut self, id: u32) -> (K, Option<T>) {
        let removed = self.slots.remove(id);
        if self.slots.is_sparse() {
            self.compact();
        }
        removed
    }

    /// Moves the slots together and updates everything that refers to them.
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
            match slot.pending {
                Pending::Now(priority) if !slot.is_running() => ready.renumber(from, to, priority),
                Pending::Later(_) => delays.renumber(from, to),
                Pending::Now(_) | Pending::No => {}
            }
        });
        ready.shrink(slots.len());
        delays.shrink(slots.len());
    }
}

/// Replaces delays beyond the clock's range: a hundred years.
const FAR_FUTURE: Duration = Duration::from_hours(100 * 365 * 24);

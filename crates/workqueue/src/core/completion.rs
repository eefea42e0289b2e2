//! The transitions that end a run.

use std::time::Duration;

use super::{Cleanup, Core};
use crate::list::NONE;
use crate::now::LazyNow;
use crate::slots::Pending;
use crate::{Priority, RetryDecision};

impl<K, T> Core<K, T> {
    /// Ends a run that needs no retry: success, or a failure that a retry cannot fix.
    #[inline]
    pub(crate) fn done(&mut self, run: u32) -> Cleanup<K, T> {
        let now = LazyNow::default();
        let id = self.end_run(run, &now);
        self.slots.get_mut(id).failures = 0;
        self.remove_unless_pending(id)
    }

    /// Ends a run and schedules another one after `delay`.
    pub(crate) fn requeue(
        &mut self,
        run: u32,
        priority: Priority,
        delay: Duration,
        tag: Option<T>,
    ) -> Cleanup<K, T> {
        let now = LazyNow::default();
        let id = self.end_run(run, &now);
        self.slots.get_mut(id).failures = 0;
        if !self.closed {
            self.schedule(id, priority, delay, false, &now);
        }
        self.keep_tag(id, tag);
        self.remove_unless_pending(id)
    }

    /// Ends a run that was not needed. A key that has failed waits again as after its last failure. Returns its delay,
    /// if it has one.
    pub(crate) fn back_off(
        &mut self,
        run: u32,
        priority: Priority,
        tag: Option<T>,
    ) -> (Option<Duration>, Cleanup<K, T>) {
        let now = LazyNow::default();
        let id = self.end_run(run, &now);
        let slot = self.slots.get(id);
        if let Some(earlier) = slot.failures.checked_sub(1)
            && !matches!(slot.pending, Pending::Now(_))
            && !self.closed
        {
            let delay = self.config.limiter.delay(&slot.key, earlier, now.get());
            self.schedule(id, priority, delay, false, &now);
        }
        let delay = match self.slots.get(id).pending {
            Pending::Later(_) => Some(self.delays.at(id).saturating_duration_since(now.get())),
            Pending::Now(_) | Pending::No => None,
        };
        self.keep_tag(id, tag);
        (delay, self.remove_unless_pending(id))
    }

    /// Ends a run that failed.
    pub(crate) fn fail(
        &mut self,
        run: u32,
        priority: Priority,
        tag: Option<T>,
    ) -> (RetryDecision, Cleanup<K, T>) {
        let now = LazyNow::default();
        let id = self.end_run(run, &now);
        let outcome = self.decide_retry(id, priority, &now);
        if let RetryDecision::Retry { .. } = outcome {
            self.keep_tag(id, tag);
        }
        (outcome, self.remove_unless_pending(id))
    }

    /// Ends the run of a slot, and queues the slot if it became pending meanwhile.
    #[inline]
    fn end_run(&mut self, run: u32, now: &LazyNow) -> u32 {
        self.promote_due_keys(now);
        let (id, started) = self.runs.end(run);
        if let (Some(metrics), Some(started)) = (&self.config.metrics, started) {
            metrics.finished(now.get().saturating_duration_since(started));
        }
        let slot = self.slots.get_mut(id);
        slot.run = NONE;
        if let Pending::Now(priority) = slot.pending {
            self.ready.push(id, priority);
        }
        id
    }

    /// Sets the tag of the next run to that of the last one, unless adds have brought one.
    fn keep_tag(&mut self, id: u32, tag: Option<T>) {
        let slot = self.slots.get_mut(id);
        if slot.pending != Pending::No && slot.tag.is_none() {
            slot.tag = tag;
        }
    }

    /// Removes the key unless it is still pending.
    #[inline]
    fn remove_unless_pending(&mut self, id: u32) -> Cleanup<K, T> {
        let removed = (self.slots.get(id).pending == Pending::No).then(|| self.remove(id));
        Cleanup {
            removed,
            drained: self.closed && self.slots.is_empty(),
        }
    }

    /// Whether the next failure of a key drops it.
    pub(crate) fn has_no_retries_left(&self, id: u32) -> bool {
        let failures = self.slots.get(id).failures;
        self.config.max_retries.is_some_and(|max| failures >= max)
    }

    /// Decides whether a failed key is retried, and schedules the retry.
    fn decide_retry(&mut self, id: u32, priority: Priority, now: &LazyNow) -> RetryDecision {
        if self.has_no_retries_left(id) {
            let slot = self.slots.get_mut(id);
            let failures = slot.failures.saturating_add(1);
            slot.failures = 0;
            if let Some(metrics) = &self.config.metrics {
                metrics.dropped();
            }
            return RetryDecision::Dropped { failures };
        }
        let slot = self.slots.get_mut(id);
        if let Pending::Now(_) = slot.pending {
            // It was added during the run, so it runs again immediately and needs no retry on top.
            slot.failures = slot.failures.saturating_add(1);
            self.schedule_now(id, priority, now);
            return RetryDecision::Retry {
                after: Duration::ZERO,
            };
        }
        if self.closed {
            return RetryDecision::Closed;
        }
        let delay = self.count_failure(id, now);
        self.schedule(id, priority, delay, false, now);
        let after = match self.slots.get(id).pending {
            Pending::Later(_) => self.delays.at(id).saturating_duration_since(now.get()),
            Pending::Now(_) | Pending::No => Duration::ZERO,
        };
        RetryDecision::Retry { after }
    }
}

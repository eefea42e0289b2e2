//! How a key leaves a worker's hand.

use std::time::Duration;

use super::{Core, Ended};
use crate::list::NONE;
use crate::now::Now;
use crate::slots::Wanted;
use crate::{Outcome, Priority};

impl<K> Core<K> {
    /// The run is over and so is the reason for it: success, or no hope.
    #[inline]
    pub(crate) fn done(&mut self, run: u32) -> Ended<K> {
        let now = Now::default();
        let id = self.let_go(run, &now);
        self.slots.get_mut(id).failures = 0;
        self.ended(id)
    }

    /// The run is over, and another one shall follow after `delay`.
    pub(crate) fn requeue(&mut self, run: u32, priority: Priority, delay: Duration) -> Ended<K> {
        let now = Now::default();
        let id = self.let_go(run, &now);
        self.slots.get_mut(id).failures = 0;
        if !self.closed {
            self.want(id, priority, delay, false, &now);
        }
        self.ended(id)
    }

    /// The run failed.
    pub(crate) fn fail(&mut self, run: u32, priority: Priority) -> (Outcome, Ended<K>) {
        let now = Now::default();
        let id = self.let_go(run, &now);
        let outcome = self.failed(id, priority, &now);
        (outcome, self.ended(id))
    }

    /// Takes the key out of the hand; if it was wanted again meanwhile, it is queued.
    #[inline]
    fn let_go(&mut self, run: u32, now: &Now) -> u32 {
        self.settle(now);
        let (id, started) = self.runs.end(run);
        if let (Some(metrics), Some(started)) = (&self.config.metrics, started) {
            metrics.ended(now.get().saturating_duration_since(started));
        }
        let slot = self.slots.get_mut(id);
        slot.run = NONE;
        if let Wanted::Now(priority) = slot.wanted {
            self.ready.push(id, priority);
        }
        id
    }

    /// Removes the key unless it is still wanted.
    #[inline]
    fn ended(&mut self, id: u32) -> Ended<K> {
        let removed = (self.slots.get(id).wanted == Wanted::No).then(|| self.remove(id));
        Ended {
            removed,
            drained: self.closed && self.slots.is_empty(),
        }
    }

    /// Decides what becomes of a key that failed.
    fn failed(&mut self, id: u32, priority: Priority, now: &Now) -> Outcome {
        let slot = self.slots.get_mut(id);
        if self.config.max_retries.is_some_and(|max| slot.failures >= max) {
            let failures = slot.failures.saturating_add(1);
            slot.failures = 0;
            if let Some(metrics) = &self.config.metrics {
                metrics.dropped();
            }
            return Outcome::Dropped { failures };
        }
        if let Wanted::Now(_) = slot.wanted {
            // It was added while it was worked on: it runs again at once, and no retry is needed on top.
            slot.failures = slot.failures.saturating_add(1);
            self.want_now(id, priority, now);
            return Outcome::Retry {
                after: Duration::ZERO,
            };
        }
        if self.closed {
            return Outcome::Closed;
        }
        let delay = self.count_failure(id, now);
        self.want(id, priority, delay, false, now);
        let after = match self.slots.get(id).wanted {
            Wanted::Later(_) => self.delays.at(id).saturating_duration_since(now.get()),
            Wanted::Now(_) | Wanted::No => Duration::ZERO,
        };
        Outcome::Retry { after }
    }
}

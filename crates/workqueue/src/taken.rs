//! A key in a worker's hand.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::Priority;
use crate::core::{Core, Ended, Hand};
use crate::queue::Shared;

/// A key in a worker's hand. No other worker gets the key until this one ends it.
///
/// Ending it says what happened: [`done`](Self::done), [`fail`](Self::fail), [`requeue_after`](Self::requeue_after) or
/// [`terminal`](Self::terminal). Dropping it in any other way, by a panic or because the task was cancelled, counts as
/// a failure: the key comes back after its backoff and is never lost or stuck.
///
/// However it ends, a key that was added in the meantime is queued again at once.
#[must_use = "dropping it counts as a failure; end it with `done`, `fail`, `requeue_after` or `terminal`"]
pub struct Taken<K> {
    shared: Arc<Shared<K>>,
    key: K,
    run: u32,
    priority: Priority,
    ended: bool,
}

/// What a failure leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The key comes back after this time; zero if it was added again in the meantime.
    Retry {
        /// From now on.
        after: Duration,
    },
    /// The key failed more often than [`max_retries`](crate::Builder::max_retries) allows: it is given up and its
    /// failures are forgotten. A later add starts afresh; one that came in the meantime stands.
    Dropped {
        /// How often it failed in a row, this time included.
        failures: u32,
    },
    /// The queue is closed and takes no retries.
    Closed,
}

impl<K> Taken<K> {
    pub(crate) fn new(shared: Arc<Shared<K>>, hand: Hand<K>) -> Self {
        let Hand { run, key, priority } = hand;
        Self {
            shared,
            key,
            run,
            priority,
            ended: false,
        }
    }

    /// The key. The guard also derefs to it.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The priority at which it was queued, and at which it will be if it comes back.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Makes the key come back at another priority, should it.
    pub fn set_priority(&mut self, priority: Priority) {
        self.priority = priority;
    }

    /// The key was added again while in this hand: what the worker has read may be stale, and it may want to stop early.
    pub fn is_queued_again(&self) -> bool {
        self.shared.change(|core| core.is_queued_again(self.run))
    }

    /// It worked. The key's failures are forgotten.
    pub fn done(mut self) {
        self.end(Core::done);
    }

    /// It failed. The key comes back at the same priority after the time that the rate limiter says, or is dropped.
    pub fn fail(mut self) -> Outcome {
        self.end_in_failure()
    }

    /// It worked, and shall run again after this time, at the same priority. The key's failures are forgotten. A delay
    /// that was asked for in the meantime stays if it is earlier; on a closed queue this is [`done`](Self::done).
    pub fn requeue_after(mut self, delay: Duration) {
        let priority = self.priority;
        self.end(|core, run| core.requeue(run, priority, delay));
    }

    /// It failed, and trying again will not help: no retry, and the key's failures are forgotten.
    pub fn terminal(self) {
        self.done();
    }

    #[inline(never)]
    fn end_in_failure(&mut self) -> Outcome {
        let mut outcome = Outcome::Closed;
        let priority = self.priority;
        self.end(|core, run| {
            let (told, ended) = core.fail(run, priority);
            outcome = told;
            ended
        });
        if let Outcome::Dropped { failures } = outcome {
            self.shared.report_dropped(&self.key, failures);
        }
        outcome
    }

    #[inline]
    fn end(&mut self, how: impl FnOnce(&mut Core<K>, u32) -> Ended<K>) {
        self.ended = true;
        let run = self.run;
        let ended = self.shared.change(|core| how(core, run));
        self.shared.ended(ended);
    }
}

impl<K> Drop for Taken<K> {
    #[inline]
    fn drop(&mut self) {
        if !self.ended {
            self.end_in_failure();
        }
    }
}

impl<K> Deref for Taken<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: fmt::Debug> fmt::Debug for Taken<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taken")
            .field("key", &self.key)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

//! The guard of a key that a worker processes.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::Priority;
use crate::core::{Cleanup, Core, StartedRun};
use crate::queue::Shared;

/// A key that a worker processes. No other worker gets the key until this guard is gone.
///
/// Finish it with the outcome: [`done`](Self::done), [`fail`](Self::fail), [`requeue_after`](Self::requeue_after),
/// [`give_up`](Self::give_up) or [`back_off`](Self::back_off). Dropping it, by a panic or because the task was cancelled, counts as a failure: the key
/// is retried after its backoff and is never lost or stuck.
///
/// Whatever the outcome, a key that was added in the meantime is queued again immediately.
#[must_use = "dropping it counts as a failure; finish it with `done`, `fail`, `requeue_after` or `give_up`"]
pub struct WorkItem<K, T = ()> {
    shared: Arc<Shared<K, T>>,
    key: K,
    tag: Option<T>,
    run: u32,
    priority: Priority,
    is_last_attempt: bool,
    ended: bool,
}

/// What the queue does with a key after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// The key is retried.
    Retry {
        /// The delay from now on; zero if the key was added again in the meantime.
        after: Duration,
    },
    /// The key failed more often than [`max_retries`](crate::Builder::max_retries) allows: it is dropped and its
    /// failures are forgotten. An add during the run still queues it, and later adds start at zero failures.
    Dropped {
        /// Number of consecutive failures, including this one.
        failures: u32,
    },
    /// The queue is closed and does not retry.
    Closed,
}

impl<K, T> WorkItem<K, T> {
    pub(crate) fn new(shared: Arc<Shared<K, T>>, hand: StartedRun<K, T>) -> Self {
        let StartedRun {
            run,
            key,
            tag,
            priority,
            is_last_attempt,
        } = hand;
        Self {
            shared,
            key,
            tag,
            run,
            priority,
            is_last_attempt,
            ended: false,
        }
    }

    /// Returns the key. The guard also derefs to it.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns the priority at which the key was queued, which a retry or requeue keeps.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Sets the priority of a retry or requeue.
    pub fn set_priority(&mut self, priority: Priority) {
        self.priority = priority;
    }

    /// Takes the [tag](crate::Tag) of the adds that caused this run, or `None` if they had none. A tag that is not taken
    /// is kept for a retry or requeue.
    pub fn take_tag(&mut self) -> Option<T> {
        self.tag.take()
    }

    /// Sets the tag of a retry or requeue. Tags of adds during this run replace it.
    pub fn set_tag(&mut self, tag: T) {
        self.tag = Some(tag);
    }

    /// Returns whether the key was added again during this run: the worker may have read stale data and can stop early.
    pub fn is_queued_again(&self) -> bool {
        self.shared.with_core(|core| core.is_queued_again(self.run))
    }

    /// Returns whether this run is the last that [`max_retries`](crate::Builder::max_retries) allows: a failure drops the
    /// key.
    pub fn is_last_attempt(&self) -> bool {
        self.is_last_attempt
    }

    /// Finishes the run with success and forgets the key's failures.
    pub fn done(mut self) {
        self.end(Core::done);
    }

    /// Finishes the run with a failure. The key is retried at the same priority after the rate limiter's delay, or
    /// dropped.
    pub fn fail(mut self) -> RetryDecision {
        self.end_with_failure()
    }

    /// Finishes the run with success and queues the key again after a delay, at the same priority. Forgets the key's
    /// failures. An earlier delayed add made in the meantime wins; on a closed queue this is [`done`](Self::done).
    pub fn requeue_after(mut self, delay: Duration) {
        let (priority, tag) = (self.priority, self.tag.take());
        self.end(|core, run| core.requeue(run, priority, delay, tag));
    }

    /// Finishes the run with a failure that a retry cannot fix: no retry, and the key's failures are forgotten.
    pub fn give_up(self) {
        self.done();
    }

    /// Finishes a run that turned out not to be needed: a key that has failed waits for its retry again, as after its last
    /// failure, which is not counted twice. Returns how long it waits, or `None` if it does not: it has not failed, was added
    /// in the meantime, or the queue is closed.
    ///
    /// For workers that cause adds themselves, such as by writing to the object that the key names: such an add ends the
    /// backoff of the key.
    pub fn back_off(mut self) -> Option<Duration> {
        let (mut delay, priority, tag) = (None, self.priority, self.tag.take());
        self.end(|core, run| {
            let (after, ended) = core.back_off(run, priority, tag);
            delay = after;
            ended
        });
        delay
    }

    #[inline(never)]
    fn end_with_failure(&mut self) -> RetryDecision {
        let mut outcome = RetryDecision::Closed;
        let (priority, tag) = (self.priority, self.tag.take());
        self.end(|core, run| {
            let (decision, ended) = core.fail(run, priority, tag);
            outcome = decision;
            ended
        });
        if let RetryDecision::Dropped { failures } = outcome {
            self.shared.report_dropped(&self.key, failures);
        }
        outcome
    }

    #[inline]
    fn end(&mut self, how: impl FnOnce(&mut Core<K, T>, u32) -> Cleanup<K, T>) {
        self.ended = true;
        let run = self.run;
        let ended = self.shared.with_core(|core| how(core, run));
        self.shared.clean_up(ended);
    }
}

impl<K, T> Drop for WorkItem<K, T> {
    #[inline]
    fn drop(&mut self) {
        if !self.ended {
            self.end_with_failure();
        }
    }
}

impl<K, T> Deref for WorkItem<K, T> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: fmt::Debug, T> fmt::Debug for WorkItem<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkItem")
            .field("key", &self.key)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

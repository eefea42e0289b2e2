//! The queue's behaviour, one test per statement, on a paused clock.
//!
//! Covers every behaviour that the tests of client-go's and controller-runtime's work queues check, and some that those
//! queues lack: replacing and cancelling a delay, bounded ageing, a drain that waits for queued keys, a failure without
//! retry, and seeing that a running key was added again. (client-go's `ParallelizeUntil` is not a queue: use
//! `futures::stream::StreamExt::for_each_concurrent`.)
//!
//! Concurrency is tested by `model` and `threads.rs`, memory by `memory.rs`.

mod basics;
mod closing;
mod delays;
mod guard;
mod metrics;
mod priorities;
mod retries;
mod tags;
mod wakeups;

use std::time::Duration;

use windlass_workqueue::{AddOptions, Priority, WorkQueue};

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn with_priority(priority: i32) -> AddOptions {
    AddOptions {
        priority: Priority::new(priority),
        ..AddOptions::default()
    }
}

/// Processes all queued keys; returns them in order.
pub(crate) fn process_all<K: Clone>(queue: &WorkQueue<K>) -> Vec<K> {
    std::iter::from_fn(|| {
        let item = queue.try_next()?;
        let key = item.key().clone();
        item.done();
        Some(key)
    })
    .collect()
}

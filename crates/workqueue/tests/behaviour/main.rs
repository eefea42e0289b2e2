//! What the queue promises, one test per statement, on a paused clock.
//!
//! The numbers are those of the behaviours that client-go's and controller-runtime's own tests check; ours must hold
//! them or better them. Numbers in brackets are the ones that the anchors fail.
//!
//! | numbers | where |
//! |---|---|
//! | 1, 44 | `model.rs` and `threads.rs` beside this directory |
//! | 2–7, 14 | [`basics`] |
//! | 8–11, 36, 45, [179] | [`closing`] |
//! | 12 | `memory.rs` beside this directory |
//! | 13, 46 | [`metrics`] |
//! | 15–19, 34, 35, 37, 38, 40, 42, [176], [177] | [`delays`] |
//! | 20–25, 43, [194] | [`retries`] |
//! | 26 (`ParallelizeUntil`) | not a queue: `futures::stream::StreamExt::for_each_concurrent` |
//! | 27–33, 39, 41, [178] | [`priorities`] |
//! | [196], and what a guard's end means | [`guard`] |
//! | who is woken, and by what | [`wakeups`] |

mod basics;
mod closing;
mod delays;
mod guard;
mod metrics;
mod priorities;
mod retries;
mod wakeups;

use std::time::Duration;

use windlass_workqueue::{Add, Priority, WorkQueue};

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn at(priority: i32) -> Add {
    Add {
        priority: Priority::new(priority),
        ..Add::default()
    }
}

/// Takes and finishes everything that can be taken now; returns the keys in the order in which they came.
pub(crate) fn take_all<K: Clone>(queue: &WorkQueue<K>) -> Vec<K> {
    std::iter::from_fn(|| {
        let taken = queue.try_take()?;
        let key = taken.key().clone();
        taken.done();
        Some(key)
    })
    .collect()
}

//! A work queue for controllers: deduplicated keys, one worker per key, priorities, delays, backoff, drain.
//!
//! Event handlers add keys, workers process them. The queue guarantees:
//!
//! - **Deduplication.** A key that is added many times before a worker gets it is processed once.
//! - **One worker per key.** Two workers never process the same key. An add during processing runs the key again
//!   afterwards.
//! - **Fairness.** Higher priorities first, first in first out among equals, and [`Ageing`] bounds how long a low one
//!   waits.
//! - **No lost keys.** A worker gets a guard, [`WorkItem`]. A worker that panics or is cancelled counts as a failed
//!   run.
//! - **Clean shutdown.** [`close`](WorkQueue::close) rejects new keys, [`drain`](WorkQueue::drain) waits for the rest.
//!
//! # States of a key
//!
//! ```text
//!            add after            due, or add
//!    ─────────────────► delayed ───────────────┐
//!    absent ◄─ cancel ──   ▲                   ▼      next
//!      ▲ └─────── add ─────│───────────────► queued ───────► processing ─┐  add: queued again when it ends
//!      │                   │                   ▲                │  ▲     │  add after: delayed meanwhile
//!      │                   └── fail, requeue ──│────────────────┤  └─────┘
//!      │                                       └─ added again ──┤
//!      └──────────────────────────── done, give up, dropped ────┘
//! ```
//!
//! Adds of a key that is being processed, immediate or delayed, take effect when its run ends.
//!
//! # Structure
//!
//! ```text
//!    WorkQueue ──► lock ──► Core ─┬─► Slots    key ⇄ slot number, failures        (the only part that sees keys)
//!    WorkItem ─────┘              ├─► Ready    classes by priority, and all by age
//!                                 ├─► Delays   heap by deadline
//!                                 ├─► Runs     keys being processed
//!                                 └─► Waiters  `next` calls that wait, one of them with a timer
//! ```
//!
//! Invariants whenever the lock is free:
//!
//! - A key has a slot exactly while it is queued, delayed or being processed. So an idle queue holds no memory per key,
//!   failures included.
//! - A slot is in `Ready`'s order exactly if it is pending now and not being processed; in `Delays` exactly if it is
//!   pending later.
//! - If a key is queued and `next` calls wait, one of them has been woken and not yet polled. If a key is delayed and
//!   `next` calls wait, one of them has a timer for it. There is no background task.
//!
//! # What the queue does not know
//!
//! Kubernetes, what a key means, what the work is, or how many workers there are. All time is `tokio::time`: a runtime
//! is needed only while a key is delayed, and a paused clock makes every wait exact (to the millisecond of tokio's
//! timer).
//!
//! # Example
//!
//! ```
//! use windlass_workqueue::{AddOptions, Priority, RetryDecision, WorkQueue};
//!
//! # fn reconcile(name: &str) -> Result<(), String> { if name == "broken" { Err("no".into()) } else { Ok(()) } }
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let queue = WorkQueue::<String>::builder().max_retries(5).build();
//!
//! let worker = tokio::spawn({
//!     let queue = queue.clone();
//!     async move {
//!         while let Some(item) = queue.next().await {
//!             match reconcile(&item) {
//!                 Ok(()) => item.done(),
//!                 Err(error) => match item.fail() {
//!                     RetryDecision::Retry { after } => println!("{error}; retrying in {after:?}"),
//!                     decision => println!("{error}; {decision:?}"),
//!                 },
//!             }
//!         }
//!     }
//! });
//!
//! queue.add("urgent".to_owned());
//! queue.add_with("resync".to_owned(), AddOptions { priority: Priority::LOW, ..AddOptions::default() });
//! queue.drain().await;
//! worker.await.unwrap();
//! # }
//! ```

mod add_options;
mod builder;
mod core;
mod delays;
mod list;
pub mod metrics;
mod next;
mod now;
mod priority;
mod queue;
mod rate_limit;
mod ready;
mod runs;
mod slots;
mod tag;
mod waiters;
mod work_item;

pub use add_options::AddOptions;
pub use builder::{Builder, DelayedOnClose};
pub use metrics::Metrics;
pub use priority::Priority;
pub use queue::WorkQueue;
pub use rate_limit::{DefaultRateLimiter, Exponential, FastSlow, MaxDelay, MaxOf, RateLimiter, TokenBucket};
pub use ready::Ageing;
pub use tag::Tag;
pub use work_item::{RetryDecision, WorkItem};

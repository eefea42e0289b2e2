//! A work queue for controllers: each key in one hand at a time, priorities, delays, backoff, drain.
//!
//! Handlers put keys in, workers take them out. The queue promises:
//!
//! - **Stingy.** A key that is added many times before it is taken is taken once.
//! - **One hand.** A key is never with two workers. An add during work runs after it.
//! - **Fair.** Higher priorities first, first in first out among equals, and [`Ageing`] bounds how long a low one waits.
//! - **Nothing lost.** A taken key is a guard, [`Taken`]. A worker that panics or is cancelled has failed, no more.
//! - **Stoppable.** [`close`](WorkQueue::close) ends the intake, [`drain`](WorkQueue::drain) waits for all that is left.
//!
//! # What a key goes through
//!
//! ```text
//!            add after            due, or add
//!    ─────────────────► delayed ───────────────┐
//!    absent ◄─ cancel ──   ▲                   ▼      take
//!      ▲ └─────── add ─────│───────────────► queued ───────► in a hand ──┐  add: queued again when it ends
//!      │                   │                   ▲                │  ▲     │  add after: delayed meanwhile
//!      │                   └── fail, requeue ──│────────────────┤  └─────┘
//!      │                                       └─ added again ──┤
//!      └─────────────────────────── done, terminal, dropped ────┘
//! ```
//!
//! While a key is in a hand it may be wanted now or later as well; that takes effect when the hand lets go.
//!
//! # How it is built
//!
//! ```text
//!    WorkQueue ──► lock ──► Core ─┬─► Slots    key ⇄ slot number, failures        (the only one that sees keys)
//!    Taken ────────┘              ├─► Ready    classes by priority, and all by age
//!                                 ├─► Delays   heap by deadline
//!                                 ├─► Runs     keys in hands
//!                                 └─► Waiters  takes in line, one of them with a timer
//! ```
//!
//! What must hold whenever the lock is free:
//!
//! - A key has a slot exactly while it is queued, delayed or in a hand. So an idle queue holds no memory per key, failures
//!   included.
//! - A slot is in `Ready`'s order exactly if it is wanted now and in no hand; in `Delays` exactly if wanted later.
//! - If a key can be taken and takes wait, one of them has been woken and not yet polled. If a key is delayed and takes
//!   wait, one of them has a timer for it. There is no task in the background.
//!
//! # What it does not know
//!
//! Kubernetes, what a key means, what the work is, or how many workers there are. All time is `tokio::time`: a runtime is
//! needed only while a key is delayed, and a paused clock makes every wait exact (to the millisecond of tokio's timer).
//!
//! # Example
//!
//! ```
//! use windlass_workqueue::{Add, Outcome, Priority, WorkQueue};
//!
//! # fn reconcile(name: &str) -> Result<(), String> { if name == "broken" { Err("no".into()) } else { Ok(()) } }
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let queue = WorkQueue::<String>::builder().max_retries(5).build();
//!
//! let worker = tokio::spawn({
//!     let queue = queue.clone();
//!     async move {
//!         while let Some(key) = queue.take().await {
//!             match reconcile(&key) {
//!                 Ok(()) => key.done(),
//!                 Err(error) => match key.fail() {
//!                     Outcome::Retry { after } => println!("{error}; again in {after:?}"),
//!                     outcome => println!("{error}; {outcome:?}"),
//!                 },
//!             }
//!         }
//!     }
//! });
//!
//! queue.add("urgent".to_owned());
//! queue.add_with("seen before".to_owned(), Add { priority: Priority::LOW, ..Add::default() });
//! queue.drain().await;
//! worker.await.unwrap();
//! # }
//! ```

mod add;
mod builder;
mod core;
mod delays;
mod list;
pub mod metrics;
mod now;
mod priority;
mod queue;
mod rate_limit;
mod ready;
mod runs;
mod slots;
mod take;
mod taken;
mod waiters;

pub use add::Add;
pub use builder::{Builder, DelayedOnClose};
pub use metrics::Metrics;
pub use priority::Priority;
pub use queue::WorkQueue;
pub use rate_limit::{Capped, DefaultRateLimiter, Exponential, FastSlow, MaxOf, RateLimiter, TokenBucket};
pub use ready::Ageing;
pub use taken::{Outcome, Taken};

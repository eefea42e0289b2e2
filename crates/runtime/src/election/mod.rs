//! Leader election on a Lease, and the fence that ties writes to it.
//!
//! ```text
//!   Elector (pure: answers in, requests out)                  Fence: a layer around a client
//!      ▲ answer     │ get, create, update, wait                  ▲ open for epoch n until instant t
//!      │            ▼                                            │
//!   Election::run_until ── client without a fence ──► Lease      │
//!      └──────── publishes ──► Leadership, ElectionStatus ───────┘
//! ```
//!
//! The elector owns everything that is known of the lease. The driver, [`Election::run_until`], does what the elector
//! asks, one request at a time, and publishes what follows from it; nothing else writes these channels.
//!
//! # Why there are never two writers
//!
//! A renewal is *sent* at some instant, takes effect on the server later, and is *seen* by others later still. The
//! holder's fence is open for the lease duration less a twentieth, counted from before the renewal was sent. Another
//! candidate takes the lease when it saw no change for the whole lease duration, counted from after it received the
//! record, and its update names the version that it saw, so it fails if a renewal came between. Both count on their
//! own monotonic clock. So the fence is closed before anybody else can open theirs, as long as no clock runs more
//! than 2.5 % fast or slow; wall clocks take no part.
//!
//! What this cannot promise, because no client can: a request that left before the fence closed may be carried out by
//! the server later ([`FenceError::OutcomeUnknown`]); a machine that is suspended stops its monotonic clock, so for
//! an instant after it wakes the fence trusts an old lease. And somebody who deletes the Lease or edits its holder by
//! hand takes the lock off: a candidate that saw the old record still waits for it to run out, a new one cannot know.
//!
//! Coordinated election (`LeaseCandidate`, where the server picks the leader) is not here.

mod config;
mod driver;
mod elector;
mod fence;
mod record;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod simulation;
mod status;

pub use config::{ElectionConfig, ElectionConfigError, OnLoss};
pub use driver::{Election, ElectionError};
pub use fence::{Fence, FenceError, FenceLayer, Fenced, is_fenced};
pub use status::{ElectionStatus, Epoch, Leadership, Overdue};

//! Leader election on a Lease, and a fence that limits writes to the lease holder.
//!
//! ```text
//!   Elector (no I/O: responses in, requests out)              Fence: a layer around a client
//!      ▲ response   │ get, create, update, wait                  ▲ open for epoch n until instant t
//!      │            ▼                                            │
//!   Election::run_until ── client without a fence ──► Lease      │
//!      └──────── publishes ──► Leadership, ElectionStatus ───────┘
//! ```
//!
//! The elector owns all state about the lease. The driver, [`Election::run_until`], sends the elector's requests one at a
//! time and publishes the result; nothing else writes these channels.
//!
//! # Why there are never two writers
//!
//! A renewal is *sent* at some instant, takes effect on the server later, and is *observed* by others later still. The
//! holder's fence is open for the lease duration less a twentieth, counted from before the renewal was sent. Another
//! candidate takes the lease when it has observed no change for the whole lease duration, counted from after it received
//! the record. Its update has the observed resource version, so it fails if a renewal came in between. Both use their own
//! monotonic clock. So the fence closes before any other fence can open, as long as no clock runs more than 2.5 % fast or
//! slow; wall clocks do not matter.
//!
//! Limits that no client can avoid: the server may still process a request that was sent before the fence closed
//! ([`FenceError::OutcomeUnknown`]). A suspended machine stops its monotonic clock, so for an instant after it wakes the
//! fence trusts an old lease. Deleting the Lease or editing its holder by hand breaks the lock: a candidate that has
//! observed the old record still waits for it to expire, a new candidate does not.
//!
//! Coordinated leader election (`LeaseCandidate`, where the server picks the leader) is not implemented.

mod config;
mod driver;
mod elector;
#[cfg(test)]
mod elector_tests;
mod fence;
mod record;
#[cfg(test)]
mod simulation;
mod status;

pub use config::{ElectionConfig, ElectionConfigError, OnLoss};
pub use driver::{Election, ElectionError};
pub use fence::{Fence, FenceError, FenceLayer, FenceService, is_fenced};
pub use status::{ElectionStatus, Epoch, Leadership, StaleLeader};

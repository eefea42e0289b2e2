//! Controllers: what to watch, what to reconcile, and the loop that does it.
//!
//! ```text
//!   Manager ── owns ──► Caches (one watch per kind)        WorkQueue ──► worker ──► Reconciler::reconcile
//!      │                   │                                  ▲            │
//!      └── runs ──► Controller ── source: Change → keys ──────┘            └─► done, again later, retry, give up
//! ```
//!
//! A [`Controller`] declares kinds: its own, those it [owns](Controller::owns), [watches](Controller::watches) or
//! [reads](Controller::reads). Each kind that triggers has a pump: a task that maps changes to keys and puts them into
//! the controller's queue. Workers take keys and call the [`Reconciler`], whose result settles the key. No worker
//! starts before every cache is complete and every pump has seen its initial objects.
//!
//! Who owns what: [`Manager::run_until`] owns the controllers' tasks, a controller's task owns its pumps and workers,
//! the caches belong to whoever reads them and are closed at the end. Nothing outlives the run.
//!
//! This crate has no second way to read or to queue: that is [`windlass_cache`] and [`windlass_workqueue`].
//!
//! Not here yet: predicates, declarative children, leader election, events, health and metrics endpoints, timeouts
//! per reconcile.

mod controller;
mod election;
mod error;
mod listers;
mod manager;
#[cfg(test)]
#[path = "../../cache/tests/model/mod.rs"]
mod model;
mod outcomes;
mod reconcile;
mod source;
mod stop;
mod worker;

pub use controller::{Controller, ControllerError, Undecided};
pub use election::{
    Election, ElectionConfig, ElectionConfigError, ElectionError, ElectionStatus, Epoch, Fence, FenceError,
    FenceLayer, Fenced, Leadership, OnLoss, Overdue, is_fenced,
};
pub use error::Error;
pub use manager::{Manager, ManagerError};
pub use outcomes::Outcomes;
pub use reconcile::{Action, Context, ReconcileId, Reconciler, Request};
pub use windlass_cache::ObjectKey;

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
//! [`events`] tell people what a controller did, and never hold it up.
//!
//! This crate has no second way to read or to queue: that is [`windlass_cache`] and [`windlass_workqueue`].

mod board;
mod children;
mod clock;
mod conditions;
mod control;
mod controller;
mod election;
mod error;
pub mod events;
mod feed;
mod install;
#[cfg(all(feature = "clap", feature = "logging"))]
mod launch;
pub mod layers;
mod listers;
mod manager;
pub mod metrics;
#[cfg(test)]
#[path = "../../cache/tests/model/mod.rs"]
mod model;
pub mod names;
mod options;
mod outcomes;
mod predicate;
pub mod quantity;
mod reconcile;
pub mod serving;
mod source;
mod stop;
mod terms;
mod watch;
mod worker;
mod writer;

pub use children::{APPLIED, CONTROLLER, ChildError, Declarative, Declaring, Desired};
pub use clock::Clock;
pub use conditions::{Conditions, Finding};
pub use control::ControllerError;
pub use controller::{Controller, Undecided};
pub use election::{
    Election, ElectionConfig, ElectionConfigError, ElectionError, ElectionStatus, Epoch, Fence, FenceError,
    FenceLayer, Fenced, Leadership, OnLoss, Overdue, is_fenced,
};
pub use error::Error;
pub use feed::{Feed, Told, Watching};
pub use install::{Install, InstallError};
#[cfg(all(feature = "clap", feature = "logging"))]
pub use launch::{launch, launch_with};
pub use manager::{Controllers, Manager, ManagerError, TaskContext};
pub use options::{
    ConnectError, Connection, ElectionOptions, LogFormat, Logging, NodeNameError, Options, node_name,
};
#[cfg(feature = "logging")]
pub use options::{JsonLines, LoggingError};
pub use outcomes::{Outcome, Outcomes};
pub use predicate::Predicate;
pub use reconcile::{Action, Context, ReconcileId, Reconciler, Request};
pub use watch::Watch;
pub use windlass_cache::ObjectKey;
pub use writer::{
    Applied, Apply, Deleted, Evicted, InvalidFinalizer, Refusal, Writable, WriteError, WriteErrorKind,
    Writer, check_finalizer,
};

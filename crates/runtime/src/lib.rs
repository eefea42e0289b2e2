//! Kubernetes controllers: watches, reconcilers, leader election, and the manager that runs them.
//!
//! ```text
//!   Manager ── owns ──► Caches (one watch per kind)        WorkQueue ──► worker ──► Reconciler::reconcile
//!      │                   │                                  ▲            │
//!      └── runs ──► Controller ── source: Change → keys ──────┘            └─► done, again later, retry, give up
//! ```
//!
//! A [`Controller`] declares its own kind and the kinds it [owns](Controller::owns), [watches](Controller::watches) or
//! [reads](Controller::reads). Each kind that triggers reconciles has a pump: a task that maps changes to keys and adds
//! them to the controller's queue. Workers take keys and call the [`Reconciler`]; its result decides whether the key is
//! done, requeued, retried or dropped. No worker starts before every cache has synced and every pump has queued its
//! initial objects.
//!
//! Keys are [`ObjectKey`]s: the namespace and name of an object of the controller's own kind. A controller without an own
//! kind has keys of a type of its own; see [`Keyed`].
//!
//! Ownership: [`Manager::run_until`] owns the controllers' tasks, a controller's task owns its pumps and workers.
//! Caches are shared by their readers and closed at the end. Nothing outlives the run.
//!
//! [`events`] records Kubernetes events without blocking reconciles.
//!
//! All reads go through [`windlass_cache`] and all queueing through [`windlass_workqueue`].

mod children;
mod conditions;
mod controller;
mod controller_run;
mod custom_source;
mod election;
mod error;
pub mod events;
pub mod http_client;
mod install;
mod key;
mod key_tracker;
#[cfg(all(feature = "clap", feature = "logging"))]
mod launch;
pub mod layers;
mod listers;
mod manager;
pub mod metrics;
#[cfg(test)]
#[path = "../../cache/tests/model/mod.rs"]
mod model;
mod options;
mod outcomes;
mod own_objects;
mod predicate;
mod reconcile;
mod repeats;
pub mod serving;
mod source;
mod start_report;
mod status_tracker;
mod stop;
#[cfg(feature = "opentelemetry")]
mod telemetry;
mod terms;
pub mod testing;
mod text;
mod trigger;
mod watch;
mod worker;
mod writer;

pub use children::{
    ALLOW_PRUNE_ANNOTATION, APPLIED_HASH_ANNOTATION, CONTROLLER_LABEL, ChildError, ChildRef, Desired,
    DesiredState, DesiredStateReconciler, PrunePolicy,
};
pub use conditions::{
    ConditionUpdate, Conditions, READY_CONDITION, RECONCILED_REASON, RECONCILING_CONDITION, STALLED_CONDITION,
};
pub use controller::{Controller, NoReconciler};
pub use controller_run::ControllerError;
pub use custom_source::{SourceContext, SourceEvent, WatchHandle};
pub use election::{
    Election, ElectionConfig, ElectionConfigError, ElectionError, ElectionStatus, Epoch, Fence, FenceError,
    FenceLayer, FenceService, Leadership, OnLoss, StaleLeader, is_fenced,
};
pub use error::Error;
pub use install::{CrdInstaller, InstallError};
pub use key::{Keyed, Reconcilable, ReconcileKey};
#[cfg(all(feature = "clap", feature = "logging"))]
pub use launch::{launch, launch_with};
pub use manager::{Controllers, Manager, ManagerError, TaskContext};
pub use options::{
    ConnectError, Connection, ElectionOptions, LogFormat, Logging, NodeNameError, Options, node_name,
    shows_colour,
};
#[cfg(feature = "logging")]
pub use options::{JsonLines, LoggingError};
pub use outcomes::{OutcomeCounters, ReconcileOutcome};
pub use predicate::Predicate;
pub use reconcile::{Action, Context, ReconcileId, Reconciler, Request};
pub use start_report::OnBlocked;
#[cfg(feature = "opentelemetry")]
pub use telemetry::{Telemetry, TelemetryError};
pub use trigger::{ChangeType, ChangedObject, Trigger, TriggerCause};
pub use watch::Watch;
pub use windlass_cache::ObjectKey;
pub use windlass_clock::Clock;
pub use writer::{
    ApplyOptions, ApplyOutcome, DeleteOutcome, EvictOutcome, InvalidFinalizer, InvalidWrite, Writable,
    WriteError, WriteErrorKind, Writer, check_finalizer,
};

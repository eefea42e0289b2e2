//! Reboots nodes in turn, and proves that each of them did.

pub mod after;
pub mod agent;
mod api;
mod arguments;
mod controller;
pub mod drain;
mod figures;
pub mod ledger;
pub mod machine;
mod members;
#[cfg(test)]
mod model;
pub mod order;
mod setup;
mod span;
pub mod state;
pub mod window;

pub use api::{
    BlockerStatus, DEFAULT_POLICY, Grant, OrderSpec, PerTopology, Planned, PolicyPhase, RebootPolicy,
    RebootPolicySpec, RebootPolicyStatus, RebootSpec,
};
pub use arguments::Arguments;
pub use setup::{SetupError, setup, setup_at};
pub use span::{InvalidSpan, Span};

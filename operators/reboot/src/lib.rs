//! Reboots nodes in turn, and proves that each of them did.

pub mod agent;
mod api;
mod arguments;
pub mod machine;
mod setup;
mod span;
pub mod state;

pub use api::{
    BlockerStatus, DEFAULT_POLICY, Grant, OrderSpec, PerTopology, Planned, PolicyPhase, RebootPolicy,
    RebootPolicySpec, RebootPolicyStatus, RebootSpec,
};
pub use arguments::Arguments;
pub use setup::{SetupError, setup, setup_at};
pub use span::{InvalidSpan, Span};

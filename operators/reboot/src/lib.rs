//! Reboots nodes one after another, and verifies each reboot by the node's boot ID.
//!
//! ```text
//!   users, triggers ─── reboot-needed ──► Node ◄── state, reboot-now ── controller ── slots ──► RebootPolicy.status
//!                                          │ ▲                              │
//!                                          ▼ │ reboot-in-progress           └── evictions ──► pods
//!                                         agent ── reboot ──► machine: new boot ID
//! ```
//!
//! `kubectl annotate node n1 reboot.windlass.dev/reboot-needed=` requests a reboot. The controller grants the node a
//! slot, cordons it, evicts its pods and arms it. The agent on the node then reboots it. A changed boot ID proves the
//! reboot; once the node is healthy again, the controller removes its annotations, the request last. A
//! [`RebootPolicy`] defines how many nodes reboot at a time, when, and in which order; without one, a policy named
//! `default` applies.
//!
//! # Guarantees
//!
//! - **Never too many.** A slot is granted by a compare-and-swap on the policy's status, after a live count of nodes
//!   ([`slots`]). Nodes that are not Ready count as unavailable, whatever the reason.
//! - **One verified boot per request.** Only a changed boot ID counts as a reboot; a restarted agent does not. The
//!   request stays until then ([`state_machine`]).
//! - **Any process may crash at any point; its successor continues.** All state is on the node ([`state`]) and in the
//!   policy's status. Each step is one write, conditional on the resource version that was read.
//! - **Administrators win.** A node that an administrator cordoned stays cordoned. Uncordoning a node, pausing the
//!   policy or removing the request takes effect.
//! - **A failure stops the rollout.** A failed node keeps its slot until an administrator has looked at it.
//!
//! # In a program
//!
//! [`setup`] adds the controller to a [`Manager`](windlass::runtime::Manager), [`agent::setup`] adds the agent of one
//! node, [`agent::simulated`] adds the agents of a simulated cluster. `rbac.yaml` has the rights that the controller
//! needs.
//!
//! This crate knows nothing about list/watch, work queues or leader election: that is [`windlass`].

pub mod agent;
mod alerts;
mod api;
mod arguments;
mod controller;
pub mod drain;
mod go_duration;
pub mod health_check;
pub mod hooks;
mod metrics;
#[cfg(test)]
mod model;
pub mod order;
mod policy_set;
pub mod progress;
mod setup;
pub mod slots;
pub mod state;
pub mod state_machine;
pub mod window;

pub use alerts::{AlertSpec, OnAlertError, Prometheus, PrometheusError, parse_alerts};
pub use api::{
    BlockerStatus, DEFAULT_POLICY, Grant, OrderSpec, PerTopology, PlannedReboot, PolicyPhase, RebootPolicy,
    RebootPolicySpec, RebootPolicyStatus, RebootSpec,
};
pub use arguments::Arguments;
pub use go_duration::{GoDuration, InvalidDuration};
pub use setup::{SetupError, setup, setup_at, setup_with};

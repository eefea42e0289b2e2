//! Reboots nodes in turn, and proves that each of them did.
//!
//! ```text
//!   people, triggers ── reboot-needed ──► Node ◄── state, reboot-now ── controller ── slots ──► RebootPolicy.status
//!                                          │ ▲                              │
//!                                          ▼ │ reboot-in-progress           └── evictions ──► pods
//!                                         agent ── reboot ──► machine: another boot ID
//! ```
//!
//! `kubectl annotate node n1 reboot.windlass.dev/reboot-needed=` is all that it takes. The controller gives the node a slot,
//! makes it unschedulable, evicts its pods and arms it; the agent on the node reboots it; another boot ID is the proof, and
//! when the node is good again everything is taken off, the request last. A [`RebootPolicy`] says how many at a time, when,
//! and in which order; without one there is `default`.
//!
//! # What it promises
//!
//! - **Never too many.** A slot is given by a compare-and-swap on the policy's status, after a live count of nodes
//!   ([`ledger`]). Nodes that are not Ready count, for whatever reason.
//! - **One boot for each request, and proved.** Only another boot ID is a reboot; a restarted agent is none, and a request stays
//!   until then ([`machine`]).
//! - **Whoever dies, wherever, the next one goes on.** Everything stands on the node ([`state`]) and in the ledger; each step is
//!   one write, conditional on the version that was looked at.
//! - **What people decide is theirs.** What an administrator made unschedulable stays so; who uncordons, pauses or takes the
//!   request off has their way.
//! - **What goes wrong stops the roll.** A node that fails keeps its slot until somebody looks.
//!
//! # In a program
//!
//! [`setup`] adds the controller to a [`Manager`](windlass::runtime::Manager), [`agent::setup`] the agent of one node,
//! [`agent::simulated`] those of a cluster without machines. `rbac.yaml` has the rights that the controller needs.
//!
//! This crate does not know how lists and watches stay current, how work is queued, or who leads: that is [`windlass`].

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

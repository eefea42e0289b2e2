//! Recorded responses of a real Kubernetes API server, and the proof that the embedded one responds the same way.
//!
//! ```text
//!  scenarios/NAME.yaml ─► Scenario ─► run ──► raw outcomes ─► normalise ─► recordings/NAME.json   (record)
//!                                      ▲                          └──────► compare with them      (replay, check)
//!                                      │
//!              kube::Client on a real control plane, or on the embedded server
//! ```
//!
//! A [`Scenario`] is data: requests, watches, kubectl command lines, and how its webhooks respond. [`run::run`] runs it on any server behind a
//! `kube::Client` without knowing which one it is, so recording and replay cannot differ in how they are made.
//! [`normalise`] removes what differs between any two servers (UIDs, resource versions, times, random values) and
//! nothing else. A recording is never edited by hand.
//!
//! This crate knows nothing about the internals of either server.

pub mod compare;
pub mod corpus;
mod definition;
mod key_order;
pub mod kubectl;
pub mod normalise;
mod pick;
mod response;
pub mod run;
pub mod scenario;
pub mod stream;
pub mod target;
pub mod template;
pub mod webhook;

pub use scenario::Scenario;

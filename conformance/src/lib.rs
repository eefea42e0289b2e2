//! What a real Kubernetes API server answers, recorded; and the proof that the embedded one answers the same.
//!
//! ```text
//!  scenarios/NAME.yaml ─► Scenario ─► run ──► raw outcomes ─► normalise ─► recordings/NAME.json   (record)
//!                                      ▲                          └──────► compare with them      (replay, check)
//!                                      │
//!              kube::Client on a real control plane, or on the embedded server
//! ```
//!
//! A [`Scenario`] is data: requests, watches and kubectl command lines. [`run::run`] carries it out on any server that a
//! `kube::Client` sits on and knows nothing of which one it is, so that a recording and its replay cannot differ in how
//! they were made. [`normalise`] takes out what no two servers share (uids, revisions, times, chance) and nothing
//! else. A recording is never edited by hand.
//!
//! What this crate does not know: how either server works inside.

pub mod compare;
pub mod corpus;
pub mod kubectl;
pub mod normalise;
mod pick;
pub mod run;
pub mod scenario;
pub mod stream;
pub mod target;
pub mod template;

pub use scenario::Scenario;

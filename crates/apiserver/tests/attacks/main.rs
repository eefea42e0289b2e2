//! Attacks on the server, one module per kind of attack. Each one succeeded against an earlier version.

#[path = "../client/mod.rs"]
mod client;

mod authorization;
mod depth;
mod growth;
mod harness;
mod keys;
mod load;
mod socket;

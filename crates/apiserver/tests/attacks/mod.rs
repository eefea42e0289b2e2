//! Attacks on the server, one module per kind of attack. Each one succeeded against an earlier version.

mod authorization;
mod depth;
mod growth;
mod harness;
mod keys;
mod load;
mod policies;
mod socket;
mod storage;
mod webhooks;

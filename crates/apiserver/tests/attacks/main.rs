//! Attacks on the server, one module per kind of attack. Each was possible once.

#[path = "../asking/mod.rs"]
mod asking;
mod depth;
mod growth;
mod keys;
mod line;
mod load;
mod reading;
mod socket;

//! The API server, compiled a second time with every step counted.
//!
//! ```text
//!   crates/apiserver/src ──build script──► the same source, with a counter in every function, loop and closure
//!                                                   │
//!   tests/growth.rs ── requests with n, 2n, 4n ─────┘──► which counters grew faster than the request?
//! ```
//!
//! Counting makes the tests exact: no clock, no processor events (virtual machines have none), no `unsafe`, and the
//! same numbers on a loaded machine. A counter is a line of source, so a failing test names the loop.
//!
//! What is counted: calls of the server's functions, turns of its loops, calls of its closures, and the length of what
//! `contains` searches and `insert` and `remove` move; the tests add the allocator's calls and bytes. What is not: loops
//! inside other crates and the standard library that neither allocate nor call back, such as `==` on two lists.
//!
//! Closures that sort or search binarily are left out: their n log n is fine, and would hide what is not.

#![forbid(unsafe_code)]
// The copied source is linted where it is written.
#![allow(warnings, clippy::all, clippy::pedantic)]

pub mod steps;

include!(concat!(env!("OUT_DIR"), "/src/lib.rs"));

//! The API server, compiled a second time with every step counted.
//!
//! ```text
//!   crates/{apiserver,api,rights}/src ──build script──► the same source, with a counter in every function, loop and
//!                                                   │                                                      closure
//!   tests/growth ───── requests with n, 2n, 4n ─────┘──► which counters grew faster than the request?
//! ```
//!
//! Counting makes the tests exact: no clock, no processor events (virtual machines have none), no `unsafe`, and the
//! same numbers on a loaded machine. A counter is a line of source, so a failing test names the loop.
//!
//! Counted: calls of the server's functions, iterations of its loops, calls of its closures, the length of what
//! `contains` searches, and the length of what `insert` and `remove` move. The tests add the allocator's calls and
//! bytes. Not counted: loops in other crates and the standard library that neither allocate nor call back, such as `==`
//! on two lists.
//!
//! Closures for sorting and binary search are excluded: their n log n is fine, but would hide other growth.

#![forbid(unsafe_code)]
// The copied source is linted in its own crate.
#![allow(warnings, clippy::all, clippy::pedantic)]

pub mod steps;

include!(concat!(env!("OUT_DIR"), "/src/lib.rs"));

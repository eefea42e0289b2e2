//! Measures Windlass and its rivals on the same cases, in turns, in the same run, and prints one table per subject.
//!
//! ```text
//! cargo run --release -p windlass-bench -- queue
//! cargo run --release -p windlass-bench -- server
//! ```
//!
//! A subject is a module with a list of cases and a list of rivals; adding one is adding an arm below. Figures are only
//! worth quoting from a quiet machine.

mod measure;
mod queue;
mod rivals;
mod rounds;
mod server;

use std::alloc::System;

use anyhow::bail;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Makes this program the server that the subject `server` measures.
const SERVE: &str = "serve";

fn main() -> anyhow::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("queue") => queue::bench(),
        Some("server") => server::bench(),
        Some(SERVE) => server::serve(),
        Some(other) => bail!("no subject `{other}`: the subjects are `queue` and `server`"),
        None => bail!("name a subject: `queue` or `server`"),
    }
}

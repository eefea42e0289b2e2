//! Measures Windlass and its rivals on the same cases, in turns, in the same run, and prints one table per subject.
//!
//! ```text
//! cargo run --release -p windlass-bench -- queue
//! cargo run --release -p windlass-bench -- access
//! cargo run --release -p windlass-bench -- cache
//! cargo run --release -p windlass-bench -- reconcile
//! cargo run --release -p windlass-bench -- reconcile latency
//! ```
//!
//! The API server has a program of its own, `windlass-bench-server`, so has the living cluster, `windlass-bench-cluster`, and so
//! has secretsync, `windlass-bench-secretsync`.
//!
//! A subject is a module with a list of cases and a list of rivals; adding one is adding an arm below. Figures are only
//! worth quoting from a quiet machine.

mod access;
mod cache;
mod lines;
mod measure;
mod queue;
mod reconcile;
mod rivals;
mod rounds;
mod serve;

use std::alloc::System;

use anyhow::bail;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["queue"] => queue::bench(),
        // What `bench` starts for each measurement of ours.
        ["measure", "queue", case] => queue::measure_case(case),
        ["cache"] => cache::bench(),
        ["measure", "cache", contender, case, source] => cache::measure_case(contender, case, source),
        ["reconcile"] => reconcile::bench(None),
        // One of its cases.
        ["reconcile", case] => reconcile::bench(Some(case)),
        ["measure", "reconcile", contender, case, number, cluster] => {
            reconcile::measure_case(contender, case, number, cluster)
        }
        ["access"] => access::bench(),
        [serve::SERVE] => serve::serve(),
        _ => bail!("name a subject: `queue`, `cache`, `reconcile` or `access`"),
    }
}

//! Behaviour suites, on every selected backend.

mod cluster_with_nodes;
mod leftovers;
mod real;
mod scheduling;
mod upkeep;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Ok(place) = std::env::var(real::KILLED_COPY) {
        return real::run_killed_copy(&place);
    }
    windlass_suite::run([real::suite(), scheduling::suite(), upkeep::suite()])
}

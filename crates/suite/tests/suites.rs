//! Behaviour suites, on every selected backend.

mod api;
mod kubectl;
mod rollouts;
mod walk;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_suite::run([
        api::suite(),
        kubectl::suite(),
        rollouts::suite(),
        walk::suite(),
        wire::suite(),
    ])
}

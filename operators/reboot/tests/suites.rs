//! Behaviour suites, on every selected backend.

mod attacks;
mod controller;
mod drain;
mod kubectl;
mod reboot;

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_suite::run([
        attacks::suite(),
        controller::suite(),
        drain::suite(),
        kubectl::suite(),
        reboot::suite(),
    ])
}

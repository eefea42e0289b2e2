//! Behaviour suites, on every selected backend.

mod alive;
mod icecream;
mod kubectl;
mod webhooks;

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_suite::run([
        alive::suite(),
        icecream::suite(),
        kubectl::suite(),
        webhooks::suite(),
    ])
}

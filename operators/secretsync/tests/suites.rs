//! Behaviour suites, on every selected backend.

mod attacks;
mod secretsync;
mod slice;

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_suite::run([
        attacks::suite(),
        slice::suite(),
        secretsync::suite(),
        secretsync::webhooks::suite(),
    ])
}

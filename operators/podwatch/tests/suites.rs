//! Behaviour suites, on every selected backend.

mod podwatch;

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_suite::run([podwatch::suite()])
}

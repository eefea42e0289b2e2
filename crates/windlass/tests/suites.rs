//! Behaviour suites, on every selected backend.

mod runtime;

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_suite::run([runtime::suite()])
}

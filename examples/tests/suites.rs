//! Behaviour suites, on every selected backend.

mod autoservice;

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_suite::run([autoservice::suite()])
}

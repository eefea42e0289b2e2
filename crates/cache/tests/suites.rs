//! Behaviour suites, on every selected backend.

mod server;

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_suite::run([server::suite()])
}

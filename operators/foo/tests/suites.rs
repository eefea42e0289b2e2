//! Behaviour suites, on every selected backend.

mod foo;
mod kubectl;

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_suite::run([foo::suite(), kubectl::suite()])
}

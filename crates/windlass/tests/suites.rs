//! Behaviour suites, on every selected backend.

mod clock;
mod runtime;

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_suite::run([clock::suite(), runtime::suite(), runtime::kstatus::suite()])
}

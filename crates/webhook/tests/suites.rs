//! Behaviour suites, on every selected backend. The API server calls the webhooks over TLS at a URL of this machine, as it calls
//! those of a program on a laptop.

mod hooks;

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_suite::run([hooks::suite()])
}

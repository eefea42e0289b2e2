//! Behaviour suites, on every selected backend.

mod api;
mod kubectl;
mod request_proxy;
mod rollouts;
mod walk;

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_suite::run([
        api::suite(),
        kubectl::suite(),
        request_proxy::suite(),
        rollouts::suite(),
        walk::suite(),
    ])
}

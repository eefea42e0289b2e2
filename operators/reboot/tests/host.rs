//! The host's files, with the programs of a host: D-Bus and polkit. Cases are ignored where these are missing.

mod attacks_bus;
mod attacks_polkit;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let mut trials = attacks_bus::trials();
    trials.push(attacks_polkit::trial());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

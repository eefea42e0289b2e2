//! `windlass notices`: the licenses of the third-party crates in this binary.

use std::{io::Write as _, process::ExitCode};

/// Kept up to date by the test `notices`.
const NOTICES: &str = include_str!("../THIRD-PARTY-NOTICES.txt");

pub(crate) fn run() -> ExitCode {
    // A pager that closes early is not an error.
    std::io::stdout().write_all(NOTICES.as_bytes()).ok();
    ExitCode::SUCCESS
}

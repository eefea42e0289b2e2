//! `windlass notices`: the licences of what this binary contains.

use std::{io::Write as _, process::ExitCode};

/// Kept up to date by the test `notices`.
const NOTICES: &str = include_str!("../THIRD-PARTY-NOTICES.txt");

pub(crate) fn run() -> ExitCode {
    // A pager that is closed early is no failure.
    std::io::stdout().write_all(NOTICES.as_bytes()).ok();
    ExitCode::SUCCESS
}

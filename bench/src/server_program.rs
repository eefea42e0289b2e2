//! Results of the API server benchmark, which is a separate program.

use std::process::Command;

use anyhow::ensure;
use windlass_bench::{cases::Plan, report::Report};

use crate::rivals::build_program;

const PROGRAM: &str = "windlass-bench-server";

/// Builds the program with the same profile, runs it, and reads its report.
pub(crate) fn bench(plan: &Plan) -> anyhow::Result<Report> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("report.json");
    let mut command = Command::new(build_program(env!("CARGO_PKG_NAME"), PROGRAM)?);
    command.args(["--rounds", &plan.rounds.to_string()]);
    command.args(plan.only.iter().flat_map(|part| ["--only", part]));
    let status = command.arg("--json").arg(&file).status()?;
    ensure!(status.success(), "{PROGRAM}: {status}");
    Ok(serde_json::from_slice(&std::fs::read(file)?)?)
}

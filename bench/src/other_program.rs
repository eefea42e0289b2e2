//! Results of the subjects that are separate programs.

use std::process::Command;

use anyhow::ensure;
use windlass_bench::{cases::Plan, report::Report, rivals::build_program};

/// Builds the program with the same profile, runs it, and reads its report.
pub(crate) fn bench(program: &str, plan: &Plan) -> anyhow::Result<Report> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("report.json");
    let mut command = Command::new(build_program(env!("CARGO_PKG_NAME"), program)?);
    command.args(["--rounds", &plan.rounds.to_string()]);
    command.args(plan.only.iter().flat_map(|part| ["--only", part]));
    let status = command.arg("--json").arg(&file).status()?;
    ensure!(status.success(), "{program}: {status}");
    Ok(serde_json::from_slice(&std::fs::read(file)?)?)
}

//! The API server's figures, from the program that measures them.

use std::process::Command;

use anyhow::{Context, ensure};
use windlass_bench::{cases::Plan, report::Report};

const PROGRAM: &str = "windlass-bench-server";

/// Builds the program as this one was built, and takes its report.
pub(crate) fn bench(plan: &Plan) -> anyhow::Result<Report> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "-p", env!("CARGO_PKG_NAME"), "--bin", PROGRAM]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let status = build.status().context("cargo, to build the server's benchmark")?;
    ensure!(status.success(), "{PROGRAM} does not build: {status}");
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("report.json");
    let mut command = Command::new(std::env::current_exe()?.with_file_name(PROGRAM));
    command.args([
        "--rounds",
        &plan.rounds.to_string(),
        "--only",
        &plan.only,
        "--json",
    ]);
    let status = command.arg(&file).status()?;
    ensure!(status.success(), "{PROGRAM}: {status}");
    Ok(serde_json::from_slice(&std::fs::read(file)?)?)
}

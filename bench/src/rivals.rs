//! Who is measured: ours, and the rivals written in Go, built once per run from `rivals/go` where their versions are
//! pinned.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use tempfile::TempDir;

use crate::measure::Measurement;

/// The program that measures the Go rivals.
pub(crate) struct GoRivals {
    program: PathBuf,
    /// Holds the program; removed with it.
    _directory: TempDir,
}

impl GoRivals {
    /// Builds the program. Without Go, or without the rivals' modules, there is none: the reason why.
    pub(crate) fn build() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir().context("a place for the rivals' program")?;
        let program = directory.path().join("rivals");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("rivals/go");
        let mut build = Command::new("go");
        build
            .args(["build", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(source);
        let status = build
            .status()
            .context("there is no Go here to build the rivals with")?;
        if !status.success() {
            bail!("the Go rivals do not build: {status}");
        }
        Ok(Self {
            program,
            _directory: directory,
        })
    }

    /// The program, for a subject with arguments of its own.
    pub(crate) fn command(&self) -> Command {
        Command::new(&self.program)
    }

    /// Measures one rival on one case.
    pub(crate) fn measure(&self, rival: &str, case: &str) -> anyhow::Result<Measurement> {
        measure_in_process(Command::new(&self.program).args(["-rival", rival, "-case", case]))
    }
}

/// Measures ours on one case of a subject.
pub(crate) fn measure_ours(subject: &str, case: &str) -> anyhow::Result<Measurement> {
    measure_in_process(Command::new(std::env::current_exe()?).args(["measure", subject, case]))
}

/// Every measurement has a process of its own, ours too. In one process that ran from start to end, ours measured up to
/// twice as slow on a busy machine, while the rivals, in fresh ones, did not.
fn measure_in_process(command: &mut Command) -> anyhow::Result<Measurement> {
    let output = command.output()?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("what {command:?} says"))
}

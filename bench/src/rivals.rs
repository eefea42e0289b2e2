//! The rivals written in Go: built once per run from `rivals/go`, where their versions are pinned.

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
    /// Builds the program; `None` if there is no Go here.
    pub(crate) fn build() -> anyhow::Result<Option<Self>> {
        if Command::new("go").arg("version").output().is_err() {
            return Ok(None);
        }
        let directory = tempfile::tempdir().context("a place for the rivals' program")?;
        let program = directory.path().join("rivals");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("rivals/go");
        let build = Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(source)
            .status()?;
        if !build.success() {
            bail!("the Go rivals do not build: {build}");
        }
        Ok(Some(Self {
            program,
            _directory: directory,
        }))
    }

    /// Measures one rival on one case, in a process of its own.
    pub(crate) fn measure(&self, rival: &str, case: &str) -> anyhow::Result<Measurement> {
        let output = Command::new(&self.program)
            .args(["-rival", rival, "-case", case])
            .output()?;
        if !output.status.success() {
            bail!("{rival} on {case}: {}", String::from_utf8_lossy(&output.stderr));
        }
        serde_json::from_slice(&output.stdout).with_context(|| format!("what {rival} says about {case}"))
    }
}

//! Who is measured: ours, and the rivals written in Go, built once per run from `rivals/go` where their versions are
//! pinned.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use tempfile::TempDir;

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

    /// Builds the program, or says why there is none: then there are our figures alone.
    pub(crate) fn build_or_say() -> Option<Self> {
        Self::build()
            .inspect_err(|reason| eprintln!("without the rivals in Go: {reason:#}"))
            .ok()
    }

    /// The program.
    pub(crate) fn command(&self) -> Command {
        Command::new(&self.program)
    }
}

/// This program, to measure ours, or kube-rs, once.
pub(crate) fn own() -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("measure");
    Ok(command)
}

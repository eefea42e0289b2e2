//! Programs of the contenders: ours, and the rivals written in Go, built once per run from `rivals/go`, which pins
//! their versions.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use tempfile::TempDir;

/// The program that measures the Go rivals.
pub struct GoRivals {
    program: PathBuf,
    /// Folder with the program, removed on drop.
    _directory: TempDir,
}

impl GoRivals {
    /// Builds the program. Fails without Go or without the rivals' modules.
    pub fn build() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir().context("cannot create a folder for the rivals' program")?;
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
            .context("cannot run Go to build the rivals: install it")?;
        if !status.success() {
            bail!("cannot build the Go rivals: {status}");
        }
        Ok(Self {
            program,
            _directory: directory,
        })
    }

    /// Builds the program, or prints why it is not available; then only our contenders are measured.
    pub fn build_or_warn() -> Option<Self> {
        Self::build()
            .inspect_err(|reason| eprintln!("skipping the rivals in Go: {reason:#}"))
            .ok()
    }

    /// Returns a command that runs the program.
    pub fn command(&self) -> Command {
        Command::new(&self.program)
    }
}

/// Returns a command that runs this program, for one measurement of a Rust contender.
pub fn own_command() -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("measure");
    Ok(command)
}

/// Builds another program of the workspace with the same profile, and returns its path.
pub fn build_program(package: &str, program: &str) -> anyhow::Result<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "-p", package, "--bin", program]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
    let status = status.with_context(|| format!("cannot run cargo to build `{program}`"))?;
    if !status.success() {
        bail!("cannot build `{program}`: {status}");
    }
    Ok(std::env::current_exe()?.with_file_name(program))
}

//! Runs kubectl command lines with their own home directory.

use std::{path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, Command},
};
use windlass_cluster::{Cluster, User};
use windlass_suite::Context;

/// Timeout of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(1);

/// kubectl as the administrator or as a user, in a case's namespace.
pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    pub(crate) namespace: String,
    /// Home and caches, isolated from the user's configuration and other cases.
    home: TempDir,
    editor: &'static str,
}

impl Kubectl {
    pub(crate) fn new(ctx: &Context) -> Result<Self> {
        Self::for_cluster(ctx.cluster(), ctx.namespace())
    }

    /// kubectl as the administrator, in any namespace of any cluster.
    pub(crate) fn for_cluster(cluster: &Cluster, namespace: &str) -> Result<Self> {
        Ok(Self {
            program: windlass_cluster::matching_kubectl()?,
            kubeconfig: cluster.kubeconfig()?,
            namespace: namespace.to_owned(),
            home: tempfile::tempdir()?,
            editor: "false",
        })
    }

    /// Acts as another user.
    pub(crate) fn for_user(self, user: &User) -> Result<Self> {
        let kubeconfig = user.kubeconfig()?;
        Ok(Self { kubeconfig, ..self })
    }

    /// Authenticates with a bearer token only.
    pub(crate) fn with_token(self, token: &str) -> Result<Self> {
        let mut config: Value = serde_json::from_slice(&std::fs::read(&self.kubeconfig)?)?;
        config["users"][0]["user"] = json!({"token": token});
        let kubeconfig = self.home.path().join("token.kubeconfig");
        std::fs::write(&kubeconfig, config.to_string())?;
        Ok(Self { kubeconfig, ..self })
    }

    /// Sets the editor of `kubectl edit`.
    pub(crate) fn editor(self, editor: &'static str) -> Self {
        Self { editor, ..self }
    }

    /// Runs a command line. Arguments are separated by spaces; `'one with spaces'` is quoted.
    pub(crate) async fn run(&self, line: &str) -> Result<CommandOutput> {
        self.run_with_input(line, "").await
    }

    /// Runs a command line with standard input, for `-f -`.
    pub(crate) async fn run_with_input(&self, line: &str, input: &str) -> Result<CommandOutput> {
        let mut child = self.spawn(line)?;
        let mut stdin = child.stdin.take().context("piped")?;
        // kubectl may exit without reading its input.
        stdin.write_all(input.as_bytes()).await.ok();
        drop(stdin);
        let output = tokio::time::timeout(COMMAND_TIMEOUT, child.wait_with_output())
            .await
            .with_context(|| format!("`kubectl {line}` timed out after {COMMAND_TIMEOUT:?}"))??;
        Ok(CommandOutput {
            line: line.to_owned(),
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout)?,
            stderr: String::from_utf8(output.stderr)?,
        })
    }

    /// Runs a command that must succeed, and returns its output.
    pub(crate) async fn ok(&self, line: &str) -> Result<String> {
        self.run(line).await?.ok()
    }

    /// Runs a command that must succeed, with standard input, and returns its output.
    pub(crate) async fn ok_with_input(&self, line: &str, input: &str) -> Result<String> {
        self.run_with_input(line, input).await?.ok()
    }

    /// Starts a command that prints lines until it is dropped.
    pub(crate) fn follow(&self, line: &str) -> Result<RunningCommand> {
        let mut child = self.spawn(line)?;
        let lines = BufReader::new(child.stdout.take().context("piped")?).lines();
        Ok(RunningCommand { _child: child, lines })
    }

    fn spawn(&self, line: &str) -> Result<Child> {
        let mut command = Command::new(&self.program);
        command
            .arg("--namespace")
            .arg(&self.namespace)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--cache-dir")
            .arg(self.home.path().join("cache"))
            .args(arguments(line))
            .env_clear()
            .env("HOME", self.home.path())
            .env("KUBE_EDITOR", self.editor)
            // `diff` runs the program of that name.
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir(self.home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command.spawn().context("kubectl does not start")
    }
}

fn arguments(line: &str) -> Vec<&str> {
    let mut arguments = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        if index % 2 == 1 {
            arguments.push(part);
        } else {
            arguments.extend(part.split_whitespace());
        }
    }
    arguments
}

/// The result of a command.
pub(crate) struct CommandOutput {
    line: String,
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CommandOutput {
    /// Returns the output, if the command succeeded.
    pub(crate) fn ok(self) -> Result<String> {
        ensure!(
            self.code == Some(0),
            "`kubectl {}` ended with {:?}: {}{}",
            self.line,
            self.code,
            self.stdout,
            self.stderr
        );
        Ok(self.stdout)
    }

    /// Asserts that the command failed with this exit code and error output.
    #[track_caller]
    pub(crate) fn assert_fails(self, code: i32, complaint: &str) {
        let Self {
            line, stdout, stderr, ..
        } = &self;
        assert_eq!(self.code, Some(code), "`kubectl {line}`: {stdout}{stderr}");
        assert_eq!(stderr.trim_end(), complaint, "`kubectl {line}`");
    }
}

/// A running command, which is killed on drop.
pub(crate) struct RunningCommand {
    _child: Child,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl RunningCommand {
    pub(crate) async fn next(&mut self) -> Result<String> {
        tokio::time::timeout(COMMAND_TIMEOUT, self.lines.next_line())
            .await
            .context("timed out waiting for a line")??
            .context("the command ended")
    }
}

/// Splits a table into cells, without the column `AGE`, which depends on the time.
pub(crate) fn cells(table: &str) -> Vec<Vec<&str>> {
    let rows: Vec<Vec<_>> = table
        .lines()
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect()
        })
        .collect();
    let age = rows
        .first()
        .and_then(|head| head.iter().position(|cell| *cell == "AGE"));
    let kept = |row: Vec<_>| -> Vec<&str> {
        row.into_iter()
            .enumerate()
            .filter_map(|(index, cell)| (Some(index) != age).then_some(cell))
            .collect()
    };
    rows.into_iter().map(kept).collect()
}

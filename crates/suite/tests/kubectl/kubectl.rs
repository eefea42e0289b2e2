//! The program: one command line at a time, in a home of its own.

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

/// A command that takes longer hangs.
const LIMIT: Duration = Duration::from_mins(1);

/// kubectl as the administrator or as a user, in a case's namespace.
pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    pub(crate) namespace: String,
    /// Its home and its caches, so that nothing of the machine's owner and no other case plays a part.
    home: TempDir,
    editor: &'static str,
}

impl Kubectl {
    pub(crate) fn new(ctx: &Context) -> Result<Self> {
        Self::on(ctx.cluster(), ctx.namespace())
    }

    /// The administrator's, in any namespace of any cluster.
    pub(crate) fn on(cluster: &Cluster, namespace: &str) -> Result<Self> {
        Ok(Self {
            program: windlass_cluster::matching_kubectl()?,
            kubeconfig: cluster.kubeconfig()?,
            namespace: namespace.to_owned(),
            home: tempfile::tempdir()?,
            editor: "false",
        })
    }

    /// The same as another user.
    pub(crate) fn for_user(self, user: &User) -> Result<Self> {
        let kubeconfig = user.kubeconfig()?;
        Ok(Self { kubeconfig, ..self })
    }

    /// The same with a bearer token and nothing else.
    pub(crate) fn with_token(self, token: &str) -> Result<Self> {
        let mut config: Value = serde_json::from_slice(&std::fs::read(&self.kubeconfig)?)?;
        config["users"][0]["user"] = json!({"token": token});
        let kubeconfig = self.home.path().join("token.kubeconfig");
        std::fs::write(&kubeconfig, config.to_string())?;
        Ok(Self { kubeconfig, ..self })
    }

    /// The same with something that `edit` opens files in.
    pub(crate) fn editor(self, editor: &'static str) -> Self {
        Self { editor, ..self }
    }

    /// Runs a command line. Arguments are separated by blanks; `'one with blanks'` is quoted.
    pub(crate) async fn run(&self, line: &str) -> Result<Said> {
        self.feed(line, "").await
    }

    /// The same with something on its standard input, for `-f -`.
    pub(crate) async fn feed(&self, line: &str, input: &str) -> Result<Said> {
        let mut child = self.spawn(line)?;
        let mut stdin = child.stdin.take().context("piped")?;
        // A command that reads nothing may be gone before it is written to.
        stdin.write_all(input.as_bytes()).await.ok();
        drop(stdin);
        let output = tokio::time::timeout(LIMIT, child.wait_with_output())
            .await
            .with_context(|| format!("`kubectl {line}` did not end"))??;
        Ok(Said {
            line: line.to_owned(),
            code: output.status.code(),
            out: String::from_utf8(output.stdout)?,
            err: String::from_utf8(output.stderr)?,
        })
    }

    /// What a command that must succeed prints.
    pub(crate) async fn ok(&self, line: &str) -> Result<String> {
        self.run(line).await?.ok()
    }

    /// The same with something on its standard input.
    pub(crate) async fn ok_with(&self, line: &str, input: &str) -> Result<String> {
        self.feed(line, input).await?.ok()
    }

    /// Starts a command that prints lines until it is stopped.
    pub(crate) fn follow(&self, line: &str) -> Result<Following> {
        let mut child = self.spawn(line)?;
        let lines = BufReader::new(child.stdout.take().context("piped")?).lines();
        Ok(Following { _child: child, lines })
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

/// What a command said, and how it ended.
pub(crate) struct Said {
    line: String,
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// Its output, if it succeeded.
    pub(crate) fn ok(self) -> Result<String> {
        ensure!(
            self.code == Some(0),
            "`kubectl {}` ended with {:?}: {}{}",
            self.line,
            self.code,
            self.out,
            self.err
        );
        Ok(self.out)
    }

    /// It ended with this code and complained in exactly these words.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, complaint: &str) {
        let Self { line, out, err, .. } = &self;
        assert_eq!(self.code, Some(code), "`kubectl {line}`: {out}{err}");
        assert_eq!(err.trim_end(), complaint, "`kubectl {line}`");
    }
}

/// A command that goes on until this is dropped.
pub(crate) struct Following {
    _child: Child,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Following {
    pub(crate) async fn next(&mut self) -> Result<String> {
        tokio::time::timeout(LIMIT, self.lines.next_line())
            .await
            .context("no line came")??
            .context("the command ended")
    }
}

/// A table's cells. The column `AGE` is left out: it depends on when one looks.
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

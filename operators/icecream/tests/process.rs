//! The program from the outside: its log, and how it stops.

use std::{process::Stdio, time::Duration};

use anyhow::Context as _;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStderr, Command},
    time::timeout,
};
use windlass::{
    kube::{Api, api::PostParams},
    prelude::*,
    runtime::{CrdInstaller, Writer},
};
use windlass_cluster::Cluster;
use windlass_icecream::Icecream;

/// Longer than any step takes, so that only a hang exceeds it.
const DEADLINE: Duration = Duration::from_secs(30);

/// The running program and its log.
struct Program {
    process: Child,
    log: Lines<BufReader<ChildStderr>>,
}

impl Program {
    fn start(kubeconfig: &str) -> anyhow::Result<Self> {
        let mut process = Command::new(env!("CARGO_BIN_EXE_icecream"))
            .args([
                "--kubeconfig",
                kubeconfig,
                "--no-listen",
                "--install",
                "--log-format",
                "json",
            ])
            .env_clear()
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let log = process.stderr.take().context("it is piped")?;
        Ok(Self {
            process,
            log: BufReader::new(log).lines(),
        })
    }

    /// Reads the log up to this message, and returns its entry.
    async fn logs(&mut self, message: &str) -> anyhow::Result<Value> {
        let mut seen = Vec::new();
        let found = timeout(DEADLINE, async {
            while let Some(line) = self.log.next_line().await? {
                let line: Value = serde_json::from_str(&line)?;
                if text(&line).contains(&format!("\"{message}\"")) {
                    return anyhow::Ok(Some(line));
                }
                seen.push(line);
            }
            Ok(None)
        });
        let found = found.await.ok().transpose()?.flatten();
        found.with_context(|| format!("`{message}` is not logged, but {seen:#?}"))
    }

    async fn signal(&self, signal: &str) -> anyhow::Result<()> {
        let id = self.process.id().context("it runs")?.to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status().await?;
        anyhow::ensure!(sent.success(), "cannot signal the process");
        Ok(())
    }
}

fn text(line: &Value) -> String {
    line.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn lifecycle_is_logged_in_order() -> anyhow::Result<()> {
    let cluster = Cluster::embedded().start().await?;
    let kubeconfig = cluster.kubeconfig()?;
    let mut program = Program::start(kubeconfig.to_str().context("text")?)?;
    for step in [
        "setting up event handlers",
        "starting",
        "waiting for caches",
        "starting workers",
        "started workers",
    ] {
        let line = program.logs(step).await?;
        assert!(text(&line).contains("icecream"), "{line}");
    }
    let installed = CrdInstaller::new([Icecream::crd()])
        .run(&Writer::new(cluster.client(), "test"))
        .await;
    installed?;
    let example: Icecream = serde_yaml_ng::from_str(include_str!("../example.yaml"))?;
    Api::default_namespaced(cluster.client())
        .create(&PostParams::default(), &example)
        .await?;
    let synced = program.logs("synced").await?;
    assert!(text(&synced).contains("default/example-icecream"), "{synced}");
    program
        .logs("synced")
        .await
        .context("the reconcile caused by the status write")?;
    program.signal("INT").await?;
    program.logs("shutting down workers").await?;
    program.logs("stopped").await?;
    let ended = timeout(DEADLINE, program.process.wait()).await??;
    assert_eq!(ended.code(), Some(0));
    cluster.stop().await;
    Ok(())
}

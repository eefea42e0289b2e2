//! The process of the embedded server that contenders use.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::Context;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, Command},
};
use windlass_cluster::{Cluster, Embedded, InProcessWebhook};

use crate::allow;

/// Argument that makes this program the server.
pub const SERVE: &str = "serve";

/// Starts the server in a process of this program, which is killed on drop. Returns it with the path of the kubeconfig
/// and the start time that it reports.
pub async fn start() -> anyhow::Result<(Child, String, Duration)> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(SERVE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = child.stdout.take().context("piped")?;
    let line = BufReader::new(output).lines().next_line().await?;
    let line = line.context("the server process exited before it served")?;
    let (kubeconfig, micros) = line
        .split_once('\t')
        .context("invalid output of the server process")?;
    Ok((
        child,
        kubeconfig.to_owned(),
        Duration::from_micros(micros.parse()?),
    ))
}

/// The embedded cluster that is measured, whose webhook is asked by those configurations that name it.
pub fn embedded() -> Embedded {
    let webhook = InProcessWebhook::new(tower::service_fn(allow::answer));
    Cluster::embedded().webhook(allow::HOST, webhook)
}

/// Serves until the process is killed or its parent exits. Prints the path of the kubeconfig and the start time in
/// microseconds.
pub fn serve() -> anyhow::Result<()> {
    let started = Instant::now();
    tokio::runtime::Runtime::new()?.block_on(async {
        let cluster = embedded().start().await?;
        let took = started.elapsed();
        println!("{}\t{}", cluster.kubeconfig()?.display(), took.as_micros());
        tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
        anyhow::Ok(())
    })
}

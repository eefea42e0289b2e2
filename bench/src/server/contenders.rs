//! The servers, started from nothing.

use std::{
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use futures::future::LocalBoxFuture;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};
use windlass_cluster::Cluster;

use windlass_bench::processes;

use super::{loads::Load, wire::Wire};

/// What ours are compared with.
pub(super) const RIVAL: &str = "kube-apiserver";

/// A running server.
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) client: Client,
    wire: Wire,
    /// Whose memory is its memory; empty for a server in this process, which has the client's too.
    pub(super) processes: Vec<u32>,
    /// What the server's own process says that its start took.
    pub(super) start_inside: Option<Duration>,
    running: Running,
}

/// Owns what was started.
enum Running {
    Process(Child),
    Cluster(Cluster),
}

/// A way to start a server; `None` where this machine does not have it.
type Start = fn() -> LocalBoxFuture<'static, anyhow::Result<Option<(Contender, Duration)>>>;

/// In the order of the tables.
pub(super) const STARTS: [Start; 3] = [
    || Box::pin(async { process().await.map(Some) }),
    || Box::pin(real()),
    || Box::pin(async { in_process().await.map(Some) }),
];

/// One of each, with the namespaces that the loads work in.
pub(super) async fn start_all() -> anyhow::Result<Vec<Contender>> {
    let mut contenders = Vec::new();
    for start in STARTS {
        if let Some((contender, _)) = start().await? {
            let load = contender.load();
            for namespace in ["few", "many", "small"] {
                load.namespace(namespace).await?;
            }
            contenders.push(contender);
        }
    }
    Ok(contenders)
}

impl Contender {
    pub(super) fn load(&self) -> Load {
        Load::new(self.client.clone(), self.wire.clone())
    }

    pub(super) fn megabytes(&self) -> anyhow::Result<f64> {
        ensure!(
            !self.processes.is_empty(),
            "{} has no process of its own",
            self.name
        );
        self.processes
            .iter()
            .map(|process| processes::resident_megabytes(*process))
            .sum()
    }

    /// How long its processes have been computing; `None` where it has none of its own.
    pub(super) fn cpu_micros(&self) -> Option<f64> {
        let used = self
            .processes
            .iter()
            .map(|process| processes::cpu_micros(*process).ok());
        used.sum::<Option<f64>>().filter(|_| !self.processes.is_empty())
    }

    pub(super) fn forget_peak(&self) {
        self.processes
            .iter()
            .for_each(|process| processes::forget_peak(*process));
    }

    pub(super) fn peak_megabytes(&self) -> Option<f64> {
        let peaks = self
            .processes
            .iter()
            .map(|process| processes::peak_megabytes(*process).ok());
        peaks.sum::<Option<f64>>().filter(|_| !self.processes.is_empty())
    }

    pub(super) async fn stop(self) {
        match self.running {
            Running::Process(mut child) => {
                child.kill().await.ok();
            }
            Running::Cluster(cluster) => cluster.stop().await,
        }
    }
}

async fn process() -> anyhow::Result<(Contender, Duration)> {
    let started = Instant::now();
    let mut child = Command::new(std::env::current_exe()?)
        .arg(windlass_bench::serve::SERVE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = child.stdout.take().context("piped")?;
    let line = BufReader::new(output).lines().next_line().await?;
    let line = line.context("the server's process ended")?;
    let (kubeconfig, micros) = line.split_once('\t').context("a path and a time")?;
    let (client, wire) = client(kubeconfig.into()).await?;
    ready(&client).await?;
    let took = started.elapsed();
    let contender = Contender {
        name: "windlass",
        client,
        wire,
        processes: vec![child.id().context("a process that runs")?],
        start_inside: Some(Duration::from_micros(micros.parse()?)),
        running: Running::Process(child),
    };
    Ok((contender, took))
}

async fn real() -> anyhow::Result<Option<(Contender, Duration)>> {
    let real = Cluster::real();
    if let Err(reason) = real.available() {
        println!("These are our figures alone: {reason}.");
        return Ok(None);
    }
    let started = Instant::now();
    let cluster = real.start().await?;
    let took = started.elapsed();
    let kubeconfig = cluster.kubeconfig()?;
    let (client, wire) = client(kubeconfig.clone()).await?;
    let contender = Contender {
        name: RIVAL,
        client,
        wire,
        processes: processes::processes_of(kubeconfig.parent().context("in a folder")?),
        start_inside: None,
        running: Running::Cluster(cluster),
    };
    Ok(Some((contender, took)))
}

async fn in_process() -> anyhow::Result<(Contender, Duration)> {
    let started = Instant::now();
    let cluster = Cluster::embedded().start().await?;
    ready(&cluster.client()).await?;
    let took = started.elapsed();
    let contender = Contender {
        name: "windlass in-process",
        client: cluster.client(),
        wire: Wire::Inside(cluster.client()),
        processes: Vec::new(),
        start_inside: None,
        running: Running::Cluster(cluster),
    };
    Ok((contender, took))
}

/// The same client for every server that has a socket.
async fn client(kubeconfig: PathBuf) -> anyhow::Result<(Client, Wire)> {
    let mut config =
        Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &KubeConfigOptions::default())
            .await?;
    config.proxy_url = None;
    Ok((Client::try_from(config.clone())?, Wire::Https(Box::new(config))))
}

async fn ready(client: &Client) -> anyhow::Result<()> {
    let said = client
        .request_text(http::Request::get("/readyz").body(Vec::new())?)
        .await?;
    ensure!(said == "ok", "/readyz says {said}");
    Ok(())
}

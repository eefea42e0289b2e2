//! Starts the servers.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use futures::future::LocalBoxFuture;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::process::Child;
use windlass_cluster::Cluster;

use windlass_bench::{processes, serve};

use super::{loads::Load, transport::Transport};

/// The contender that ours are compared with.
pub(super) const RIVAL: &str = "kube-apiserver";

/// A running server.
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) client: Client,
    transport: Transport,
    /// Processes of the server; empty for a server in this process, whose memory includes the client's.
    pub(super) processes: Vec<u32>,
    /// Start time reported by the server process.
    pub(super) reported_start: Option<Duration>,
    running: Running,
}

/// The started process or cluster.
enum Running {
    Process(Child),
    Cluster(Cluster),
}

/// Starts a server; `None` if this machine does not have it.
type Start = fn() -> LocalBoxFuture<'static, anyhow::Result<Option<(Contender, Duration)>>>;

/// In the order of the tables.
pub(super) const STARTS: [Start; 3] = [
    || Box::pin(async { process().await.map(Some) }),
    || Box::pin(real()),
    || Box::pin(async { in_process().await.map(Some) }),
];

/// Starts one of each, with the namespaces for the loads.
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
        Load::new(self.client.clone(), self.transport.clone())
    }

    pub(super) fn megabytes(&self) -> anyhow::Result<f64> {
        ensure!(
            !self.processes.is_empty(),
            "{} does not run in a separate process",
            self.name
        );
        self.processes
            .iter()
            .map(|process| processes::resident_megabytes(*process))
            .sum()
    }

    /// Returns the CPU time of the server's processes; `None` for a server in this process.
    pub(super) fn cpu_micros(&self) -> Option<f64> {
        let used = self
            .processes
            .iter()
            .map(|process| processes::cpu_micros(*process).ok());
        used.sum::<Option<f64>>().filter(|_| !self.processes.is_empty())
    }

    pub(super) fn reset_peak(&self) {
        self.processes
            .iter()
            .for_each(|process| processes::reset_peak(*process));
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
    let (child, kubeconfig, reported_start) = serve::start().await?;
    let (client, transport) = client(kubeconfig.into()).await?;
    ready(&client).await?;
    let took = started.elapsed();
    let contender = Contender {
        name: "windlass",
        client,
        transport,
        processes: vec![child.id().context("the server process has exited")?],
        reported_start: Some(reported_start),
        running: Running::Process(child),
    };
    Ok((contender, took))
}

async fn real() -> anyhow::Result<Option<(Contender, Duration)>> {
    let real = Cluster::real();
    if let Err(reason) = real.available() {
        println!("Measuring only Windlass: {reason}.");
        return Ok(None);
    }
    let started = Instant::now();
    let cluster = real.start().await?;
    let took = started.elapsed();
    let kubeconfig = cluster.kubeconfig()?;
    let (client, transport) = client(kubeconfig.clone()).await?;
    let contender = Contender {
        name: RIVAL,
        client,
        transport,
        processes: processes::processes_of(
            kubeconfig
                .parent()
                .context("the kubeconfig has no parent folder")?,
        ),
        reported_start: None,
        running: Running::Cluster(cluster),
    };
    Ok(Some((contender, took)))
}

async fn in_process() -> anyhow::Result<(Contender, Duration)> {
    let started = Instant::now();
    let cluster = serve::embedded().start().await?;
    ready(&cluster.client()).await?;
    let took = started.elapsed();
    let contender = Contender {
        name: "windlass in-process",
        client: cluster.client(),
        transport: Transport::Inside(cluster.client()),
        processes: Vec::new(),
        reported_start: None,
        running: Running::Cluster(cluster),
    };
    Ok((contender, took))
}

/// Creates the client for servers with a socket.
async fn client(kubeconfig: PathBuf) -> anyhow::Result<(Client, Transport)> {
    let mut config =
        Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &KubeConfigOptions::default())
            .await?;
    config.proxy_url = None;
    Ok((
        Client::try_from(config.clone())?,
        Transport::Https(Box::new(config)),
    ))
}

async fn ready(client: &Client) -> anyhow::Result<()> {
    let text = client
        .request_text(http::Request::get("/readyz").body(Vec::new())?)
        .await?;
    ensure!(text == "ok", "/readyz returned {text}");
    Ok(())
}

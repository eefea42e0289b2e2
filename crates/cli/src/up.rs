//! `windlass up`: an embedded cluster until Ctrl-C.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Instant};

use windlass_cluster::Cluster;

use crate::{
    embedded::{self, KubeconfigFile, Speed},
    signals::Signals,
};

/// Flags of `windlass up`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Number of simulated nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=5000))]
    nodes: u16,

    /// Address to serve on; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Where to write the kubeconfig; never overwrites one of a running cluster, or a file that windlass did not write
    /// [default: a new file]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Speed of the simulated nodes relative to real ones: a number, or `instant`
    #[arg(long, value_name = "TIMES", default_value = "10")]
    speed: Speed,
}

/// Runs the cluster until SIGINT, SIGTERM or SIGHUP.
pub(crate) async fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let mut signals = Signals::new()?;
    let nodes = usize::from(arguments.nodes);
    let cluster = Cluster::embedded()
        .listen(arguments.listen)
        .nodes(nodes)
        .speed(arguments.speed.0);
    embedded::with_cluster(cluster, async |cluster| {
        let file = match &arguments.kubeconfig {
            Some(path) => KubeconfigFile::serve_at(cluster, path)?,
            None => KubeconfigFile::serve(cluster)?,
        };
        let ready = embedded::wait_until_ready(cluster.client(), nodes);
        signals
            .unless_stopped(ready, "before the nodes were ready")
            .await??;
        println!(
            "{}",
            file.export_line(cluster, nodes, "Ctrl-C", started.elapsed())
        );
        signals.next().await;
        Ok(ExitCode::SUCCESS)
    })
    .await
}

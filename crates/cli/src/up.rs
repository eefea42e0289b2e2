//! A cluster in a person's hands: started, announced, and kept until Ctrl-C.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Instant};

use windlass_cluster::Cluster;

use crate::{
    embedded::{self, Announced, Speed},
    signals::Signals,
};

/// How the cluster is to be.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many simulated nodes it has
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=5000))]
    nodes: u16,

    /// The address to serve on; port 0 is a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Where to put the kubeconfig; a file that is somebody else's is not touched [default: a new file]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// How much faster than real the nodes are: a number, or `instant`
    #[arg(long, value_name = "TIMES", default_value = "10")]
    speed: Speed,
}

/// Starts the cluster, and keeps it until SIGINT or SIGTERM.
pub(crate) async fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let mut signals = Signals::new()?;
    let nodes = usize::from(arguments.nodes);
    let cluster = Cluster::embedded()
        .listen(arguments.listen)
        .nodes(nodes)
        .speed(arguments.speed.0);
    embedded::within(cluster, async |cluster| {
        let mut file = Announced::serve(cluster)?;
        if let Some(path) = &arguments.kubeconfig {
            file = file.put(path)?;
        }
        let ready = embedded::ready(cluster.client(), nodes);
        signals.or(ready, "before the nodes were ready").await??;
        println!("{}", file.line(cluster, nodes, "Ctrl-C", started.elapsed()));
        signals.next().await;
        Ok(ExitCode::SUCCESS)
    })
    .await
}

//! The process of the embedded server, which other processes are measured on.

use std::time::Instant;

use tokio::io::AsyncReadExt;
use windlass_cluster::Cluster;

/// Makes this program that server.
pub const SERVE: &str = "serve";

/// Serves until it is killed or whoever started it is gone. Says where the kubeconfig is, and how many microseconds its start
/// took.
pub fn serve() -> anyhow::Result<()> {
    let started = Instant::now();
    tokio::runtime::Runtime::new()?.block_on(async {
        let cluster = Cluster::embedded().start().await?;
        let took = started.elapsed();
        println!("{}\t{}", cluster.kubeconfig()?.display(), took.as_micros());
        tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
        anyhow::Ok(())
    })
}

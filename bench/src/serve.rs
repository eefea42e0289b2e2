//! The process of the embedded server that contenders use.

use std::time::Instant;

use tokio::io::AsyncReadExt;
use windlass_cluster::Cluster;

/// Argument that makes this program the server.
pub const SERVE: &str = "serve";

/// Serves until the process is killed or its parent exits. Prints the path of the kubeconfig and the start time in
/// microseconds.
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

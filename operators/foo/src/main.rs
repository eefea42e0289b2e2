//! Runs the sample controller against the cluster of the current kubeconfig, or the one it runs in.

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;
use windlass::prelude::{Client, Manager};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).init();
    let client = Client::try_default().await.context(
        "cannot find a cluster: set KUBECONFIG, write ~/.kube/config, or run inside a cluster with a service account",
    )?;
    Manager::new(client)
        .controller(windlass_foo::controller())
        .run()
        .await?;
    Ok(())
}

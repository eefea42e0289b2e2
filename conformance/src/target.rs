//! The servers that a scenario can run on, each behind the same client.

use anyhow::Result;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use windlass_apiserver::Server;
use windlass_cluster::Cluster;

/// kube-apiserver and etcd, without controllers: nobody but the scenario writes. Its admission is that of every cluster.
pub async fn real() -> Result<Cluster> {
    Ok(Cluster::real().service_accounts().start().await?)
}

/// A client that hands on every answer as it comes: one that tries again would hide the first.
pub async fn client(cluster: &Cluster) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()?)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}

/// A new embedded server, in this process and without a socket.
pub fn embedded() -> Client {
    Client::new(Server::new(), "default")
}

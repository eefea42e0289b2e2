//! The servers that a scenario can run on, each behind the same client.

use anyhow::Result;
use kube::Client;
use windlass_apiserver::Server;
use windlass_cluster::Cluster;

/// kube-apiserver and etcd, without controllers: nobody but the scenario writes.
pub async fn real() -> Result<Cluster> {
    Ok(Cluster::real().start().await?)
}

/// A new embedded server, in this process and without a socket.
pub fn embedded() -> Client {
    Client::new(Server::new(), "default")
}

//! A kube-apiserver with pods.

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{Api, Client, ResourceExt, api::PostParams};
use serde_json::json;
use tokio::runtime::Runtime;
use windlass_bench::proxy::Proxy;
use windlass_cluster::Cluster;

use super::pods;

/// A control plane and a proxy to it, both stopped on drop.
pub(super) struct Pods {
    runtime: Runtime,
    running: Option<(Cluster, Proxy)>,
}

impl Pods {
    /// Starts a control plane and creates the pods. Returns `None`, and prints the reason, if this machine has none.
    pub(super) fn serve(pods: usize) -> anyhow::Result<Option<Self>> {
        let real = Cluster::real();
        if let Err(reason) = real.available() {
            eprintln!("skipping kube-apiserver: {reason}");
            return Ok(None);
        }
        let runtime = Runtime::new()?;
        let running = runtime.block_on(async {
            let cluster = real.start().await?;
            fill(&cluster.client(), pods).await?;
            let proxy = Proxy::open(cluster.client()).await?;
            anyhow::Ok((cluster, proxy))
        })?;
        Ok(Some(Self {
            runtime,
            running: Some(running),
        }))
    }

    pub(super) fn url(&self) -> String {
        let running = self.running.as_ref();
        running.map(|(_, proxy)| proxy.url()).unwrap_or_default()
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        if let Some((cluster, proxy)) = self.running.take() {
            self.runtime.block_on(async {
                drop(proxy);
                cluster.stop().await;
            });
        }
    }
}

async fn fill(client: &Client, count: usize) -> anyhow::Result<()> {
    let namespaces = (0..20).map(|team| json!({ "metadata": { "name": format!("team-{team}") } }));
    for namespace in namespaces {
        let namespace: Namespace = serde_json::from_value(namespace)?;
        Api::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await?;
    }
    let made = stream::iter(0..count).map(|number| async move {
        let mut pod: Pod = serde_json::from_value(pods::pod(number, 1))?;
        // Fields that only a server sets.
        pod.metadata.resource_version = None;
        pod.metadata.uid = None;
        let status = pod.status.take();
        let api = Api::<Pod>::namespaced(client.clone(), &pods::namespace(number));
        let mut made = api.create(&PostParams::default(), &pod).await?;
        made.status = status;
        api.replace_status(&made.name_any(), &PostParams::default(), &made)
            .await?;
        anyhow::Ok(())
    });
    made.buffer_unordered(16).try_collect().await
}

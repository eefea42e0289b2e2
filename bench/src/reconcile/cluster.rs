//! The server for all contenders, and its objects.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use super::{ALONE, NAMESPACE, OBJECTS, TRIGGER, object_name};

/// A process with the embedded server, killed on drop.
pub(super) struct Server {
    process: Child,
    pub(super) kubeconfig: String,
}

impl Server {
    /// Starts the server and creates the objects.
    pub(super) fn start() -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg(windlass_bench::serve::SERVE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let output = process.stdout.take().context("piped")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let (kubeconfig, _) = line.split_once('\t').context("the server process exited")?;
        let server = Self {
            process,
            kubeconfig: kubeconfig.to_owned(),
        };
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(async {
            let client = client(kubeconfig).await?;
            create_objects(&client, NAMESPACE, OBJECTS).await?;
            create_objects(&client, ALONE, 1).await
        })?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Creates the client of the Rust contenders.
pub(super) async fn client(kubeconfig: &str) -> anyhow::Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}

/// Creates the namespace, the ConfigMaps and the Secret.
pub(super) async fn create_objects(client: &Client, namespace: &str, objects: usize) -> anyhow::Result<()> {
    let post = PostParams::default();
    let made: Namespace = serde_json::from_value(json!({ "metadata": { "name": namespace } }))?;
    Api::all(client.clone()).create(&post, &made).await?;
    let trigger: Secret = serde_json::from_value(json!({ "metadata": { "name": TRIGGER } }))?;
    Api::namespaced(client.clone(), namespace)
        .create(&post, &trigger)
        .await?;
    let configs = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let made = stream::iter(0..objects).map(|number| {
        let configs = configs.clone();
        async move {
            let config: ConfigMap = serde_json::from_value(json!({
                "metadata": { "name": object_name(number), "labels": { "app": "bench", "tier": "web" } },
                "data": { "url": format!("https://example.com/{number}"), "mode": "plain", "level": "info" },
            }))?;
            configs.create(&PostParams::default(), &config).await?;
            anyhow::Ok(())
        }
    });
    made.buffer_unordered(32).try_collect().await
}

/// Changes an object with a merge patch.
pub(super) async fn merge<K>(client: &Client, name: &str, patch: Value) -> anyhow::Result<()>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let api = Api::<K>::namespaced(client.clone(), NAMESPACE);
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

//! What is asked of a server: plain requests, so that the client costs as little as it can.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt, stream};
use http::Request;
use kube::Client;
use serde_json::{Value, json};

use super::pods;

/// A client with work to do.
pub(super) struct Load {
    client: Client,
}

/// What came of a fan-out.
pub(super) struct FanOut {
    /// Events that watchers read, all watchers together.
    pub(super) delivered_per_second: f64,
    /// How much more memory the server had with all watchers than without, where it can be told.
    pub(super) memory: Option<f64>,
}

impl Load {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Creates a namespace in which pods can be made.
    pub(super) async fn namespace(&self, name: &str) -> anyhow::Result<()> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.post("/api/v1/namespaces", &namespace).await?;
        // Nobody else makes it, and a pod needs it.
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        self.post(&format!("/api/v1/namespaces/{name}/serviceaccounts"), &account)
            .await
    }

    /// Creates pods, `at_once` at a time. Returns how many per second.
    pub(super) async fn create(
        &self,
        namespace: &str,
        names: &[String],
        at_once: usize,
    ) -> anyhow::Result<f64> {
        let bodies: Vec<_> = names.iter().map(|name| pods::pod(name)).collect();
        self.post_all(&path(namespace, "pods"), &bodies, at_once).await
    }

    /// Creates small objects.
    pub(super) async fn create_small(
        &self,
        namespace: &str,
        names: &[String],
        at_once: usize,
    ) -> anyhow::Result<f64> {
        let bodies: Vec<_> = names.iter().map(|name| pods::config_map(name)).collect();
        self.post_all(&path(namespace, "configmaps"), &bodies, at_once)
            .await
    }

    async fn post_all(&self, path: &str, bodies: &[Value], at_once: usize) -> anyhow::Result<f64> {
        let bodies: Vec<_> = bodies.iter().map(Value::to_string).collect();
        rate(&bodies, at_once, async |body| {
            let request = Request::post(path).header("content-type", "application/json");
            self.send(request.body(body.clone().into_bytes())?).await
        })
        .await
    }

    /// Puts every pod anew with another label.
    pub(super) async fn update(
        &self,
        namespace: &str,
        names: &[String],
        at_once: usize,
    ) -> anyhow::Result<f64> {
        let path = path(namespace, "pods");
        let mut changed = Vec::with_capacity(names.len());
        for name in names {
            let text = self.text(&format!("{path}/{name}")).await?;
            let mut pod: Value = serde_json::from_str(&text)?;
            pod["metadata"]["labels"]["changed"] = "yes".into();
            changed.push((format!("{path}/{name}"), pod.to_string()));
        }
        rate(&changed, at_once, async |(path, body)| {
            let request = Request::put(path).header("content-type", "application/json");
            self.send(request.body(body.clone().into_bytes())?).await
        })
        .await
    }

    pub(super) async fn get(&self, namespace: &str, names: &[String], at_once: usize) -> anyhow::Result<f64> {
        let path = path(namespace, "pods");
        rate(names, at_once, async |name| {
            self.send(Request::get(format!("{path}/{name}")).body(Vec::new())?)
                .await
        })
        .await
    }

    /// Lists all pods of a namespace at once.
    pub(super) async fn list(&self, namespace: &str, expected: usize) -> anyhow::Result<Duration> {
        let request = Request::get(path(namespace, "pods")).body(Vec::new())?;
        let started = Instant::now();
        let mut lines = self.client.request_stream(request).await?;
        let mut bytes = 0;
        loop {
            let read = lines.fill_buf().await?.len();
            if read == 0 {
                break;
            }
            lines.consume_unpin(read);
            bytes += read;
        }
        let took = started.elapsed();
        ensure!(
            bytes > expected * 5_000,
            "a list of {bytes} bytes has no {expected} pods"
        );
        Ok(took)
    }

    /// Opens watches, then writes, and sees how long it takes until every watcher has read everything.
    pub(super) async fn fan_out(
        &self,
        namespace: &str,
        watchers: usize,
        events: usize,
        memory: impl Fn() -> Option<f64>,
    ) -> anyhow::Result<FanOut> {
        let path = path(namespace, "configmaps");
        self.namespace(namespace).await?;
        let list: Value = serde_json::from_str(&self.text(&path).await?)?;
        let version = list["metadata"]["resourceVersion"]
            .as_str()
            .context("a version")?;
        let before = memory();
        let target = format!("{path}?watch=true&resourceVersion={version}&timeoutSeconds=300");
        let start = |_| async {
            let request = Request::get(&target).body(Vec::new())?;
            anyhow::Ok(self.client.request_stream(request).await?.lines())
        };
        let streams: Vec<_> = stream::iter(0..watchers)
            .map(start)
            .buffer_unordered(16)
            .try_collect()
            .await?;
        let grown = memory().zip(before).map(|(after, before)| after - before);
        let readers: Vec<_> = streams
            .into_iter()
            .map(|mut lines| {
                tokio::spawn(async move {
                    for _ in 0..events {
                        lines.next().await.context("the watch ended")??;
                    }
                    anyhow::Ok(())
                })
            })
            .collect();
        let started = Instant::now();
        for name in pods::names(0, events) {
            self.post(&path, &pods::config_map(&name)).await?;
        }
        for reader in readers {
            reader.await??;
        }
        #[expect(clippy::cast_precision_loss, reason = "far below the 52 bits of a float")]
        let delivered = (watchers * events) as f64;
        Ok(FanOut {
            delivered_per_second: delivered / started.elapsed().as_secs_f64(),
            memory: grown,
        })
    }

    async fn post(&self, path: &str, object: &Value) -> anyhow::Result<()> {
        let request = Request::post(path).header("content-type", "application/json");
        self.send(request.body(object.to_string().into_bytes())?).await
    }

    async fn text(&self, path: &str) -> anyhow::Result<String> {
        Ok(self
            .client
            .request_text(Request::get(path).body(Vec::new())?)
            .await?)
    }

    pub(super) async fn send(&self, request: Request<Vec<u8>>) -> anyhow::Result<()> {
        let what = format!("{} {}", request.method(), request.uri());
        self.client.request_text(request).await.with_context(|| what)?;
        Ok(())
    }
}

fn path(namespace: &str, plural: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{plural}")
}

/// Does something with each item, `at_once` at a time. Returns how many per second.
pub(super) async fn rate<T>(
    items: &[T],
    at_once: usize,
    work: impl AsyncFn(&T) -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    let started = Instant::now();
    stream::iter(items)
        .map(|item| work(item))
        .buffer_unordered(at_once)
        .try_collect::<()>()
        .await?;
    #[expect(clippy::cast_precision_loss, reason = "far below the 52 bits of a float")]
    Ok(items.len() as f64 / started.elapsed().as_secs_f64())
}

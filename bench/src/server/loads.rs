//! Requests to a server, kept simple so that the client costs as little as possible.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt, stream};
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use tokio::{runtime, task::JoinSet};

use windlass_bench::{pods, processes};

use super::transport::{Prepared, Transport};

/// A load-generating client.
pub(super) struct Load {
    client: Client,
    transport: Transport,
}

/// Result of a fan-out.
pub(super) struct FanOut {
    /// Events read by all watchers together.
    pub(super) delivered_per_second: f64,
    /// Additional memory of the server with all watchers, if it can be measured.
    pub(super) memory: Option<f64>,
}

/// Throughput of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Throughput {
    pub(super) per_second: f64,
    /// CPU time of this process per request in microseconds, if it can be measured: the client's, and the server's if
    /// it is in this process.
    pub(super) client_cpu_micros: Option<f64>,
}

impl Load {
    pub(super) fn new(client: Client, transport: Transport) -> Self {
        Self { client, transport }
    }

    /// Creates a namespace with the service account that pods need.
    pub(super) async fn namespace(&self, name: &str) -> anyhow::Result<()> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.post("/api/v1/namespaces", &namespace).await?;
        // Pods need it, and no controller creates it.
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        self.post(&format!("/api/v1/namespaces/{name}/serviceaccounts"), &account)
            .await
    }

    /// Creates pods, `at_once` at a time.
    pub(super) async fn create(
        &self,
        namespace: &str,
        names: &[String],
        at_once: usize,
    ) -> anyhow::Result<Throughput> {
        let bodies: Vec<_> = names.iter().map(|name| pods::pod(name)).collect();
        self.post_all(&path(namespace, "pods"), &bodies, at_once).await
    }

    /// Creates small objects.
    pub(super) async fn create_small(
        &self,
        namespace: &str,
        names: &[String],
        at_once: usize,
    ) -> anyhow::Result<Throughput> {
        let bodies: Vec<_> = names.iter().map(|name| pods::config_map(name)).collect();
        self.post_all(&path(namespace, "configmaps"), &bodies, at_once)
            .await
    }

    async fn post_all(&self, path: &str, bodies: &[Value], at_once: usize) -> anyhow::Result<Throughput> {
        let requests = bodies
            .iter()
            .map(|body| post(path, body))
            .collect::<Result<_, _>>()?;
        self.rate(requests, at_once).await
    }

    /// Updates every pod with another label.
    pub(super) async fn update(
        &self,
        namespace: &str,
        names: &[String],
        at_once: usize,
    ) -> anyhow::Result<Throughput> {
        let path = path(namespace, "pods");
        let mut changed = Vec::with_capacity(names.len());
        for name in names {
            let text = self.text(&format!("{path}/{name}")).await?;
            let mut pod: Value = serde_json::from_str(&text)?;
            pod["metadata"]["labels"]["changed"] = "yes".into();
            let request = Request::put(format!("{path}/{name}")).header("content-type", "application/json");
            changed.push(request.body(pod.to_string().into_bytes())?);
        }
        self.rate(changed, at_once).await
    }

    pub(super) async fn get(
        &self,
        namespace: &str,
        names: &[String],
        at_once: usize,
    ) -> anyhow::Result<Throughput> {
        let path = path(namespace, "pods");
        let request = |name| Request::get(format!("{path}/{name}")).body(Vec::new());
        let requests = names.iter().map(request).collect::<Result<_, _>>()?;
        self.rate(requests, at_once).await
    }

    /// Lists all pods of a namespace in one request.
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
            "the list of {bytes} bytes does not have {expected} pods"
        );
        Ok(took)
    }

    /// Opens watches, then writes, and measures the time until every watcher has read all events.
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
            .context("the list has no resourceVersion")?;
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

    pub(super) async fn post(&self, path: &str, object: &Value) -> anyhow::Result<()> {
        self.client.request_text(post(path, object)?).await?;
        Ok(())
    }

    pub(super) async fn text(&self, path: &str) -> anyhow::Result<String> {
        Ok(self
            .client
            .request_text(Request::get(path).body(Vec::new())?)
            .await?)
    }

    /// Sends all requests, `at_once` at a time.
    pub(super) async fn rate(
        &self,
        requests: Vec<Request<Vec<u8>>>,
        at_once: usize,
    ) -> anyhow::Result<Throughput> {
        let prepared = requests
            .into_iter()
            .map(|request| self.transport.prepare(request));
        let prepared: Vec<_> = prepared.collect::<anyhow::Result<_>>()?;
        let transport = self.transport.clone();
        if let Transport::Inside(_) = &transport {
            return send_all(transport, prepared, at_once).await;
        }
        // A single-threaded client wakes no other threads and leaves the cores to the server.
        let client = move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(send_all(transport, prepared, at_once))
        };
        tokio::task::spawn_blocking(client).await?
    }
}

/// Sends all requests with `at_once` workers on the current runtime.
async fn send_all(
    transport: Transport,
    requests: Vec<Prepared>,
    at_once: usize,
) -> anyhow::Result<Throughput> {
    #[expect(clippy::cast_precision_loss, reason = "far below the 52 bits of a float")]
    let count = requests.len() as f64;
    let requests = Arc::new(Mutex::new(requests.into_iter()));
    let mut senders = Vec::with_capacity(at_once);
    for _ in 0..at_once {
        senders.push(transport.open().await?);
    }
    let own_cpu = || processes::cpu_micros(std::process::id()).ok();
    let before = own_cpu();
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for mut sender in senders {
        let requests = requests.clone();
        workers.spawn(async move {
            let next = || requests.lock().expect("not poisoned").next();
            while let Some(request) = next() {
                sender.send(request).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    let took = started.elapsed();
    Ok(Throughput {
        per_second: count / took.as_secs_f64(),
        client_cpu_micros: own_cpu().zip(before).map(|(now, before)| (now - before) / count),
    })
}

fn post(path: &str, object: &Value) -> http::Result<Request<Vec<u8>>> {
    Request::post(path)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())
}

fn path(namespace: &str, plural: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{plural}")
}

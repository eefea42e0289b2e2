//! The cases for kube-rs' watcher and reflector.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use kube_runtime::{
    WatchStreamExt,
    reflector::{self, ObjectRef, Store},
    watcher::{self, Event, watcher},
};
use tokio::{runtime::Builder, task::JoinHandle};
use windlass_bench::cases::Measurements;

use super::{
    EVENTS, allocated, average_nanos, client, cpu_seconds, events_per_second, memory::FIRST, memory::Source,
    node_name_length, synced,
};

pub(super) fn measure(case: &str, source: &str, pods: usize) -> anyhow::Result<Measurements> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match case {
            "sync" | "sync-real" => sync(source, pods).await,
            "events" => events(source, pods, 0).await,
            "events-of-few" => events(source, 500, 0).await,
            "events-10-readers" => events(source, pods, 10).await,
            "events-of-few-10-readers" => events(source, 500, 10).await,
            "get" => get(source, pods).await,
            "list" => list(source, pods).await,
            _ => bail!("unknown case `{case}`"),
        }
    })
}

/// Starts a reflector whose task ends with the update of this version.
fn follow(client: Client, last: Option<String>) -> (Store<Pod>, JoinHandle<()>) {
    let (reader, writer) = reflector::store();
    let events = watcher(Api::<Pod>::all(client), watcher::Config::default())
        .default_backoff()
        .reflect(writer);
    let task = tokio::spawn(async move {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            if let Ok(Event::Apply(pod)) = event
                && pod.metadata.resource_version == last
            {
                return;
            }
            tokio::task::consume_budget().await;
        }
    });
    (reader, task)
}

async fn sync(url: &str, pods: usize) -> anyhow::Result<Measurements> {
    let client = client(url)?;
    let (before, started, began) = (allocated(), cpu_seconds()?, Instant::now());
    let (store, _task) = follow(client, None);
    store.wait_until_ready().await?;
    let wall = began.elapsed().as_secs_f64();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let spent = cpu_seconds()? - started;
    anyhow::ensure!(store.len() == pods, "{} of {pods} pods", store.len());
    synced(pods, wall, spent, allocated() - before)
}

async fn events(file: &str, changing: usize, readers: usize) -> anyhow::Result<Measurements> {
    // A tenth of the events is enough, because each takes very long.
    let count = EVENTS / 10;
    let source = Source::read(file, changing, count)?;
    let (store, task) = follow(source.client(), Some((FIRST + count - 1).to_string()));
    store.wait_until_ready().await?;
    for reader in 0..readers {
        let store = store.clone();
        tokio::spawn(async move {
            let namespace = format!("team-{reader}");
            loop {
                black_box(of_namespace(&store, &namespace));
                tokio::task::yield_now().await;
            }
        });
    }
    let began = Instant::now();
    source.go.send_replace(true);
    task.await.context("the watch failed")?;
    Ok(events_per_second(began, count))
}

/// Scans all objects, because the store has no indexes.
fn of_namespace(store: &Store<Pod>, namespace: &str) -> Vec<Arc<Pod>> {
    let all = store.state().into_iter();
    all.filter(|pod| pod.metadata.namespace.as_deref() == Some(namespace))
        .collect()
}

async fn get(file: &str, pods: usize) -> anyhow::Result<Measurements> {
    let source = Source::read(file, pods, 0)?;
    let (store, _task) = follow(source.client(), None);
    store.wait_until_ready().await?;
    let keys: Vec<_> = store
        .state()
        .iter()
        .step_by(100)
        .map(|pod| ObjectRef::from_obj(&**pod))
        .collect();
    let rounds = 5000;
    let began = Instant::now();
    for _ in 0..rounds {
        for key in &keys {
            black_box(store.get(key).as_deref().map(node_name_length));
        }
    }
    Ok(average_nanos(began, rounds * keys.len()))
}

async fn list(file: &str, pods: usize) -> anyhow::Result<Measurements> {
    let source = Source::read(file, pods, 0)?;
    let (store, _task) = follow(source.client(), None);
    store.wait_until_ready().await?;
    let rounds = 50;
    let began = Instant::now();
    for _ in 0..rounds {
        let pods = of_namespace(&store, "team-7");
        black_box(pods.iter().map(|pod| node_name_length(pod)).sum::<usize>());
    }
    Ok(average_nanos(began, rounds))
}

//! kube-rs' watcher and reflector, case by case.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt,
        reflector::{self, ObjectRef, Store},
        watcher::{self, Event, watcher},
    },
};
use tokio::{runtime::Builder, task::JoinHandle};

use super::{EVENTS, Figures, PODS, allocated, client, cpu_seconds, memory::FIRST, memory::Source};

pub(super) fn measure(case: &str, source: &str) -> anyhow::Result<Figures> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match case {
            "sync" => sync(source).await,
            "events" => events(source, 0).await,
            "events-10-readers" => events(source, 10).await,
            "get" => get(source).await,
            _ => bail!("no case `{case}`"),
        }
    })
}

/// A reflector whose task ends when an update has this version.
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

async fn sync(url: &str) -> anyhow::Result<Figures> {
    let client = client(url)?;
    let (before, started) = (allocated(), cpu_seconds()?);
    let (store, _task) = follow(client, None);
    store.wait_until_ready().await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let spent = cpu_seconds()? - started;
    let count = f64::from(u32::try_from(store.len())?);
    Ok(Figures {
        retained: (allocated() - before) / count,
        sync_cpu: spent * 1e6 / count,
        ..Figures::default()
    })
}

async fn events(file: &str, readers: usize) -> anyhow::Result<Figures> {
    // It takes so long for each that a tenth of them tells enough.
    let count = EVENTS / 10;
    let source = Source::read(file, PODS, count)?;
    let (store, task) = follow(source.client(), Some((FIRST + count - 1).to_string()));
    store.wait_until_ready().await?;
    for reader in 0..readers {
        let store = store.clone();
        tokio::spawn(async move {
            let namespace = Some(format!("team-{reader}"));
            loop {
                let found: Vec<_> = store
                    .state()
                    .into_iter()
                    .filter(|pod| pod.metadata.namespace == namespace)
                    .collect();
                black_box(found);
                tokio::task::yield_now().await;
            }
        });
    }
    let start = Instant::now();
    source.go.send_replace(true);
    task.await.context("the watch")?;
    Ok(Figures {
        events: f64::from(u32::try_from(count)?) / start.elapsed().as_secs_f64(),
        ..Figures::default()
    })
}

#[expect(clippy::cast_precision_loss, reason = "a figure for a table")]
async fn get(file: &str) -> anyhow::Result<Figures> {
    let source = Source::read(file, PODS, 0)?;
    let (store, _task) = follow(source.client(), None);
    store.wait_until_ready().await?;
    let keys: Vec<_> = store
        .state()
        .iter()
        .step_by(100)
        .map(|pod| ObjectRef::from_obj(&**pod))
        .collect();
    let rounds = 5000;
    let start = Instant::now();
    for _ in 0..rounds {
        for key in &keys {
            black_box(store.get(key));
        }
    }
    Ok(Figures {
        get: start.elapsed().as_secs_f64() * 1e9 / (rounds * keys.len()) as f64,
        ..Figures::default()
    })
}

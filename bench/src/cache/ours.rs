//! The cases for our cache.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::bail;
use k8s_openapi::api::core::v1::Pod;
use tokio::runtime::Builder;
use windlass_bench::cases::Measurements;
use windlass_cache::{Cache, Indexer, Lister, ObjectKey, Query, Settings, WatchScope};

use super::{
    EVENTS, allocated, average_nanos, client, cpu_seconds, events_per_second, memory::FIRST, memory::Source,
    node_name_length, synced,
};

/// Limit for every wait, longer than any takes on a busy machine.
const DEADLINE: Duration = Duration::from_mins(5);

pub(super) fn measure(full: bool, case: &str, source: &str, pods: usize) -> anyhow::Result<Measurements> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let settings = if full { Settings::full } else { Settings::compact };
    runtime.block_on(async {
        match case {
            "sync" | "sync-real" => sync(source, settings(), pods).await,
            "events" => events(source, pods, 0).await,
            "events-of-few" => events(source, 500, 0).await,
            "events-10-readers" => events(source, pods, 10).await,
            "events-of-few-10-readers" => events(source, 500, 10).await,
            "get" => get(source, pods).await,
            "get-cold" => get_cold(source, pods).await,
            "index" => index(source, pods).await,
            "list" => list(source, pods).await,
            _ => bail!("unknown case `{case}`"),
        }
    })
}

async fn sync(url: &str, settings: Settings<Pod>, pods: usize) -> anyhow::Result<Measurements> {
    let client = client(url)?;
    let (before, started, began) = (allocated(), cpu_seconds()?, Instant::now());
    let cache = Cache::start_with(client, &(), &WatchScope::all(), settings);
    let lister = cache.synced(DEADLINE).await?;
    let wall = began.elapsed().as_secs_f64();
    // The cache packs fresh objects when idle; that is part of the cost.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let spent = cpu_seconds()? - started;
    anyhow::ensure!(lister.len() == pods, "{} of {pods} pods", lister.len());
    synced(pods, wall, spent, allocated() - before)
}

async fn start(source: &Source, settings: Settings<Pod>) -> anyhow::Result<Lister<Pod>> {
    let cache = Cache::start_with(source.client(), &(), &WatchScope::all(), settings);
    let lister = cache.synced(DEADLINE).await?;
    // Objects count as settled after a second, and packing takes a fraction of one.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(lister)
}

async fn events(file: &str, changing: usize, readers: usize) -> anyhow::Result<Measurements> {
    let source = Source::read(file, changing, EVENTS)?;
    let lister = start(&source, Settings::compact()).await?;
    let mut changes = lister.subscribe();
    let mut initial = changes.synced();
    let subscriber = tokio::spawn(async move {
        let mut count = 0_usize;
        while let Some(change) = changes.next().await {
            black_box(change.key());
            count += 1;
            tokio::task::consume_budget().await;
        }
        count
    });
    initial.wait().await;
    for reader in 0..readers {
        let lister = lister.clone();
        tokio::spawn(async move {
            let query = Query::all().namespace(format!("team-{reader}"));
            loop {
                black_box(lister.list_cached(&query));
                tokio::task::yield_now().await;
            }
        });
    }
    let began = Instant::now();
    source.go.send_replace(true);
    let last = u64::try_from(FIRST + EVENTS - 1)?;
    anyhow::ensure!(
        lister.wait_for_resource_version(last, DEADLINE).await,
        "timed out waiting for the events"
    );
    let measurements = events_per_second(began, EVENTS);
    subscriber.abort();
    Ok(measurements)
}

async fn get(file: &str, pods: usize) -> anyhow::Result<Measurements> {
    let source = Source::read(file, pods, 0)?;
    let lister = start(&source, Settings::compact()).await?;
    let keys = keys(&lister, 200);
    let rounds = 5000;
    for key in &keys {
        black_box(lister.get(key));
    }
    let began = Instant::now();
    for _ in 0..rounds {
        for key in &keys {
            black_box(lister.get(key).as_deref().map(node_name_length));
        }
    }
    Ok(average_nanos(began, rounds * keys.len()))
}

async fn get_cold(file: &str, pods: usize) -> anyhow::Result<Measurements> {
    let source = Source::read(file, pods, 0)?;
    let lister = start(&source, Settings::compact().decoded_budget(0)).await?;
    let keys = keys(&lister, 5000);
    let began = Instant::now();
    for key in &keys {
        black_box(lister.get(key).as_deref().map(node_name_length));
    }
    Ok(average_nanos(began, keys.len()))
}

/// Reads the pods of a service by index, for a hundred services in turn.
async fn index(file: &str, pods: usize) -> anyhow::Result<Measurements> {
    let source = Source::read(file, pods, 0)?;
    let lister = start(&source, Settings::compact()).await?;
    let index = lister.cache().index(Indexer::label(super::pods::SERVICE));
    let services: Vec<String> = (0..100).map(super::pods::service).collect();
    for service in &services {
        anyhow::ensure!(
            lister.by_index(&index, service).len() == super::pods::REPLICAS,
            "{service}"
        );
    }
    let rounds = 1000;
    let began = Instant::now();
    for _ in 0..rounds {
        for service in &services {
            black_box(used(&lister.by_index(&index, service)));
        }
    }
    Ok(average_nanos(began, rounds * services.len()))
}

async fn list(file: &str, pods: usize) -> anyhow::Result<Measurements> {
    let source = Source::read(file, pods, 0)?;
    let lister = start(&source, Settings::compact()).await?;
    let query = Query::all().namespace("team-7");
    black_box(lister.list(&query));
    let rounds = 200;
    let began = Instant::now();
    for _ in 0..rounds {
        black_box(used(&lister.list(&query)));
    }
    Ok(average_nanos(began, rounds))
}

fn used(pods: &[Arc<Pod>]) -> usize {
    pods.iter().map(|pod| node_name_length(pod)).sum()
}

/// Returns keys spread over the store.
fn keys(lister: &Lister<Pod>, count: usize) -> Vec<ObjectKey> {
    let all = lister.list_cached(&Query::all());
    all.iter()
        .step_by(all.len() / count)
        .take(count)
        .map(|stored| stored.key().clone())
        .collect()
}

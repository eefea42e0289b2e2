//! Ours, case by case.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use anyhow::bail;
use k8s_openapi::api::core::v1::Pod;
use tokio::runtime::Builder;
use windlass_cache::{Cache, Lister, ObjectKey, Query, Selection, Settings};

use super::{EVENTS, Figures, PODS, allocated, client, cpu_seconds, memory::FIRST, memory::Source};

/// Longer than anything here takes on a busy machine.
const DEADLINE: Duration = Duration::from_mins(5);

pub(super) fn measure(case: &str, source: &str) -> anyhow::Result<Figures> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match case {
            "sync" => sync(source).await,
            "events" => events(source, PODS, 0).await,
            "events-of-few" => events(source, 500, 0).await,
            "events-10-readers" => events(source, PODS, 10).await,
            "events-of-few-10-readers" => events(source, 500, 10).await,
            "get" => get(source).await,
            "get-cold" => get_cold(source).await,
            _ => bail!("no case `{case}`"),
        }
    })
}

async fn sync(url: &str) -> anyhow::Result<Figures> {
    let client = client(url)?;
    let (before, started) = (allocated(), cpu_seconds()?);
    let cache = Cache::<Pod>::start(client, &Selection::all());
    let lister = cache.synced(DEADLINE).await?;
    // What is fresh is packed when it is quiet; that is part of the price.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let spent = cpu_seconds()? - started;
    let retained = allocated() - before;
    let count = f64::from(u32::try_from(lister.len())?);
    Ok(Figures {
        retained: retained / count,
        sync_cpu: spent * 1e6 / count,
        ..Figures::default()
    })
}

async fn start(source: &Source, settings: Settings<Pod>) -> anyhow::Result<Lister<Pod>> {
    let cache = Cache::start_with(source.client(), &(), &Selection::all(), settings);
    let lister = cache.synced(DEADLINE).await?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    Ok(lister)
}

async fn events(file: &str, changing: usize, readers: usize) -> anyhow::Result<Figures> {
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
                black_box(lister.list_stored(&query));
                tokio::task::yield_now().await;
            }
        });
    }
    let (start, started) = (Instant::now(), cpu_seconds()?);
    source.go.send_replace(true);
    let last = u64::try_from(FIRST + EVENTS - 1)?;
    anyhow::ensure!(lister.reaches(last, DEADLINE).await, "the events did not arrive");
    let count = f64::from(u32::try_from(EVENTS)?);
    let (took, spent) = (start.elapsed().as_secs_f64(), cpu_seconds()? - started);
    subscriber.abort();
    Ok(Figures {
        events: count / took,
        event_cpu: spent * 1e6 / count,
        ..Figures::default()
    })
}

async fn get(file: &str) -> anyhow::Result<Figures> {
    let source = Source::read(file, PODS, 0)?;
    let lister = start(&source, Settings::compact()).await?;
    let keys = keys(&lister, 200);
    let rounds = 5000;
    for key in &keys {
        black_box(lister.get(key));
    }
    let start = Instant::now();
    for _ in 0..rounds {
        for key in &keys {
            black_box(lister.get(key));
        }
    }
    Ok(per_get(start, rounds * keys.len()))
}

async fn get_cold(file: &str) -> anyhow::Result<Figures> {
    let source = Source::read(file, PODS, 0)?;
    let lister = start(&source, Settings::compact().hot_bytes(0)).await?;
    let keys = keys(&lister, 5000);
    let start = Instant::now();
    for key in &keys {
        black_box(lister.get(key));
    }
    Ok(per_get(start, keys.len()))
}

/// Spread over the store.
fn keys(lister: &Lister<Pod>, count: usize) -> Vec<ObjectKey> {
    let all = lister.list_stored(&Query::all());
    all.iter()
        .step_by(all.len() / count)
        .take(count)
        .map(|stored| stored.key().clone())
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "a figure for a table")]
fn per_get(start: Instant, gets: usize) -> Figures {
    Figures {
        get: start.elapsed().as_secs_f64() * 1e9 / gets as f64,
        ..Figures::default()
    }
}

//! Measures how fast an embedded cluster starts, and its cost when idle.
//!
//! ```text
//! cargo run --release -p windlass-bench --bin windlass-bench-cluster
//! ```
//!
//! A thousand simulated nodes and a hundred Deployments of a hundred pods, all in this process. No rival runs here,
//! because kwok needs a control plane; the ratio is to kwok's own limit of 10,000 pods in 60 s.

use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::json;
use windlass_bench::processes;
use windlass_cluster::{Cluster, Embedded};

// The same allocator as in the `windlass` program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of clusters to start for measuring the start time.
const STARTS: usize = 200;

const NODES: usize = 1_000;
const DEPLOYMENTS: usize = 100;
const PODS_EACH: usize = 100;

/// kwok's time limit for this number of pods.
const KWOK: Duration = Duration::from_mins(1);

/// How long the idle cluster is measured.
const IDLE: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    starts("start of an API server alone", Cluster::embedded).await?;
    starts("start with controllers and three ready nodes", || {
        Cluster::embedded().nodes(3)
    })
    .await?;

    let started = Instant::now();
    let cluster = Cluster::embedded().nodes(NODES).start().await?;
    report(&format!("{NODES} nodes are ready"), started, Duration::ZERO)?;

    let (began, before) = (Instant::now(), cpu()?);
    let api = Api::<Deployment>::namespaced(cluster.client(), "default");
    stream::iter(0..DEPLOYMENTS)
        .map(|number| create(&api, number))
        .buffer_unordered(16)
        .try_collect::<Vec<_>>()
        .await?;
    while available(&api).await? < DEPLOYMENTS * PODS_EACH {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let pods = DEPLOYMENTS * PODS_EACH;
    report(
        &format!("{pods} pods of {DEPLOYMENTS} Deployments are available"),
        began,
        before,
    )?;
    println!(
        "{:>44}  {:.1}x faster than kwok's limit",
        "",
        KWOK.as_secs_f64() / began.elapsed().as_secs_f64()
    );

    tokio::time::sleep(Duration::from_secs(5)).await;
    let (began, before) = (Instant::now(), cpu()?);
    tokio::time::sleep(IDLE).await;
    report("idle, except for heartbeats", began, before)?;
    println!(
        "{:>44}  {:.1} % of a core",
        "",
        cpu()?.saturating_sub(before).as_secs_f64() / IDLE.as_secs_f64() * 100.0
    );
    cluster.stop().await;
    Ok(())
}

/// Prints the median and the worst of many starts.
async fn starts(what: &str, how: impl Fn() -> Embedded) -> anyhow::Result<()> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let started = Instant::now();
        let cluster = how().start().await?;
        times.push(started.elapsed());
        cluster.stop().await;
    }
    times.sort_unstable();
    println!(
        "{what:>44}  {:>6.2} ms (worst of {STARTS}: {:.2} ms)",
        times[STARTS / 2].as_secs_f64() * 1e3,
        times[STARTS - 1].as_secs_f64() * 1e3
    );
    Ok(())
}

async fn create(api: &Api<Deployment>, number: usize) -> anyhow::Result<()> {
    let name = format!("web-{number}");
    let labels = json!({ "app": name });
    let container = json!({ "name": "c", "image": "nginx", "resources": { "requests": { "cpu": "10m", "memory": "16Mi" } } });
    let deployment = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": PODS_EACH,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
        },
    }))?;
    api.create(&PostParams::default(), &deployment).await?;
    Ok(())
}

/// Returns the number of available replicas over all Deployments.
async fn available(api: &Api<Deployment>) -> anyhow::Result<usize> {
    let list = api.list(&ListParams::default()).await?;
    let counts = list
        .items
        .iter()
        .filter_map(|deployment| deployment.status.as_ref()?.available_replicas);
    Ok(counts.filter_map(|count| usize::try_from(count).ok()).sum())
}

fn report(what: &str, since: Instant, cpu_before: Duration) -> anyhow::Result<()> {
    println!(
        "{what:>44}  {:>6.2} s  {:>6.2} s of CPU  {:>5.0} MB",
        since.elapsed().as_secs_f64(),
        cpu()?.saturating_sub(cpu_before).as_secs_f64(),
        processes::resident_megabytes(std::process::id())?,
    );
    Ok(())
}

/// Returns the CPU time of this process.
fn cpu() -> anyhow::Result<Duration> {
    Ok(Duration::from_secs_f64(
        processes::cpu_micros(std::process::id())? / 1e6,
    ))
}

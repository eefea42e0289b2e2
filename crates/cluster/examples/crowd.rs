//! Measures an embedded cluster with many nodes: `cargo run --release --example crowd -- 1000 10000`.
//!
//! Prints how long nodes and pods take to be ready, with what processor time and memory, and what the cluster costs when
//! nothing happens. Figures, not a test.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::{
    Api,
    api::{PostParams, WatchEvent, WatchParams},
};
use serde_json::json;
use windlass_cluster::Cluster;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse::<usize>());
    let nodes = numbers.next().transpose()?.unwrap_or(1000);
    let pods = numbers.next().transpose()?.unwrap_or(10_000);

    let begun = Instant::now();
    let cluster = Cluster::embedded().nodes(nodes).start().await?;
    report(&format!("{nodes} nodes ready"), begun);

    let accounts = Api::<ServiceAccount>::default_namespaced(cluster.client());
    let mut account = ServiceAccount::default();
    account.metadata.name = Some("default".to_owned());
    match accounts.create(&PostParams::default(), &account).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        made => drop(made?),
    }
    let begun = Instant::now();
    let api = Api::<Pod>::default_namespaced(cluster.client());
    let mut changes = api
        .watch(&WatchParams::default().timeout(290), "0")
        .await?
        .boxed();
    let creating = tokio::spawn({
        let api = api.clone();
        async move {
            for number in 0..pods {
                let pod: Pod = serde_json::from_value(json!({
                    "metadata": {"name": format!("pod-{number}"), "labels": {"app": "crowd"}},
                    "spec": {"containers": [{
                        "name": "web", "image": "nginx", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
                    }]},
                }))?;
                api.create(&PostParams::default(), &pod).await?;
            }
            anyhow::Ok(Instant::now())
        }
    });
    let mut ready = HashSet::new();
    while ready.len() < pods {
        let Some(change) = changes.next().await else {
            anyhow::bail!("the watch ended with {} pods ready", ready.len());
        };
        if let WatchEvent::Added(pod) | WatchEvent::Modified(pod) = change? {
            let conditions = pod
                .status
                .iter()
                .flat_map(|status| status.conditions.iter().flatten());
            if conditions
                .into_iter()
                .any(|c| c.type_ == "Ready" && c.status == "True")
            {
                ready.insert(pod.metadata.name.unwrap_or_default());
            }
        }
    }
    let created = creating.await??;
    println!("{pods} pods created in {:.2} s", (created - begun).as_secs_f64());
    report(&format!("{pods} pods ready"), begun);
    drop(changes);

    tokio::time::sleep(Duration::from_secs(20)).await;
    let (before, idle) = (processor_time(), Instant::now());
    tokio::time::sleep(Duration::from_secs(40)).await;
    let spent = processor_time().saturating_sub(before);
    println!(
        "idle: {:.2} % of a core",
        100.0 * spent.as_secs_f64() / idle.elapsed().as_secs_f64()
    );
    cluster.stop().await;
    Ok(())
}

fn report(what: &str, since: Instant) {
    println!(
        "{what} after {:.2} s; processor time so far {:.2} s; {} MiB",
        since.elapsed().as_secs_f64(),
        processor_time().as_secs_f64(),
        resident_mebibytes()
    );
}

/// From `/proc/self/stat`, in ticks of 10 ms.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<_> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |index: usize| {
        fields
            .get(index)
            .and_then(|field| field.parse::<u64>().ok())
            .unwrap_or(0)
    };
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

fn resident_mebibytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) / 1024
}

//! Many embedded clusters in one process: stopped or dropped, they leave no tasks and no threads.

mod cluster_with_nodes;

use std::{fs, time::Duration};

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::runtime::Handle;
use windlass_cluster::Cluster;

const CLUSTERS: usize = 60;

/// Starts a cluster with nodes and runs a pod on it.
async fn use_one(name: &str) -> Result<Cluster> {
    let cluster = cluster_with_nodes::start(Cluster::embedded().nodes(2)).await?;
    let pod = cluster_with_nodes::pod(name, json!({}));
    cluster_with_nodes::create_and_watch(&cluster_with_nodes::pods(&cluster), &pod, |pod| {
        pod["status"]["phase"] == "Running"
    })
    .await?;
    Ok(cluster)
}

/// Returns the number of threads of this process.
fn threads() -> Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

#[tokio::test(start_paused = true)]
async fn many_clusters_leave_no_tasks_or_threads() -> Result<()> {
    // The first one may start shared tasks or threads.
    use_one("first").await?.stop().await;
    let (tasks, threads_before) = (Handle::current().metrics().num_alive_tasks(), threads()?);
    for number in 0..CLUSTERS {
        let cluster = use_one("web").await?;
        // A cluster that is dropped without a stop leaves nothing either.
        if number % 2 == 0 {
            cluster.stop().await;
        } else {
            drop(cluster);
        }
    }
    // Cancelled tasks end when they are polled next.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let left = Handle::current().metrics().num_alive_tasks();
    ensure!(left <= tasks, "{left} tasks are left, {tasks} before");
    // Threads end in real time, not on the paused clock.
    for _ in 0..100 {
        if threads()? <= threads_before {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let left = threads()?;
    ensure!(
        left <= threads_before,
        "{left} threads are left, {threads_before} before"
    );
    Ok(())
}

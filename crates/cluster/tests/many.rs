//! Clusters by the hundred, as tests use them: each is gone without a trace, stopped or dropped.

mod lively;

use std::{fs, time::Duration};

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::runtime::Handle;
use windlass_cluster::Cluster;

const CLUSTERS: usize = 60;

/// A cluster with nodes, in which a pod gets one.
async fn use_one(name: &str) -> Result<Cluster> {
    let cluster = lively::start(Cluster::embedded().nodes(2)).await?;
    let pod = lively::pod(name, json!({}));
    lively::made(&lively::pods(&cluster), &pod, |pod| {
        pod["status"]["phase"] == "Running"
    })
    .await?;
    Ok(cluster)
}

/// The threads of this process.
fn threads() -> Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

#[tokio::test(start_paused = true)]
async fn clusters_come_and_go_by_the_hundred() -> Result<()> {
    // The first one may start what all of them share.
    use_one("first").await?.stop().await;
    let (tasks, threads_before) = (Handle::current().metrics().num_alive_tasks(), threads()?);
    for number in 0..CLUSTERS {
        let cluster = use_one("web").await?;
        // Who forgets to stop it, or panics, leaves nothing either.
        if number % 2 == 0 {
            cluster.stop().await;
        } else {
            drop(cluster);
        }
    }
    // What was dropped is told so, and ends at its next turn.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let left = Handle::current().metrics().num_alive_tasks();
    ensure!(left <= tasks, "{left} tasks are left, {tasks} were there");
    // Threads of the system end in its time, not in ours.
    for _ in 0..100 {
        if threads()? <= threads_before {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let left = threads()?;
    ensure!(
        left <= threads_before,
        "{left} threads are left, {threads_before} were there"
    );
    Ok(())
}

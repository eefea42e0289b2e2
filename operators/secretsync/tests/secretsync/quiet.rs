//! When everything is in sync, nothing is written.

use std::time::Duration;

use windlass::{k8s_openapi::api::core::v1::Secret, prelude::*, runtime::ElectionConfig};
use windlass_suite::{Context as Case, NetworkLink, RunningManager};

use crate::secretsync::test_cluster::{HOME, TestCluster, namespace_of, secret};

const SOURCES: usize = 5;
const NAMESPACES: usize = 8;

/// Sources of both front ends, in sync.
async fn prepare(env: &TestCluster) -> anyhow::Result<()> {
    for number in 0..SOURCES {
        env.source(&format!("token-{number}"), "1").await?;
    }
    env.in_namespace(HOME).create(secret("selected", "1")).await?;
    env.sync(HOME, "shared", json!({ "names": ["selected"] })).await?;
    for number in 0..NAMESPACES {
        env.consenting(&[&format!("ns-{number}")]).await?;
    }
    Ok(())
}

async fn all_there(env: &TestCluster) -> anyhow::Result<()> {
    let mut expected = Vec::new();
    let sources: Vec<_> = (0..SOURCES).map(|source| format!("token-{source}")).collect();
    for number in 0..NAMESPACES {
        for source in sources.iter().map(String::as_str).chain(["selected"]) {
            expected.push((format!("ns-{number}"), source, Some("1")));
        }
    }
    env.wait_for_copies(&expected).await?;
    env.wait_for_status(HOME, "shared", |status| {
        status.synced == u32::try_from(NAMESPACES).unwrap_or(0)
    })
    .await?;
    env.settle().await;
    Ok(())
}

/// An hour, a restart and a relist without a single write.
pub(crate) async fn nothing_is_written_when_all_is_in_sync(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    prepare(&env).await?;
    let line = NetworkLink::new(env.proxy().client());
    let running = RunningManager::start(env.new_manager_with(line.client()).await?);
    all_there(&env).await?;
    let copies = (SOURCES + 1) * NAMESPACES;
    let creates = env.copy_writes();
    assert_eq!(creates.len(), copies, "each once: {creates:?}");
    // A source is read once, not once per namespace.
    let reads = env.proxy().requests().into_iter();
    let reads = reads.filter(|sent| sent.access.verb == "get" && sent.resource() == "secrets");
    assert_eq!(reads.count(), SOURCES + 1);
    env.proxy().clear();
    env.let_time_pass().await;
    // The connection is lost, and the resource version has expired.
    line.disconnect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    env.proxy()
        .reject(6, http::StatusCode::GONE, |sent| sent.access.verb == "watch");
    line.reconnect();
    env.let_time_pass().await;
    assert_eq!(env.all_writes(), [""; 0]);
    running.stop().await?;
    env.proxy().clear();
    let running = env.start().await?;
    env.settle().await;
    env.let_time_pass().await;
    assert_eq!(env.all_writes(), [""; 0], "after a restart");
    let unrelated = secret("unrelated", "1");
    env.in_namespace("ns-0").create(unrelated).await?;
    env.in_namespace(HOME).create(secret("unrelated", "1")).await?;
    env.settle().await;
    assert_eq!(env.all_writes(), [""; 0], "after unrelated changes");
    running.stop().await
}

/// Only metadata is watched, of copies and possible sources; only sources are read with content.
pub(crate) async fn only_sources_are_read_with_content(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    prepare(&env).await?;
    env.in_namespace(HOME).create(secret("unrelated", "1")).await?;
    env.in_namespace("ns-0").create(secret("unrelated", "1")).await?;
    let shared = json!({ "sourceSelector": { "matchLabels": { "shared": "yes" } } });
    env.sync(HOME, "by-label", shared).await?;
    let running = env.start().await?;
    all_there(&env).await?;
    let content = ["secrets", "configmaps"];
    let sent = env.proxy().requests();
    let reads = sent
        .iter()
        .filter(|sent| content.contains(&sent.resource()) && !sent.is_write());
    let (single, many): (Vec<_>, Vec<_>) = reads.partition(|sent| sent.access.verb == "get");
    assert!(!many.is_empty());
    for read in many {
        assert!(
            read.accept.contains("as=PartialObjectMetadata"),
            "{read}: {}",
            read.accept
        );
    }
    for read in single {
        let is_source = read.name().starts_with("token-") || read.name() == "selected";
        assert!(is_source && namespace_of(read) == HOME, "{read}");
    }
    running.stop().await
}

/// A new leader finds everything done.
pub(crate) async fn new_leader_writes_nothing_twice(case: Case) -> anyhow::Result<()> {
    let first = TestCluster::new(&case).await?;
    prepare(&first).await?;
    let second = first.another_process();
    let elect = |manager: Manager, who: &str| {
        manager.elect(
            ElectionConfig::new("secretsync")
                .namespace(case.namespace())
                .identity(who),
        )
    };
    let one = RunningManager::start(elect(first.new_manager().await?, "one"));
    all_there(&first).await?;
    let other = RunningManager::start(elect(second.new_manager().await?, "other"));
    second.settle().await;
    assert_eq!(second.all_writes(), [""; 0], "it is not the leader");
    one.stop().await?;
    // The new leader is active when it does something that only a leader does.
    let changed = json!({ "data": secret("token-0", "2").data });
    first
        .in_namespace(HOME)
        .patch::<Secret>("token-0", changed)
        .await?;
    for number in 0..NAMESPACES {
        first
            .wait_for_copy(&format!("ns-{number}"), "token-0", "2")
            .await?;
    }
    second.settle().await;
    let writes = second.copy_writes();
    assert_eq!(writes.len(), NAMESPACES, "{writes:?}");
    assert!(
        writes.iter().all(|write| write.ends_with("/token-0")),
        "{writes:?}"
    );
    other.stop().await
}

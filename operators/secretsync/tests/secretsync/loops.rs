//! Syncs that could form loops, or want the same object.

use windlass::{k8s_openapi::api::core::v1::Secret, prelude::*};
use windlass_secretsync::{SecretSync, SecretSyncStatus, api::SYNC_ANNOTATION};
use windlass_suite::Context as Case;

use crate::secretsync::test_cluster::{HOME, TestCluster, condition, consent, secret};

/// All namespaces consent to all sources: only the operator prevents loops.
async fn trusting(case: &Case, names: &[&str]) -> anyhow::Result<TestCluster> {
    let env = TestCluster::new(case).await?;
    for name in names {
        env.namespace(name, consent("*")).await?;
    }
    env.patch_namespace(HOME, consent("*")).await?;
    Ok(env)
}

fn everything(chaining: bool) -> windlass::serde_json::Value {
    json!({ "sourceSelector": {}, "allowChaining": chaining })
}

/// A source is not its own target, and a copy is not a source.
pub(crate) async fn copies_are_not_sources_and_sources_are_not_targets(case: Case) -> anyhow::Result<()> {
    let env = trusting(&case, &["a", "b"]).await?;
    env.source("from-home", "1").await?;
    env.in_namespace("a").create(secret("from-a", "1")).await?;
    env.in_namespace("b").create(secret("from-b", "1")).await?;
    let running = env.start().await?;
    for namespace in ["a", "b", HOME] {
        env.sync(namespace, "everything", everything(false)).await?;
    }
    for (namespace, name) in [
        ("a", "from-b"),
        ("a", "from-home"),
        ("b", "from-a"),
        ("b", "from-home"),
    ] {
        env.wait_for_copy(namespace, name, "1").await?;
    }
    env.settle().await;
    let mut writes = env.copy_writes();
    writes.sort();
    let mut once = writes.clone();
    once.dedup();
    assert_eq!(writes, once, "nothing is written twice");
    let a = env
        .wait_for_status("a", "everything", |status| status.sources == 1)
        .await?;
    assert_eq!(a.status.as_ref().map(|status| status.failed), Some(0));
    env.proxy().clear();
    env.let_time_pass().await;
    assert_eq!(env.all_writes(), [""; 0]);
    running.stop().await
}

/// With chaining, copies are copied on, until that would form a loop.
pub(crate) async fn chaining_copies_copies_and_refuses_loops(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    for (name, from) in [("a", "c"), ("b", "a"), ("c", "b")] {
        env.namespace(name, consent(from)).await?;
    }
    env.in_namespace("a").create(secret("token", "1")).await?;
    let running = env.start().await?;
    for namespace in ["a", "b", "c"] {
        let spec = json!({ "names": ["token"], "allowChaining": true });
        env.sync(namespace, "on", spec).await?;
    }
    env.wait_for_copy("b", "token", "1").await?;
    env.wait_for_copy("c", "token", "1").await?;
    env.settle().await;
    let changed = json!({ "data": secret("token", "2").data });
    env.in_namespace("a").patch::<Secret>("token", changed).await?;
    env.wait_for_copy("c", "token", "2").await?;
    env.settle().await;
    let source = env.in_namespace("a").get::<Secret>("token").await?;
    assert_eq!(source.data, secret("token", "2").data);
    let to_the_source = |write: &String| write.ends_with(" a/token");
    let writes = env.copy_writes();
    assert!(!writes.iter().any(to_the_source), "{writes:?}");
    assert!(writes.len() <= 6, "bounded: {writes:?}");
    env.wait_for_status("c", "on", |status| !condition(status, "Ready", "True"))
        .await?;
    env.proxy().clear();
    env.let_time_pass().await;
    assert_eq!(env.all_writes(), [""; 0]);
    // When the first link is removed, the whole chain is.
    env.in_namespace("a").delete::<Secret>("token").await?;
    env.in_namespace("b")
        .wait_until_deleted::<Secret>("token")
        .await?;
    env.in_namespace("c")
        .wait_until_deleted::<Secret>("token")
        .await?;
    running.stop().await
}

/// The older of two syncs gets the target; the other reports it, and takes over when the older is deleted.
pub(crate) async fn older_sync_wins_a_contested_target(case: Case) -> anyhow::Result<()> {
    let env = trusting(&case, &["target"]).await?;
    env.namespace("a", json!({})).await?;
    env.namespace("b", json!({})).await?;
    env.in_namespace("a").create(secret("token", "a")).await?;
    env.in_namespace("b").create(secret("token", "b")).await?;
    let running = env.start().await?;
    let only = json!({ "matchLabels": { "kubernetes.io/metadata.name": "target" } });
    let spec = json!({ "names": ["token"], "namespaceSelector": only });
    env.sync("b", "older", spec.clone()).await?;
    env.wait_for_copy("target", "token", "b").await?;
    // Creation timestamps have a resolution of one second.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    env.sync("a", "younger", spec).await?;
    let conflicts =
        |status: &SecretSyncStatus| status.conflicts == 1 && condition(status, "Conflict", "True");
    env.wait_for_status("a", "younger", conflicts).await?;
    env.settle().await;
    env.proxy().clear();
    env.let_time_pass().await;
    assert_eq!(env.all_writes(), [""; 0]);
    env.wait_for_copy("target", "token", "b").await?;
    running.stop().await?;
    let running = env.start().await?;
    env.settle().await;
    assert_eq!(env.copy_writes(), [""; 0], "the same decision after a restart");
    env.in_namespace("b").delete::<SecretSync>("older").await?;
    env.wait_for_copy("target", "token", "a").await?;
    env.wait_for_status("a", "younger", |status| {
        status.conflicts == 0 && status.synced == 1
    })
    .await?;
    running.stop().await
}

/// A copy of one source never becomes that of another. The sync whose copy exists keeps it, and an older sync that
/// wants the name later waits until it is free.
pub(crate) async fn older_sync_waits_for_an_existing_copy_of_another_source(
    case: Case,
) -> anyhow::Result<()> {
    let env = trusting(&case, &["target"]).await?;
    for (namespace, value) in [("a", "a"), ("b", "b")] {
        env.namespace(namespace, json!({})).await?;
        env.in_namespace(namespace).create(secret("token", value)).await?;
    }
    let named = |name: &str| json!({ "names": ["token"], "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } } });
    let running = env.start().await?;
    env.sync("a", "older", named("nowhere")).await?;
    // Creation timestamps have a resolution of one second.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    env.sync("b", "younger", named("target")).await?;
    env.wait_for_copy("target", "token", "b").await?;
    env.settle().await;
    env.proxy().clear();
    let widened = json!({ "spec": named("target") });
    env.in_namespace("a")
        .patch::<SecretSync>("older", widened)
        .await?;
    env.wait_for_status("a", "older", |status| status.conflicts == 1)
        .await?;
    env.settle().await;
    assert_eq!(env.copy_writes(), [""; 0]);
    // The younger sync keeps working, also after a restart.
    running.stop().await?;
    let running = env.start().await?;
    let changed = json!({ "data": secret("token", "c").data });
    env.in_namespace("b").patch::<Secret>("token", changed).await?;
    env.wait_for_copy("target", "token", "c").await?;
    env.settle().await;
    assert_eq!(env.copy_writes(), ["update target/token"]);
    env.proxy().clear();
    env.in_namespace("b").delete::<SecretSync>("younger").await?;
    env.wait_for_copy("target", "token", "a").await?;
    env.wait_for_status("a", "older", |status| status.synced == 1)
        .await?;
    env.settle().await;
    assert_eq!(env.copy_writes(), ["delete target/token", "create target/token"]);
    running.stop().await
}

/// The same source by an annotation and by a SecretSync: one copy, and no alternating writes.
pub(crate) async fn annotated_and_selected_source_has_one_copy(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.consenting(&["asks"]).await?;
    env.source("token", "1").await?;
    let running = env.start().await?;
    env.wait_for_copy("asks", "token", "1").await?;
    env.sync(HOME, "also", json!({ "names": ["token"] })).await?;
    env.settle().await;
    assert!(env.copy_writes().len() <= 2, "{:?}", env.copy_writes());
    env.proxy().clear();
    env.let_time_pass().await;
    assert_eq!(env.all_writes(), [""; 0]);
    // When the annotation is removed, the other sync still wants it.
    let patch = json!({ "metadata": { "annotations": { SYNC_ANNOTATION: null } } });
    env.in_namespace(HOME).patch::<Secret>("token", patch).await?;
    env.settle().await;
    env.wait_for_copy("asks", "token", "1").await?;
    env.in_namespace(HOME).delete::<SecretSync>("also").await?;
    env.in_namespace("asks")
        .wait_until_deleted::<Secret>("token")
        .await?;
    running.stop().await
}

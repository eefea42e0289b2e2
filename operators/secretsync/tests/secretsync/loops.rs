//! Syncs that could go round in circles, or want the same object.

use windlass::{k8s_openapi::api::core::v1::Secret, prelude::*};
use windlass_secretsync::{SecretSync, SecretSyncStatus, api::SYNC};
use windlass_suite::Context as Case;

use crate::world::{HOME, World, condition, consent, secret};

/// Every namespace consents to everybody here: only the operator keeps it from going round.
async fn trusting(case: &Case, names: &[&str]) -> anyhow::Result<World> {
    let world = World::new(case).await?;
    for name in names {
        world.namespace(name, consent("*")).await?;
    }
    world.patch_namespace(HOME, consent("*")).await?;
    Ok(world)
}

fn everything(chaining: bool) -> windlass::serde_json::Value {
    json!({ "secretSelector": {}, "allowChaining": chaining })
}

/// Demand 8: a source is no target of itself, and what is a copy is no source.
pub(crate) async fn copies_are_no_sources_and_sources_no_targets(case: Case) -> anyhow::Result<()> {
    let world = trusting(&case, &["a", "b"]).await?;
    world.source("from-home", "1").await?;
    world.within("a").create(secret("from-a", "1")).await?;
    world.within("b").create(secret("from-b", "1")).await?;
    let running = world.start().await?;
    for namespace in ["a", "b", HOME] {
        world.sync(namespace, "everything", everything(false)).await?;
    }
    for (namespace, name) in [
        ("a", "from-b"),
        ("a", "from-home"),
        ("b", "from-a"),
        ("b", "from-home"),
    ] {
        world.copied(namespace, name, "1").await?;
    }
    world.settle().await;
    let mut writes = world.copying();
    writes.sort();
    let mut once = writes.clone();
    once.dedup();
    assert_eq!(writes, once, "nothing is written twice");
    let a = world
        .says("a", "everything", |status| status.matched == 1)
        .await?;
    assert_eq!(a.status.as_ref().map(|status| status.failed), Some(0));
    world.wire().forget();
    world.a_while().await;
    assert_eq!(world.written(), [""; 0]);
    running.stop().await
}

/// Demand 8: with chaining what is copied goes on, and stops where it came from.
pub(crate) async fn a_chain_goes_on_and_a_circle_is_refused(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    for (name, from) in [("a", "c"), ("b", "a"), ("c", "b")] {
        world.namespace(name, consent(from)).await?;
    }
    world.within("a").create(secret("token", "1")).await?;
    let running = world.start().await?;
    for namespace in ["a", "b", "c"] {
        let spec = json!({ "names": ["token"], "allowChaining": true });
        world.sync(namespace, "on", spec).await?;
    }
    world.copied("b", "token", "1").await?;
    world.copied("c", "token", "1").await?;
    world.settle().await;
    let changed = json!({ "data": secret("token", "2").data });
    world.within("a").patch::<Secret>("token", changed).await?;
    world.copied("c", "token", "2").await?;
    world.settle().await;
    let source = world.within("a").get::<Secret>("token").await?;
    assert_eq!(source.data, secret("token", "2").data);
    let to_the_source = |write: &String| write.ends_with(" a/token");
    let writes = world.copying();
    assert!(!writes.iter().any(to_the_source), "{writes:?}");
    assert!(writes.len() <= 6, "bounded: {writes:?}");
    world
        .says("c", "on", |status| !condition(status, "Ready", "True"))
        .await?;
    world.wire().forget();
    world.a_while().await;
    assert_eq!(world.written(), [""; 0]);
    // The first link goes, and the whole chain with it.
    world.within("a").delete::<Secret>("token").await?;
    world.within("b").wait_gone::<Secret>("token").await?;
    world.within("c").wait_gone::<Secret>("token").await?;
    running.stop().await
}

/// Demand 8: the older of two syncs has the target; the other says so, and takes over when it goes.
pub(crate) async fn of_two_syncs_that_want_one_target_the_older_has_it(case: Case) -> anyhow::Result<()> {
    let world = trusting(&case, &["target"]).await?;
    world.namespace("a", json!({})).await?;
    world.namespace("b", json!({})).await?;
    world.within("a").create(secret("token", "a")).await?;
    world.within("b").create(secret("token", "b")).await?;
    let running = world.start().await?;
    let only = json!({ "matchLabels": { "kubernetes.io/metadata.name": "target" } });
    let spec = json!({ "names": ["token"], "namespaceSelector": only });
    world.sync("b", "older", spec.clone()).await?;
    world.copied("target", "token", "b").await?;
    // The server counts ages in seconds.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    world.sync("a", "younger", spec).await?;
    let conflicts =
        |status: &SecretSyncStatus| status.conflicts == 1 && condition(status, "Conflict", "True");
    world.says("a", "younger", conflicts).await?;
    world.settle().await;
    world.wire().forget();
    world.a_while().await;
    assert_eq!(world.written(), [""; 0]);
    world.copied("target", "token", "b").await?;
    running.stop().await?;
    let running = world.start().await?;
    world.settle().await;
    assert_eq!(world.copying(), [""; 0], "who starts anew decides the same");
    world.within("b").delete::<SecretSync>("older").await?;
    world.copied("target", "token", "a").await?;
    world
        .says("a", "younger", |status| {
            status.conflicts == 0 && status.synced == 1
        })
        .await?;
    running.stop().await
}

/// Demand 8: what is a copy of one source never becomes that of another. Whoever's copy is there keeps it, and an older sync that
/// comes to want the name waits until it is free.
pub(crate) async fn an_older_sync_waits_until_the_copy_of_another_is_gone(case: Case) -> anyhow::Result<()> {
    let world = trusting(&case, &["target"]).await?;
    for (namespace, value) in [("a", "a"), ("b", "b")] {
        world.namespace(namespace, json!({})).await?;
        world.within(namespace).create(secret("token", value)).await?;
    }
    let named = |name: &str| json!({ "names": ["token"], "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } } });
    let running = world.start().await?;
    world.sync("a", "older", named("nowhere")).await?;
    // The server counts ages in seconds.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    world.sync("b", "younger", named("target")).await?;
    world.copied("target", "token", "b").await?;
    world.settle().await;
    world.wire().forget();
    let widened = json!({ "spec": named("target") });
    world.within("a").patch::<SecretSync>("older", widened).await?;
    world.says("a", "older", |status| status.conflicts == 1).await?;
    world.settle().await;
    assert_eq!(world.copying(), [""; 0]);
    // The younger goes on, and so it is after a restart.
    running.stop().await?;
    let running = world.start().await?;
    let changed = json!({ "data": secret("token", "c").data });
    world.within("b").patch::<Secret>("token", changed).await?;
    world.copied("target", "token", "c").await?;
    world.settle().await;
    assert_eq!(world.copying(), ["update target/token"]);
    world.wire().forget();
    world.within("b").delete::<SecretSync>("younger").await?;
    world.copied("target", "token", "a").await?;
    world.says("a", "older", |status| status.synced == 1).await?;
    world.settle().await;
    assert_eq!(world.copying(), ["delete target/token", "create target/token"]);
    running.stop().await
}

/// The same source by an annotation and by a SecretSync: one copy, and no quarrel.
pub(crate) async fn a_source_that_is_annotated_and_selected_has_one_copy(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.consenting(&["asks"]).await?;
    world.source("token", "1").await?;
    let running = world.start().await?;
    world.copied("asks", "token", "1").await?;
    world.sync(HOME, "also", json!({ "names": ["token"] })).await?;
    world.settle().await;
    assert!(world.copying().len() <= 2, "{:?}", world.copying());
    world.wire().forget();
    world.a_while().await;
    assert_eq!(world.written(), [""; 0]);
    // When the annotation goes the other still wants it.
    let patch = json!({ "metadata": { "annotations": { SYNC: null } } });
    world.within(HOME).patch::<Secret>("token", patch).await?;
    world.settle().await;
    world.copied("asks", "token", "1").await?;
    world.within(HOME).delete::<SecretSync>("also").await?;
    world.within("asks").wait_gone::<Secret>("token").await?;
    running.stop().await
}

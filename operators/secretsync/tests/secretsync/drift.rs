//! Changes of copies by other clients.

use windlass::{
    k8s_openapi::api::core::v1::{Event, Secret},
    kube::{
        ResourceExt,
        api::{Patch, PatchParams, PostParams},
    },
    prelude::*,
    serde_json::Value,
};
use windlass_secretsync::api::{HASH_ANNOTATION, SOURCE_ANNOTATION, SYNCED_BY_ANNOTATION};
use windlass_suite::Context as Case;

use crate::secretsync::world::{HOME, TestCluster, secret};

async fn stage(case: &Case) -> anyhow::Result<(TestCluster, windlass_suite::RunningManager)> {
    let world = TestCluster::new(case).await?;
    world.consenting(&["asks", "other"]).await?;
    world.source("token", "1").await?;
    let running = world.start().await?;
    world.wait_for_copy("asks", "token", "1").await?;
    world.wait_for_copy("other", "token", "1").await?;
    world.settle().await;
    Ok((world, running))
}

fn is_whole(copy: &Secret) -> bool {
    let marks = [HASH_ANNOTATION, SOURCE_ANNOTATION, SYNCED_BY_ANNOTATION];
    copy.data == secret("token", "1").data
        && marks.iter().all(|mark| copy.annotations().contains_key(*mark))
        && !copy.annotations().values().any(|value| value == "wrong")
}

/// By patch, update, apply and deletion; each is repaired in one write, in less than two seconds.
pub(crate) async fn drift_is_repaired_at_once(case: Case) -> anyhow::Result<()> {
    let (world, running) = stage(&case).await?;
    let patches: [(&str, Value); 6] = [
        ("a value", json!({ "data": { "password": "d3Jvbmc=" } })),
        ("a key more", json!({ "data": { "more": "d3Jvbmc=" } })),
        (
            "a key by stringData",
            json!({ "stringData": { "more": "wrong" } }),
        ),
        ("a key less", json!({ "data": { "password": null } })),
        ("no data", json!({ "data": null })),
        (
            "a hash",
            json!({ "metadata": { "annotations": { HASH_ANNOTATION: "wrong" } } }),
        ),
    ];
    for (what, patch) in patches {
        world.proxy().clear();
        world.in_namespace("asks").patch::<Secret>("token", patch).await?;
        let repaired = world.in_namespace("asks");
        world
            .within_two_seconds(what, repaired.wait_for::<Secret>("token", is_whole))
            .await?;
        world.settle().await;
        assert_eq!(world.copy_writes(), ["update asks/token"], "{what}");
    }
    // By an update of the whole object, as an editor does it.
    let mut edited = world.in_namespace("asks").get::<Secret>("token").await?;
    edited.data = secret("token", "wrong").data;
    let api = world.in_namespace("asks").case().api::<Secret>();
    api.replace("token", &PostParams::default(), &edited).await?;
    let repaired = world.in_namespace("asks");
    world
        .within_two_seconds("an edit", repaired.wait_for::<Secret>("token", is_whole))
        .await?;
    // By deletion.
    world.settle().await;
    world.proxy().clear();
    world.in_namespace("asks").delete::<Secret>("token").await?;
    world
        .within_two_seconds("a deletion", world.wait_for_copy("asks", "token", "1"))
        .await?;
    world.settle().await;
    assert_eq!(world.copy_writes(), ["create asks/token"]);
    running.stop().await
}

/// A namespace that has sources of its own and receives copies is served as quickly as the others.
pub(crate) async fn drift_is_repaired_at_once_in_a_source_namespace(case: Case) -> anyhow::Result<()> {
    let (world, running) = stage(&case).await?;
    world.in_namespace("asks").create(secret("own", "1")).await?;
    world.sync("asks", "on", json!({ "names": ["own"] })).await?;
    world
        .wait_for_status("asks", "on", |status| status.sources == 1)
        .await?;
    for value in ["2", "3", "4"] {
        let changed = json!({ "data": secret("token", value).data });
        world.in_namespace(HOME).patch::<Secret>("token", changed).await?;
        world
            .within_two_seconds("a change", world.wait_for_copy("asks", "token", value))
            .await?;
        world.in_namespace("asks").delete::<Secret>("token").await?;
        world
            .within_two_seconds("a deletion", world.wait_for_copy("asks", "token", value))
            .await?;
    }
    running.stop().await
}

/// Drift during downtime is detected in the managed fields, without reading any value.
pub(crate) async fn drift_during_downtime_is_repaired_without_reading_values(
    case: Case,
) -> anyhow::Result<()> {
    let (world, running) = stage(&case).await?;
    running.stop().await?;
    world
        .in_namespace("asks")
        .patch::<Secret>("token", json!({ "data": { "password": "d3Jvbmc=" } }))
        .await?;
    world.proxy().clear();
    let running = world.start().await?;
    world
        .in_namespace("asks")
        .wait_for::<Secret>("token", is_whole)
        .await?;
    world.settle().await;
    assert_eq!(world.copy_writes(), ["update asks/token"]);
    let reads = world.proxy().requests().into_iter().filter(|sent| {
        sent.access.verb == "get"
            && sent.resource() == "secrets"
            && crate::secretsync::world::namespace_of(sent) != HOME
    });
    assert!(
        reads.count() <= 1,
        "only objects that are to be written may be read"
    );
    running.stop().await
}

/// Labels and annotations of other managers on a copy stay.
pub(crate) async fn metadata_of_other_managers_is_preserved(case: Case) -> anyhow::Result<()> {
    let (world, running) = stage(&case).await?;
    world.proxy().clear();
    let patch = json!({ "metadata": { "labels": { "theirs": "1" }, "annotations": { "theirs": "1" } } });
    world.in_namespace("asks").patch::<Secret>("token", patch).await?;
    world.settle().await;
    assert_eq!(world.copy_writes(), [""; 0]);
    // They also stay when the copy is updated.
    let changed = json!({ "data": secret("token", "2").data });
    world.in_namespace(HOME).patch::<Secret>("token", changed).await?;
    let copy = world.wait_for_copy("asks", "token", "2").await?;
    assert_eq!(copy.labels().get("theirs").map(String::as_str), Some("1"));
    assert_eq!(copy.annotations().get("theirs").map(String::as_str), Some("1"));
    running.stop().await
}

/// A manager that applies another value for a key, and would do so again, is reported instead of fought.
pub(crate) async fn applied_data_of_another_manager_is_reported_not_fought(case: Case) -> anyhow::Result<()> {
    let (world, running) = stage(&case).await?;
    let source = world.in_namespace(HOME).get::<Secret>("token").await?;
    let api = world.in_namespace("asks").case().api::<Secret>();
    let theirs = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "token" },
        "data": { "password": "dGhlaXJz" },
    });
    world.proxy().clear();
    // Like a deployment tool that reconciles every minute.
    for _ in 0..5 {
        api.patch(
            "token",
            &PatchParams::apply("flux").force(),
            &Patch::Apply(&theirs),
        )
        .await?;
        world.settle().await;
    }
    let writes = world.copy_writes();
    assert!(writes.len() <= 1, "repeated writes: {writes:?}");
    let warned = |event: &Event| event.type_.as_deref() == Some("Warning");
    let observed = world.in_namespace(HOME).wait_for_event(&source, warned).await?;
    let message = observed.message.unwrap_or_default();
    assert!(
        message.contains("asks/token") && message.contains("flux"),
        "{message}"
    );
    // The other copies are still updated.
    let changed = json!({ "data": secret("token", "2").data });
    world.in_namespace(HOME).patch::<Secret>("token", changed).await?;
    world.wait_for_copy("other", "token", "2").await?;
    // When it no longer applies the key, the copy is ours again.
    let nothing = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "token" } });
    api.patch(
        "token",
        &PatchParams::apply("flux").force(),
        &Patch::Apply(&nothing),
    )
    .await?;
    world.wait_for_copy("asks", "token", "2").await?;
    running.stop().await
}

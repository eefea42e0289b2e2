//! Objects that are not our copies never change, not a single byte.

use windlass::{
    k8s_openapi::api::core::v1::{Event, Secret},
    prelude::*,
    serde_json::Value,
};
use windlass_secretsync::{
    SecretSync,
    api::{HASH_ANNOTATION, SOURCE_ANNOTATION, SOURCE_UID_LABEL, SYNC_ANNOTATION},
};
use windlass_suite::Context as Case;

use crate::secretsync::world::{HOME, TestCluster, condition, consent, secret};

/// Everything that may occupy the name of a copy: the fields of a Secret besides its name.
fn foreigners() -> Vec<(&'static str, Value)> {
    let stranger = "0e8d2a3f-0000-4000-8000-000000000000";
    vec![
        ("plain", json!({ "data": { "own": "b3du" } })),
        ("empty", json!({})),
        ("one-more", json!({ "data": { "own": "b3du" } })),
        ("yet-another", json!({ "data": { "own": "b3du" } })),
        ("same-data", json!({ "data": secret("token", "1").data })),
        (
            "annotated",
            json!({ "metadata": { "annotations": { SYNC_ANNOTATION: "true", SOURCE_ANNOTATION: "secretsync/token" } }, "data": { "own": "b3du" } }),
        ),
        (
            "helms",
            json!({ "metadata": {
                "labels": { "app.kubernetes.io/managed-by": "Helm" },
                "annotations": { "meta.helm.sh/release-name": "r", "meta.helm.sh/release-namespace": "helms" } },
                "data": { "own": "b3du" } }),
        ),
        (
            "argos",
            json!({ "metadata": { "labels": { "argocd.argoproj.io/instance": "app" } }, "data": { "own": "b3du" } }),
        ),
        (
            "of-another-source",
            json!({ "metadata": { "labels": { SOURCE_UID_LABEL: stranger } }, "data": { "own": "b3du" } }),
        ),
        (
            "half-marked",
            json!({ "metadata": { "labels": { SOURCE_UID_LABEL: "" }, "annotations": { HASH_ANNOTATION: "x" } } }),
        ),
        (
            "immutable",
            json!({ "immutable": true, "data": { "own": "b3du" } }),
        ),
        (
            "typed",
            json!({ "type": "example.com/x", "data": { "own": "b3du" } }),
        ),
    ]
}

async fn place(world: &TestCluster, consent_to: &str) -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut placed = Vec::new();
    for (namespace, mut object) in foreigners() {
        world.namespace(namespace, consent(consent_to)).await?;
        object["metadata"]["name"] = "token".into();
        let object: Secret = from_value(object)?;
        world.in_namespace(namespace).create(object).await?;
        placed.push((namespace, world.bytes(namespace, "token").await?));
    }
    Ok(placed)
}

async fn assert_untouched(world: &TestCluster, placed: &[(&str, String)], after: &str) -> anyhow::Result<()> {
    world.settle().await;
    for (namespace, before) in placed {
        assert_eq!(
            &world.bytes(namespace, "token").await?,
            before,
            "{namespace}, after {after}"
        );
    }
    Ok(())
}

fn warns(event: &Event, of: &str) -> bool {
    let message = event.message.as_deref().unwrap_or_default();
    event.type_.as_deref() == Some("Warning") && message.contains(of)
}

/// By annotation: reported as events on the source.
pub(crate) async fn annotated_source_never_changes_foreign_objects(case: Case) -> anyhow::Result<()> {
    let world = TestCluster::new(&case).await?;
    let placed = place(&world, "true").await?;
    world.consenting(&["free"]).await?;
    let source = world.source("token", "1").await?;
    let running = world.start().await?;
    world.wait_for_copy("free", "token", "1").await?;
    world
        .in_namespace(HOME)
        .wait_for_event(&source, |event| warns(event, "/token"))
        .await?;
    assert_untouched(&world, &placed, "the first copies").await?;
    assert!(
        world.metric("windlass_secretsync_conflicts_total") >= 1.0,
        "{}",
        world.scrape()
    );
    let changed = json!({ "data": secret("token", "2").data });
    world.in_namespace(HOME).patch::<Secret>("token", changed).await?;
    world.wait_for_copy("free", "token", "2").await?;
    assert_untouched(&world, &placed, "a change").await?;
    running.stop().await?;
    let running = world.start().await?;
    assert_untouched(&world, &placed, "a restart").await?;
    for (namespace, _) in &placed {
        world.patch_namespace(namespace, consent("nobody")).await?;
    }
    assert_untouched(&world, &placed, "consent was withdrawn").await?;
    for (namespace, _) in &placed {
        world.patch_namespace(namespace, consent("true")).await?;
    }
    world.in_namespace(HOME).delete::<Secret>("token").await?;
    world
        .in_namespace("free")
        .wait_until_deleted::<Secret>("token")
        .await?;
    assert_untouched(&world, &placed, "the source went").await?;
    let written = world.copy_writes();
    assert!(
        written.iter().all(|write| {
            placed.iter().all(|(namespace, _)| {
                !write.ends_with(&format!(" {namespace}/token")) || write.starts_with("create ")
            })
        }),
        "{written:?}"
    );
    running.stop().await
}

/// By SecretSync: reported in its status; nothing remains after its deletion.
pub(crate) async fn secret_sync_never_changes_foreign_objects(case: Case) -> anyhow::Result<()> {
    let world = TestCluster::new(&case).await?;
    world.namespace("team-a", json!({})).await?;
    let placed = place(&world, "team-a").await?;
    world.namespace("free", consent("team-a")).await?;
    world.in_namespace("team-a").create(secret("token", "1")).await?;
    let running = world.start().await?;
    let sync = world
        .sync(
            "team-a",
            "shared",
            json!({ "names": ["token"], "recreatePolicy": "IfNeeded" }),
        )
        .await?;
    let foreign = u32::try_from(placed.len())?;
    let observed = world
        .wait_for_status("team-a", "shared", |status| {
            status.conflicts == foreign && status.synced == 1 && condition(status, "Conflict", "True")
        })
        .await?;
    let status = observed.status.clone().unwrap_or_default();
    assert!(condition(&status, "Ready", "False"), "{status:?}");
    assert!(
        status.failures.len() == 10 && status.failures.iter().all(|one| one.name == "token"),
        "{status:?}"
    );
    world
        .in_namespace("team-a")
        .wait_for_event(&sync, |event| warns(event, "/token"))
        .await?;
    assert_untouched(&world, &placed, "the first copies").await?;
    // When a foreign object is deleted, a copy is created.
    let (made_room, rest) = placed.split_first().expect("not empty");
    world.in_namespace(made_room.0).delete::<Secret>("token").await?;
    // Foreign objects are not watched: they are checked every half minute.
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    world.wait_for_copy(made_room.0, "token", "1").await?;
    world
        .wait_for_status("team-a", "shared", |status| status.conflicts == foreign - 1)
        .await?;
    world
        .in_namespace("team-a")
        .delete::<SecretSync>("shared")
        .await?;
    world
        .in_namespace("team-a")
        .wait_until_deleted::<SecretSync>("shared")
        .await?;
    world
        .in_namespace("free")
        .wait_until_deleted::<Secret>("token")
        .await?;
    world
        .in_namespace(made_room.0)
        .wait_until_deleted::<Secret>("token")
        .await?;
    assert_untouched(&world, rest, "the sync went").await?;
    running.stop().await
}

/// A change between our read and our write is not lost: the write is conditional on the resource version.
pub(crate) async fn concurrent_change_is_not_overwritten(case: Case) -> anyhow::Result<()> {
    let (world, running) = TestCluster::in_sync(&case).await?;
    let updated = |sent: &windlass_suite::RecordedRequest| {
        sent.access.verb == "update" && sent.is_about("secrets", "token")
    };
    world.proxy().delay(1, std::time::Duration::from_secs(1), updated);
    let changed = json!({ "data": secret("token", "2").data });
    world.in_namespace(HOME).patch::<Secret>("token", changed).await?;
    world.proxy().wait_until_sent(updated).await?;
    let theirs = json!({ "metadata": { "labels": { "theirs": "1" } } });
    world
        .in_namespace("asks")
        .patch::<Secret>("token", theirs)
        .await?;
    let copy = world.wait_for_copy("asks", "token", "2").await?;
    assert_eq!(copy.labels().get("theirs").map(String::as_str), Some("1"));
    running.stop().await
}

/// An object that is created between our read and our write is not overwritten.
pub(crate) async fn concurrently_created_secret_is_not_overwritten(case: Case) -> anyhow::Result<()> {
    let world = TestCluster::new(&case).await?;
    world.consenting(&["asks"]).await?;
    let running = world.start().await?;
    world.settle().await;
    let created = |sent: &windlass_suite::RecordedRequest| {
        sent.access.verb == "create" && sent.is_about("secrets", "token")
    };
    world.proxy().delay(1, std::time::Duration::from_secs(1), created);
    let source = world.source("token", "1").await?;
    world.proxy().wait_until_sent(created).await?;
    world.in_namespace("asks").create(secret("token", "own")).await?;
    let before = world.bytes("asks", "token").await?;
    world
        .in_namespace(HOME)
        .wait_for_event(&source, |event| warns(event, "asks/token"))
        .await?;
    world.settle().await;
    assert_eq!(world.bytes("asks", "token").await?, before);
    running.stop().await
}

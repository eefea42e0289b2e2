//! What is not ours stays as it is, byte by byte, whatever happens around it.

use windlass::{
    k8s_openapi::api::core::v1::{Event, Secret},
    prelude::*,
    serde_json::Value,
};
use windlass_secretsync::{
    SecretSync,
    api::{HASH, SOURCE, SOURCE_UID, SYNC},
};
use windlass_suite::Context as Case;

use crate::world::{HOME, World, condition, consent, secret};

/// Everything that may be in the way: what a Secret has besides its name.
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
            json!({ "metadata": { "annotations": { SYNC: "true", SOURCE: "secretsync/token" } }, "data": { "own": "b3du" } }),
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
            json!({ "metadata": { "labels": { SOURCE_UID: stranger } }, "data": { "own": "b3du" } }),
        ),
        (
            "half-marked",
            json!({ "metadata": { "labels": { SOURCE_UID: "" }, "annotations": { HASH: "x" } } }),
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

async fn place(world: &World, consent_to: &str) -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut placed = Vec::new();
    for (namespace, mut object) in foreigners() {
        world.namespace(namespace, consent(consent_to)).await?;
        object["metadata"]["name"] = "token".into();
        let object: Secret = from_value(object)?;
        world.within(namespace).create(object).await?;
        placed.push((namespace, world.bytes(namespace, "token").await?));
    }
    Ok(placed)
}

async fn assert_untouched(world: &World, placed: &[(&str, String)], after: &str) -> anyhow::Result<()> {
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

/// The annotation's way: told on the source.
pub(crate) async fn foreign_objects_stay_as_they_are_whatever_an_annotated_source_does(
    case: Case,
) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let placed = place(&world, "true").await?;
    world.consenting(&["free"]).await?;
    let source = world.source("token", "1").await?;
    let running = world.start().await?;
    world.copied("free", "token", "1").await?;
    world
        .within(HOME)
        .told(&source, |event| warns(event, "/token"))
        .await?;
    assert_untouched(&world, &placed, "the first copies").await?;
    assert!(
        world.metric("secretsync_conflicts_total") >= 1.0,
        "{}",
        world.scrape()
    );
    let changed = json!({ "data": secret("token", "2").data });
    world.within(HOME).patch::<Secret>("token", changed).await?;
    world.copied("free", "token", "2").await?;
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
    world.within(HOME).delete::<Secret>("token").await?;
    world.within("free").wait_gone::<Secret>("token").await?;
    assert_untouched(&world, &placed, "the source went").await?;
    let written = world.copying();
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

/// The SecretSync's way: told in its status, and nothing stays of it when it goes.
pub(crate) async fn foreign_objects_stay_as_they_are_whatever_a_secret_sync_does(
    case: Case,
) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.namespace("team-a", json!({})).await?;
    let placed = place(&world, "team-a").await?;
    world.namespace("free", consent("team-a")).await?;
    world.within("team-a").create(secret("token", "1")).await?;
    let running = world.start().await?;
    let sync = world
        .sync(
            "team-a",
            "shared",
            json!({ "names": ["token"], "recreate": "IfNeeded" }),
        )
        .await?;
    let foreign = u32::try_from(placed.len())?;
    let told = world
        .says("team-a", "shared", |status| {
            status.conflicts == foreign && status.synced == 1 && condition(status, "Conflict", "True")
        })
        .await?;
    let status = told.status.clone().unwrap_or_default();
    assert!(condition(&status, "Ready", "False"), "{status:?}");
    assert!(
        status.failures.len() == 10 && status.failures.iter().all(|one| one.name == "token"),
        "{status:?}"
    );
    world
        .within("team-a")
        .told(&sync, |event| warns(event, "/token"))
        .await?;
    assert_untouched(&world, &placed, "the first copies").await?;
    // Whoever makes room gets a copy.
    let (made_room, rest) = placed.split_first().expect("there are some");
    world.within(made_room.0).delete::<Secret>("token").await?;
    // Nobody watches what is not ours: it is looked at again every half minute.
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    world.copied(made_room.0, "token", "1").await?;
    world
        .says("team-a", "shared", |status| status.conflicts == foreign - 1)
        .await?;
    world.within("team-a").delete::<SecretSync>("shared").await?;
    world.within("team-a").wait_gone::<SecretSync>("shared").await?;
    world.within("free").wait_gone::<Secret>("token").await?;
    world.within(made_room.0).wait_gone::<Secret>("token").await?;
    assert_untouched(&world, rest, "the sync went").await?;
    running.stop().await
}

/// What is changed between our look and our write is not lost: the write holds for what was looked at.
pub(crate) async fn a_change_at_the_last_moment_is_not_written_over(case: Case) -> anyhow::Result<()> {
    let (world, running) = World::in_sync(&case).await?;
    let updated =
        |sent: &windlass_suite::Sent| sent.access.verb == "update" && sent.is_about("secrets", "token");
    world.wire().delay(1, std::time::Duration::from_secs(1), updated);
    let changed = json!({ "data": secret("token", "2").data });
    world.within(HOME).patch::<Secret>("token", changed).await?;
    world.wire().seen(updated).await?;
    let theirs = json!({ "metadata": { "labels": { "theirs": "1" } } });
    world.within("asks").patch::<Secret>("token", theirs).await?;
    let copy = world.copied("asks", "token", "2").await?;
    assert_eq!(copy.labels().get("theirs").map(String::as_str), Some("1"));
    running.stop().await
}

/// What came between our look and our write is somebody else's, and is not written over.
pub(crate) async fn a_secret_that_appears_at_the_last_moment_is_not_written_over(
    case: Case,
) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.consenting(&["asks"]).await?;
    let running = world.start().await?;
    world.settle().await;
    let created =
        |sent: &windlass_suite::Sent| sent.access.verb == "create" && sent.is_about("secrets", "token");
    world.wire().delay(1, std::time::Duration::from_secs(1), created);
    let source = world.source("token", "1").await?;
    world.wire().seen(created).await?;
    world.within("asks").create(secret("token", "own")).await?;
    let before = world.bytes("asks", "token").await?;
    world
        .within(HOME)
        .told(&source, |event| warns(event, "asks/token"))
        .await?;
    world.settle().await;
    assert_eq!(world.bytes("asks", "token").await?, before);
    running.stop().await
}

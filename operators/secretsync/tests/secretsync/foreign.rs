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

use crate::secretsync::test_cluster::{HOME, TestCluster, condition, consent, secret};

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

async fn place(env: &TestCluster, consent_to: &str) -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut placed = Vec::new();
    for (namespace, mut object) in foreigners() {
        env.namespace(namespace, consent(consent_to)).await?;
        object["metadata"]["name"] = "token".into();
        let object: Secret = from_value(object)?;
        env.in_namespace(namespace).create(object).await?;
        placed.push((namespace, env.bytes(namespace, "token").await?));
    }
    Ok(placed)
}

async fn assert_untouched(env: &TestCluster, placed: &[(&str, String)], after: &str) -> anyhow::Result<()> {
    env.settle().await;
    for (namespace, before) in placed {
        assert_eq!(
            &env.bytes(namespace, "token").await?,
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
    let env = TestCluster::new(&case).await?;
    let placed = place(&env, "true").await?;
    env.consenting(&["free"]).await?;
    let source = env.source("token", "1").await?;
    let running = env.start().await?;
    env.wait_for_copy("free", "token", "1").await?;
    env.in_namespace(HOME)
        .wait_for_event(&source, |event| warns(event, "/token"))
        .await?;
    assert_untouched(&env, &placed, "the first copies").await?;
    assert!(
        env.metric("windlass_secretsync_conflicts_total") >= 1.0,
        "{}",
        env.scrape()
    );
    let changed = json!({ "data": secret("token", "2").data });
    env.in_namespace(HOME).patch::<Secret>("token", changed).await?;
    env.wait_for_copy("free", "token", "2").await?;
    assert_untouched(&env, &placed, "a change").await?;
    running.stop().await?;
    let running = env.start().await?;
    assert_untouched(&env, &placed, "a restart").await?;
    for (namespace, _) in &placed {
        env.patch_namespace(namespace, consent("false")).await?;
    }
    assert_untouched(&env, &placed, "consent was withdrawn").await?;
    for (namespace, _) in &placed {
        env.patch_namespace(namespace, consent("true")).await?;
    }
    env.in_namespace(HOME).delete::<Secret>("token").await?;
    env.in_namespace("free")
        .wait_until_deleted::<Secret>("token")
        .await?;
    assert_untouched(&env, &placed, "the source went").await?;
    let written = env.copy_writes();
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
    let env = TestCluster::new(&case).await?;
    env.namespace("team-a", json!({})).await?;
    let placed = place(&env, "team-a").await?;
    env.namespace("free", consent("team-a")).await?;
    env.in_namespace("team-a").create(secret("token", "1")).await?;
    let running = env.start().await?;
    let sync = env
        .sync(
            "team-a",
            "shared",
            json!({ "names": ["token"], "recreatePolicy": "IfNeeded" }),
        )
        .await?;
    let foreign = u32::try_from(placed.len())?;
    let observed = env
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
    env.in_namespace("team-a")
        .wait_for_event(&sync, |event| warns(event, "/token"))
        .await?;
    assert_untouched(&env, &placed, "the first copies").await?;
    // When a foreign object is deleted, a copy is created.
    let (made_room, rest) = placed.split_first().expect("not empty");
    env.in_namespace(made_room.0).delete::<Secret>("token").await?;
    // Foreign objects are not watched: they are checked every half minute.
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    env.wait_for_copy(made_room.0, "token", "1").await?;
    env.wait_for_status("team-a", "shared", |status| status.conflicts == foreign - 1)
        .await?;
    env.in_namespace("team-a").delete::<SecretSync>("shared").await?;
    env.in_namespace("team-a")
        .wait_until_deleted::<SecretSync>("shared")
        .await?;
    env.in_namespace("free")
        .wait_until_deleted::<Secret>("token")
        .await?;
    env.in_namespace(made_room.0)
        .wait_until_deleted::<Secret>("token")
        .await?;
    assert_untouched(&env, rest, "the sync went").await?;
    running.stop().await
}

/// A change between our read and our write is not lost: the write is conditional on the resource version.
pub(crate) async fn concurrent_change_is_not_overwritten(case: Case) -> anyhow::Result<()> {
    let (env, running) = TestCluster::in_sync(&case).await?;
    let updated = |sent: &windlass_suite::RecordedRequest| {
        sent.access.verb == "update" && sent.is_about("secrets", "token")
    };
    env.proxy().delay(1, std::time::Duration::from_secs(1), updated);
    let changed = json!({ "data": secret("token", "2").data });
    env.in_namespace(HOME).patch::<Secret>("token", changed).await?;
    env.proxy().wait_until_sent(updated).await?;
    let theirs = json!({ "metadata": { "labels": { "theirs": "1" } } });
    env.in_namespace("asks").patch::<Secret>("token", theirs).await?;
    let copy = env.wait_for_copy("asks", "token", "2").await?;
    assert_eq!(copy.labels().get("theirs").map(String::as_str), Some("1"));
    running.stop().await
}

/// An object that is created between our read and our write is not overwritten.
pub(crate) async fn concurrently_created_secret_is_not_overwritten(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.consenting(&["asks"]).await?;
    let running = env.start().await?;
    env.settle().await;
    let created = |sent: &windlass_suite::RecordedRequest| {
        sent.access.verb == "create" && sent.is_about("secrets", "token")
    };
    env.proxy().delay(1, std::time::Duration::from_secs(1), created);
    let source = env.source("token", "1").await?;
    env.proxy().wait_until_sent(created).await?;
    env.in_namespace("asks").create(secret("token", "own")).await?;
    let before = env.bytes("asks", "token").await?;
    env.in_namespace(HOME)
        .wait_for_event(&source, |event| warns(event, "asks/token"))
        .await?;
    env.settle().await;
    assert_eq!(env.bytes("asks", "token").await?, before);
    running.stop().await
}

//! What is copied where, by both front ends, and what a copy looks like.

use windlass::{
    k8s_openapi::api::core::v1::{ConfigMap, Secret},
    prelude::*,
};
use windlass_secretsync::{
    SecretSync,
    api::{ADOPT_ANNOTATION, FINALIZER, SOURCE_ANNOTATION, SOURCE_UID_LABEL, SYNC_ANNOTATION},
};
use windlass_suite::Context as Case;

use crate::secretsync::test_cluster::{HOME, TestCluster, condition, consent, secret, value_of};

/// With annotations: one on the Secret, and one on each namespace.
pub(crate) async fn annotated_secret_is_copied_to_consenting_namespaces(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.consenting(&["asks"]).await?;
    let labelled = json!({ "labels": { SYNC_ANNOTATION: "true" } });
    env.namespace("asks-by-label", labelled).await?;
    env.namespace("silent", json!({})).await?;
    env.in_namespace(HOME).create(secret("unmarked", "1")).await?;
    let source = env.source("token", "1").await?;
    let running = env.start().await?;
    for namespace in ["asks", "asks-by-label"] {
        let copy = env.wait_for_copy(namespace, "token", "1").await?;
        assert_eq!(copy.labels().get(SOURCE_UID_LABEL), source.metadata.uid.as_ref());
        assert_eq!(
            copy.annotations().get(SOURCE_ANNOTATION).map(String::as_str),
            Some("secretsync/token")
        );
        assert!(
            !copy.annotations().contains_key(SYNC_ANNOTATION),
            "a copy is not a source"
        );
    }
    // The source changes, and a namespace is added.
    let changed = json!({ "data": secret("token", "2").data });
    env.in_namespace(HOME).patch::<Secret>("token", changed).await?;
    env.consenting(&["late"]).await?;
    env.within_two_seconds("all of it", async {
        for namespace in ["asks", "asks-by-label", "late"] {
            env.wait_for_copy(namespace, "token", "2").await?;
        }
        Ok(())
    })
    .await?;
    env.settle().await;
    // One measurement per change, of less than two seconds, until the last copy is written.
    assert!(
        env.metric("windlass_secretsync_propagation_seconds_count") >= 1.0,
        "{}",
        env.scrape()
    );
    assert!(
        env.metric("windlass_secretsync_propagation_seconds_sum") < 2.0,
        "{}",
        env.scrape()
    );
    assert_eq!(env.names::<Secret>("silent").await?, [""; 0]);
    assert_eq!(env.names::<Secret>("asks").await?, ["token"]);
    assert_eq!(env.names::<Secret>(HOME).await?, ["token", "unmarked"]);
    assert_eq!(env.warnings().await?, []);
    running.stop().await
}

pub(crate) async fn config_maps_are_copied_like_secrets(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.consenting(&["asks"]).await?;
    env.namespace("named", consent("team-a")).await?;
    env.namespace("team-a", json!({})).await?;
    let config = |name: &str, text: &str| -> anyhow::Result<ConfigMap> {
        Ok(from_value(json!({
            "metadata": { "name": name, "annotations": { SYNC_ANNOTATION: "" }, "labels": { "shared": "yes" } },
            "data": { "text": text }, "binaryData": { "bytes": "AAEC" },
        }))?)
    };
    let running = env.start().await?;
    env.in_namespace(HOME).create(config("settings", "1")?).await?;
    env.in_namespace("team-a").create(config("mine", "1")?).await?;
    let shared = json!({ "kind": "ConfigMap", "sourceSelector": { "matchLabels": { "shared": "yes" } } });
    env.sync("team-a", "configs", shared).await?;
    let holds = |text: &'static str| {
        move |copy: &ConfigMap| {
            copy.data
                .as_ref()
                .and_then(|data| data.get("text"))
                .map(String::as_str)
                == Some(text)
        }
    };
    for (namespace, name) in [("asks", "settings"), ("named", "mine")] {
        let copy = env
            .in_namespace(namespace)
            .wait_for::<ConfigMap>(name, holds("1"))
            .await?;
        let bytes = &copy.binary_data.as_ref().expect("bytes")["bytes"];
        assert_eq!(bytes.0, [0, 1, 2]);
    }
    for (home, namespace, name) in [(HOME, "asks", "settings"), ("team-a", "named", "mine")] {
        let changed = json!({ "data": { "text": "2" } });
        env.in_namespace(home).patch::<ConfigMap>(name, changed).await?;
        env.in_namespace(namespace)
            .wait_for::<ConfigMap>(name, holds("2"))
            .await?;
        // Drift in both fields for data.
        let drift = json!({ "binaryData": { "more": "AAEC" } });
        env.in_namespace(namespace)
            .patch::<ConfigMap>(name, drift)
            .await?;
        let repaired = |copy: &ConfigMap| copy.binary_data.as_ref().is_some_and(|data| data.len() == 1);
        env.in_namespace(namespace)
            .wait_for::<ConfigMap>(name, repaired)
            .await?;
    }
    env.in_namespace(HOME).delete::<ConfigMap>("settings").await?;
    env.in_namespace("asks")
        .wait_until_deleted::<ConfigMap>("settings")
        .await?;
    running.stop().await
}

/// What a SecretSync selects, what it copies of it, and its status.
pub(crate) async fn secret_sync_copies_selected_sources_and_reports_status(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.namespace("team-a", json!({})).await?;
    for (name, tier) in [("web", "front"), ("api", "back"), ("db", "back")] {
        let mut metadata = consent("team-a");
        metadata["labels"] = json!({ "tier": tier });
        env.namespace(name, metadata).await?;
    }
    let mut labelled = secret("token", "1");
    labelled.metadata = from_value(json!({
        "name": "token",
        "labels": { "shared": "yes", "team": "a", "argocd.argoproj.io/instance": "app", "helm.sh/chart": "x",
                    "app.kubernetes.io/managed-by": "Helm", "private": "p" },
        "annotations": { "note": "n", "kubectl.kubernetes.io/last-applied-configuration": "{}",
                         "meta.helm.sh/release-name": "r", "secret-note": "s" },
        "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "0e8d2a3f-0000-4000-8000-000000000000" }],
        "finalizers": ["example.com/hold"],
    }))?;
    let data = labelled.data.get_or_insert_default();
    for key in ["tls.key", "internal"] {
        data.insert(key.to_owned(), windlass::k8s_openapi::ByteString(value_of(key)));
    }
    env.in_namespace("team-a").create(labelled).await?;
    env.in_namespace("team-a").create(secret("by-name", "1")).await?;
    env.in_namespace("team-a").create(secret("neither", "1")).await?;
    let spec = json!({
        "sourceSelector": { "matchExpressions": [{ "key": "shared", "operator": "In", "values": ["yes", "sure"] }] },
        "names": ["by-name"],
        "namespaceSelector": { "matchLabels": { "tier": "back" } },
        "keys": { "include": ["pass*", "tls.key"], "exclude": ["tls.*"] },
        "metadata": { "labels": { "exclude": ["private"] }, "annotations": { "include": ["note"] } },
    });
    let running = env.start().await?;
    env.sync("team-a", "shared", spec).await?;
    for namespace in ["api", "db"] {
        let copy = env.wait_for_copy(namespace, "token", "1").await?;
        env.wait_for_copy(namespace, "by-name", "1").await?;
        let labels = copy.labels().keys().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(labels, [SOURCE_UID_LABEL, "shared", "team"]);
        let foreign = copy
            .annotations()
            .keys()
            .filter(|name| !name.starts_with("secretsync.windlass.dev/"));
        assert_eq!(foreign.collect::<Vec<_>>(), ["note"]);
        assert_eq!(copy.owner_references(), []);
        assert_eq!(copy.finalizers(), [""; 0]);
    }
    let sync = env
        .wait_for_status("team-a", "shared", |status| {
            status.synced == 4 && condition(status, "Ready", "True")
        })
        .await?;
    let status = sync.status.clone().unwrap_or_default();
    assert_eq!(status.observed_generation, sync.metadata.generation);
    assert_eq!(
        (status.sources, status.namespaces, status.targets),
        (2, 2, 4),
        "{status:?}"
    );
    assert_eq!((status.failed, status.conflicts), (0, 0));
    assert_eq!(status.failures, []);
    assert!(!condition(&status, "Conflict", "True"));
    assert_eq!(sync.finalizers(), [FINALIZER]);
    // Labels of the source are updated.
    let relabelled = json!({ "metadata": { "labels": { "team": "b" } } });
    env.in_namespace("team-a")
        .patch::<Secret>("token", relabelled)
        .await?;
    let follows = |copy: &Secret| copy.labels().get("team").map(String::as_str) == Some("b");
    env.in_namespace("db")
        .wait_for::<Secret>("token", follows)
        .await?;
    env.settle().await;
    assert_eq!(env.names::<Secret>("web").await?, [""; 0]);
    assert_eq!(env.names::<Secret>("db").await?, ["by-name", "token"]);
    running.stop().await
}

/// Narrower and wider filters change the copies at once, each in one write.
pub(crate) async fn narrowed_filters_update_copies_at_once(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.namespace("team-a", json!({})).await?;
    env.namespace("asks", consent("team-a")).await?;
    let source: Secret = from_value(json!({
        "metadata": { "name": "token", "labels": { "a": "1", "b": "1" }, "annotations": { "a": "1", "b": "1" } },
        "stringData": { "a": "1", "b": "1" },
    }))?;
    env.in_namespace("team-a").create(source).await?;
    let running = env.start().await?;
    env.sync("team-a", "shared", json!({ "names": ["token"] }))
        .await?;
    let names = |copy: &Secret| {
        let foreign = |name: &&String| !name.starts_with("secretsync.windlass.dev/");
        let all = [
            copy.data
                .iter()
                .flatten()
                .map(|(name, _)| name.as_str())
                .collect::<String>(),
            copy.labels().keys().filter(foreign).map(String::as_str).collect(),
            copy.annotations()
                .keys()
                .filter(foreign)
                .map(String::as_str)
                .collect(),
        ];
        all.join(" ")
    };
    let has = |expected: &'static str| move |copy: &Secret| names(copy) == expected;
    let asks = env.in_namespace("asks");
    asks.wait_for::<Secret>("token", has("ab ab ab")).await?;
    for (spec, expected) in [
        (json!({ "keys": { "exclude": ["b"] } }), "a ab ab"),
        (
            json!({ "metadata": { "labels": { "include": ["b"] } } }),
            "a b ab",
        ),
        (
            json!({ "metadata": { "annotations": { "exclude": ["*"] } } }),
            "a b ",
        ),
        (json!({ "keys": { "exclude": [] } }), "ab b "),
    ] {
        env.settle().await;
        env.proxy().clear();
        let patch = json!({ "spec": spec });
        env.in_namespace("team-a")
            .patch::<SecretSync>("shared", patch)
            .await?;
        env.within_two_seconds(expected, asks.wait_for::<Secret>("token", has(expected)))
            .await?;
        env.settle().await;
        assert_eq!(env.copy_writes(), ["update asks/token"], "{expected}");
    }
    running.stop().await
}

/// Nothing is copied, but the sources are reported.
pub(crate) async fn sync_without_targets_reports_its_sources(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.namespace("team-a", json!({})).await?;
    let running = env.start().await?;
    env.sync("team-a", "shared", json!({ "sourceSelector": {} }))
        .await?;
    env.wait_for_status("team-a", "shared", |status| status.sources == 0)
        .await?;
    for (number, name) in (1..).zip(["one", "two"]) {
        env.in_namespace("team-a").create(secret(name, "1")).await?;
        env.wait_for_status("team-a", "shared", |status| status.sources == number)
            .await?;
    }
    env.in_namespace("team-a").delete::<Secret>("one").await?;
    env.wait_for_status("team-a", "shared", |status| status.sources == 1)
        .await?;
    assert_eq!(env.copy_writes(), [""; 0]);
    running.stop().await
}

/// Neither copies nor removes.
pub(crate) async fn paused_sync_writes_nothing_until_resumed(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.namespace("team-a", json!({})).await?;
    env.namespace("asks", consent("team-a")).await?;
    env.in_namespace("team-a").create(secret("token", "1")).await?;
    let running = env.start().await?;
    let spec = json!({ "names": ["token"], "paused": true });
    env.sync("team-a", "shared", spec).await?;
    env.settle().await;
    assert_eq!(env.copy_writes(), [""; 0]);
    let pause = async |paused: bool| {
        let spec = json!({ "spec": { "paused": paused } });
        env.in_namespace("team-a")
            .patch::<SecretSync>("shared", spec)
            .await
    };
    pause(false).await?;
    env.wait_for_copy("asks", "token", "1").await?;
    pause(true).await?;
    env.settle().await;
    env.proxy().clear();
    let changed = json!({ "data": secret("token", "2").data });
    env.in_namespace("team-a")
        .patch::<Secret>("token", changed)
        .await?;
    env.patch_namespace("asks", consent("false")).await?;
    env.settle().await;
    assert_eq!(env.copy_writes(), [""; 0]);
    env.wait_for_copy("asks", "token", "1").await?;
    // It resumes with the current state.
    pause(false).await?;
    env.in_namespace("asks")
        .wait_until_deleted::<Secret>("token")
        .await?;
    env.patch_namespace("asks", consent("team-a")).await?;
    env.wait_for_copy("asks", "token", "2").await?;
    running.stop().await
}

/// An existing object becomes a copy only as the sync's policy allows.
pub(crate) async fn object_is_adopted_only_as_the_policy_allows(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.namespace("team-a", json!({})).await?;
    for namespace in ["same", "other"] {
        env.namespace(namespace, consent("team-a")).await?;
    }
    env.in_namespace("team-a").create(secret("token", "1")).await?;
    for (namespace, value) in [("same", "1"), ("other", "own")] {
        let mut own = secret("token", value);
        // The target consents; this is about the policy.
        own.annotations_mut()
            .insert(ADOPT_ANNOTATION.to_owned(), "team-a".to_owned());
        env.in_namespace(namespace).create(own).await?;
    }
    let before = [
        env.bytes("same", "token").await?,
        env.bytes("other", "token").await?,
    ];
    let running = env.start().await?;
    env.sync("team-a", "shared", json!({ "names": ["token"] }))
        .await?;
    env.wait_for_status("team-a", "shared", |status| status.conflicts == 2)
        .await?;
    env.settle().await;
    assert_eq!(env.bytes("same", "token").await?, before[0]);
    assert_eq!(env.bytes("other", "token").await?, before[1]);
    let adopt = async |policy: &str| {
        let spec = json!({ "spec": { "adoptionPolicy": policy } });
        env.in_namespace("team-a")
            .patch::<SecretSync>("shared", spec)
            .await
    };
    adopt("IfIdentical").await?;
    let is_ours = |copy: &Secret| copy.labels().contains_key(SOURCE_UID_LABEL);
    env.in_namespace("same")
        .wait_for::<Secret>("token", is_ours)
        .await?;
    env.wait_for_status("team-a", "shared", |status| {
        status.conflicts == 1 && status.synced == 1
    })
    .await?;
    env.settle().await;
    assert_eq!(env.bytes("other", "token").await?, before[1]);
    adopt("Always").await?;
    let adopted = env.wait_for_copy("other", "token", "1").await?;
    assert!(is_ours(&adopted));
    env.wait_for_status("team-a", "shared", |status| {
        status.conflicts == 0 && status.synced == 2
    })
    .await?;
    running.stop().await
}

/// With `Orphan` the copies stay, as plain objects that are never changed again.
pub(crate) async fn orphaned_copies_stay_without_our_metadata(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.namespace("team-a", json!({})).await?;
    for namespace in ["b", "c"] {
        env.namespace(namespace, consent("team-a")).await?;
    }
    env.in_namespace("team-a").create(secret("token", "1")).await?;
    let running = env.start().await?;
    let spec = json!({ "names": ["token"], "deletionPolicy": "Orphan" });
    env.sync("team-a", "shared", spec).await?;
    for namespace in ["b", "c"] {
        env.wait_for_copy(namespace, "token", "1").await?;
    }
    env.settle().await;
    env.in_namespace("team-a").delete::<SecretSync>("shared").await?;
    env.in_namespace("team-a")
        .wait_until_deleted::<SecretSync>("shared")
        .await?;
    for namespace in ["b", "c"] {
        let left = env.wait_for_copy(namespace, "token", "1").await?;
        let marks = left.labels().keys().chain(left.annotations().keys());
        let ours: Vec<_> = marks.filter(|name| name.contains("secretsync")).collect();
        assert_eq!(ours, [""; 0]);
    }
    let before = env.bytes("b", "token").await?;
    env.in_namespace("team-a").delete::<Secret>("token").await?;
    env.settle().await;
    assert_eq!(env.bytes("b", "token").await?, before);
    running.stop().await
}

/// The finalizer is removed while no process runs: only the copies' annotations describe their sync.
pub(crate) async fn deletion_policy_on_copies_applies_after_the_sync_is_gone(
    case: Case,
) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.namespace("team-a", json!({})).await?;
    env.namespace("asks", consent("team-a")).await?;
    let running = env.start().await?;
    for (name, policy) in [("stays", "Orphan"), ("goes", "Delete")] {
        env.in_namespace("team-a").create(secret(name, "1")).await?;
        let spec = json!({ "names": [name], "deletionPolicy": policy });
        env.sync("team-a", name, spec).await?;
        env.wait_for_copy("asks", name, "1").await?;
    }
    env.settle().await;
    running.stop().await?;
    let team = env.in_namespace("team-a");
    for name in ["stays", "goes"] {
        let free = json!({ "metadata": { "finalizers": null } });
        team.patch::<SecretSync>(name, free).await?;
        team.delete::<SecretSync>(name).await?;
        team.wait_until_deleted::<SecretSync>(name).await?;
    }
    let running = env.start().await?;
    let is_plain = |copy: &Secret| !copy.labels().contains_key(SOURCE_UID_LABEL);
    env.in_namespace("asks")
        .wait_for::<Secret>("stays", is_plain)
        .await?;
    env.in_namespace("asks")
        .wait_until_deleted::<Secret>("goes")
        .await?;
    env.wait_for_copy("asks", "stays", "1").await?;
    running.stop().await
}

/// An invalid spec is reported, and existing copies stay until it is deleted.
pub(crate) async fn invalid_spec_is_reported_and_removes_nothing(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.namespace("team-a", json!({})).await?;
    env.namespace("asks", consent("team-a")).await?;
    env.in_namespace("team-a").create(secret("token", "1")).await?;
    let running = env.start().await?;
    env.sync("team-a", "shared", json!({ "names": ["token"] }))
        .await?;
    env.wait_for_copy("asks", "token", "1").await?;
    env.settle().await;
    env.proxy().clear();
    let team = env.in_namespace("team-a");
    let near = json!({ "matchExpressions": [{ "key": "a", "operator": "Resembles", "values": ["b"] }] });
    for (field, nonsense) in [
        ("namespaceSelector", near),
        // The server would reject it only in a list request.
        ("sourceSelector", json!({ "matchLabels": { "no label!": "a" } })),
        ("names", json!(["a,metadata.namespace=b"])),
    ] {
        let changed = json!({ "spec": { field: nonsense } });
        let changed = team.patch::<SecretSync>("shared", changed).await?;
        let observed = env
            .wait_for_status("team-a", "shared", |status| {
                status.observed_generation == changed.metadata.generation
                    && condition(status, "Ready", "False")
            })
            .await?;
        let conditions = &observed.status.as_ref().expect("it has a status").conditions;
        let names_it = |message: &str| message.starts_with(&format!("spec.{field}: "));
        assert!(
            conditions.iter().any(|one| names_it(&one.message)),
            "{conditions:?}"
        );
        let right =
            json!({ "spec": { field: if field == "names" { json!(["token"]) } else { json!(null) } } });
        team.patch::<SecretSync>("shared", right).await?;
        env.wait_for_status("team-a", "shared", |status| condition(status, "Ready", "True"))
            .await?;
    }
    // A spec that was invalid from the start looked up nothing, so it reports nothing as missing.
    let nonsense =
        json!({ "names": ["token"], "namespaceSelector": { "matchLabels": { "no label!": "a" } } });
    env.sync("team-a", "born-so", nonsense).await?;
    let observed = env
        .wait_for_status("team-a", "born-so", |status| condition(status, "Ready", "False"))
        .await?;
    assert_eq!(observed.status.as_ref().map(|status| status.failed), Some(0));
    let nonsense = json!({ "spec": { "names": ["No Name"] } });
    team.patch::<SecretSync>("shared", nonsense).await?;
    env.settle().await;
    assert_eq!(env.copy_writes(), [""; 0]);
    team.delete::<SecretSync>("shared").await?;
    team.wait_until_deleted::<SecretSync>("shared").await?;
    env.in_namespace("asks")
        .wait_until_deleted::<Secret>("token")
        .await?;
    running.stop().await
}

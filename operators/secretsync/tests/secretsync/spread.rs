//! What is copied where, by either front end, and what a copy looks like.

use windlass::{
    k8s_openapi::api::core::v1::{ConfigMap, Secret},
    prelude::*,
};
use windlass_secretsync::{
    SecretSync,
    api::{ADOPT, FINALIZER, SOURCE, SOURCE_UID, SYNC},
};
use windlass_suite::Context as Case;

use crate::world::{HOME, World, condition, consent, secret, value_of};

/// The seed's way: an annotation on the Secret, and one on each namespace.
pub(crate) async fn an_annotated_secret_is_copied_to_the_namespaces_that_ask(
    case: Case,
) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.consenting(&["asks"]).await?;
    let labelled = json!({ "labels": { SYNC: "true" } });
    world.namespace("asks-by-label", labelled).await?;
    world.namespace("silent", json!({})).await?;
    world.within(HOME).create(secret("unmarked", "1")).await?;
    let source = world.source("token", "1").await?;
    let running = world.start().await?;
    for namespace in ["asks", "asks-by-label"] {
        let copy = world.copied(namespace, "token", "1").await?;
        assert_eq!(copy.labels().get(SOURCE_UID), source.metadata.uid.as_ref());
        assert_eq!(
            copy.annotations().get(SOURCE).map(String::as_str),
            Some("secretsync/token")
        );
        assert!(!copy.annotations().contains_key(SYNC), "a copy is no source");
    }
    // The source changes, and a namespace comes.
    let changed = json!({ "data": secret("token", "2").data });
    world.within(HOME).patch::<Secret>("token", changed).await?;
    world.consenting(&["late"]).await?;
    world
        .soon("all of it", async {
            for namespace in ["asks", "asks-by-label", "late"] {
                world.copied(namespace, "token", "2").await?;
            }
            Ok(())
        })
        .await?;
    world.settle().await;
    // From its change to the last of its copies: once for each change, and in less than two seconds.
    assert!(
        world.metric("secretsync_lag_seconds_count") >= 1.0,
        "{}",
        world.scrape()
    );
    assert!(
        world.metric("secretsync_lag_seconds_sum") < 2.0,
        "{}",
        world.scrape()
    );
    assert_eq!(world.names::<Secret>("silent").await?, [""; 0]);
    assert_eq!(world.names::<Secret>("asks").await?, ["token"]);
    assert_eq!(world.names::<Secret>(HOME).await?, ["token", "unmarked"]);
    assert_eq!(world.events().await?, [], "there is nothing to complain of");
    running.stop().await
}

pub(crate) async fn config_maps_go_the_same_way(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.consenting(&["asks"]).await?;
    world.namespace("named", consent("team-a")).await?;
    world.namespace("team-a", json!({})).await?;
    let config = |name: &str, text: &str| -> anyhow::Result<ConfigMap> {
        Ok(from_value(json!({
            "metadata": { "name": name, "annotations": { SYNC: "" }, "labels": { "shared": "yes" } },
            "data": { "text": text }, "binaryData": { "bytes": "AAEC" },
        }))?)
    };
    let running = world.start().await?;
    world.within(HOME).create(config("settings", "1")?).await?;
    world.within("team-a").create(config("mine", "1")?).await?;
    let shared = json!({ "kind": "ConfigMap", "secretSelector": { "matchLabels": { "shared": "yes" } } });
    world.sync("team-a", "configs", shared).await?;
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
        let copy = world
            .within(namespace)
            .wait_for::<ConfigMap>(name, holds("1"))
            .await?;
        let bytes = &copy.binary_data.as_ref().expect("bytes")["bytes"];
        assert_eq!(bytes.0, [0, 1, 2]);
    }
    for (home, namespace, name) in [(HOME, "asks", "settings"), ("team-a", "named", "mine")] {
        let changed = json!({ "data": { "text": "2" } });
        world.within(home).patch::<ConfigMap>(name, changed).await?;
        world
            .within(namespace)
            .wait_for::<ConfigMap>(name, holds("2"))
            .await?;
        // A drift in either of the two places for data.
        let drift = json!({ "binaryData": { "more": "AAEC" } });
        world.within(namespace).patch::<ConfigMap>(name, drift).await?;
        let repaired = |copy: &ConfigMap| copy.binary_data.as_ref().is_some_and(|data| data.len() == 1);
        world
            .within(namespace)
            .wait_for::<ConfigMap>(name, repaired)
            .await?;
    }
    world.within(HOME).delete::<ConfigMap>("settings").await?;
    world.within("asks").wait_gone::<ConfigMap>("settings").await?;
    running.stop().await
}

/// What a SecretSync selects, what it takes of it, and what it says of itself.
pub(crate) async fn a_secret_sync_copies_what_it_selects_and_says_how_far_it_is(
    case: Case,
) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.namespace("team-a", json!({})).await?;
    for (name, tier) in [("web", "front"), ("api", "back"), ("db", "back")] {
        let mut metadata = consent("team-a");
        metadata["labels"] = json!({ "tier": tier });
        world.namespace(name, metadata).await?;
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
    world.within("team-a").create(labelled).await?;
    world.within("team-a").create(secret("by-name", "1")).await?;
    world.within("team-a").create(secret("neither", "1")).await?;
    let spec = json!({
        "secretSelector": { "matchExpressions": [{ "key": "shared", "operator": "In", "values": ["yes", "sure"] }] },
        "names": ["by-name"],
        "namespaceSelector": { "matchLabels": { "tier": "back" } },
        "keys": { "include": ["pass*", "tls.key"], "exclude": ["tls.*"] },
        "metadata": { "labels": { "exclude": ["private"] }, "annotations": { "include": ["note"] } },
    });
    let running = world.start().await?;
    world.sync("team-a", "shared", spec).await?;
    for namespace in ["api", "db"] {
        let copy = world.copied(namespace, "token", "1").await?;
        world.copied(namespace, "by-name", "1").await?;
        let labels = copy.labels().keys().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(labels, [SOURCE_UID, "shared", "team"]);
        let foreign = copy
            .annotations()
            .keys()
            .filter(|name| !name.starts_with("secretsync.windlass.dev/"));
        assert_eq!(foreign.collect::<Vec<_>>(), ["note"]);
        assert_eq!(copy.owner_references(), []);
        assert_eq!(copy.finalizers(), [""; 0]);
    }
    let sync = world
        .says("team-a", "shared", |status| {
            status.synced == 4 && condition(status, "Ready", "True")
        })
        .await?;
    let status = sync.status.clone().unwrap_or_default();
    assert_eq!(status.observed_generation, sync.metadata.generation);
    assert_eq!(
        (status.matched, status.namespaces, status.targets),
        (2, 2, 4),
        "{status:?}"
    );
    assert_eq!((status.failed, status.conflicts), (0, 0));
    assert_eq!(status.failures, []);
    assert!(!condition(&status, "Conflict", "True"));
    assert_eq!(sync.finalizers(), [FINALIZER]);
    // Labels of the source follow.
    let relabelled = json!({ "metadata": { "labels": { "team": "b" } } });
    world
        .within("team-a")
        .patch::<Secret>("token", relabelled)
        .await?;
    let follows = |copy: &Secret| copy.labels().get("team").map(String::as_str) == Some("b");
    world.within("db").wait_for::<Secret>("token", follows).await?;
    world.settle().await;
    assert_eq!(world.names::<Secret>("web").await?, [""; 0]);
    assert_eq!(world.names::<Secret>("db").await?, ["by-name", "token"]);
    running.stop().await
}

/// What a sync takes less of goes from the copies at once, and what it takes more of comes; each in one write.
pub(crate) async fn what_is_narrowed_goes_from_the_copies_at_once(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.namespace("team-a", json!({})).await?;
    world.namespace("asks", consent("team-a")).await?;
    let source: Secret = from_value(json!({
        "metadata": { "name": "token", "labels": { "a": "1", "b": "1" }, "annotations": { "a": "1", "b": "1" } },
        "stringData": { "a": "1", "b": "1" },
    }))?;
    world.within("team-a").create(source).await?;
    let running = world.start().await?;
    world
        .sync("team-a", "shared", json!({ "names": ["token"] }))
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
    let asks = world.within("asks");
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
        world.settle().await;
        world.wire().forget();
        let patch = json!({ "spec": spec });
        world
            .within("team-a")
            .patch::<SecretSync>("shared", patch)
            .await?;
        world
            .soon(expected, asks.wait_for::<Secret>("token", has(expected)))
            .await?;
        world.settle().await;
        assert_eq!(world.copying(), ["update asks/token"], "{expected}");
    }
    running.stop().await
}

/// Nothing is copied, and what it matches is told all the same.
pub(crate) async fn a_sync_that_no_namespace_wants_says_what_it_matches(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.namespace("team-a", json!({})).await?;
    let running = world.start().await?;
    world
        .sync("team-a", "shared", json!({ "secretSelector": {} }))
        .await?;
    world
        .says("team-a", "shared", |status| status.matched == 0)
        .await?;
    for (number, name) in (1..).zip(["one", "two"]) {
        world.within("team-a").create(secret(name, "1")).await?;
        world
            .says("team-a", "shared", |status| status.matched == number)
            .await?;
    }
    world.within("team-a").delete::<Secret>("one").await?;
    world
        .says("team-a", "shared", |status| status.matched == 1)
        .await?;
    assert_eq!(world.copying(), [""; 0]);
    running.stop().await
}

/// Neither copies nor cleans up.
pub(crate) async fn a_paused_sync_does_nothing_until_it_goes_on(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.namespace("team-a", json!({})).await?;
    world.namespace("asks", consent("team-a")).await?;
    world.within("team-a").create(secret("token", "1")).await?;
    let running = world.start().await?;
    let spec = json!({ "names": ["token"], "paused": true });
    world.sync("team-a", "shared", spec).await?;
    world.settle().await;
    assert_eq!(world.copying(), [""; 0]);
    let pause = async |paused: bool| {
        let spec = json!({ "spec": { "paused": paused } });
        world.within("team-a").patch::<SecretSync>("shared", spec).await
    };
    pause(false).await?;
    world.copied("asks", "token", "1").await?;
    pause(true).await?;
    world.settle().await;
    world.wire().forget();
    let changed = json!({ "data": secret("token", "2").data });
    world.within("team-a").patch::<Secret>("token", changed).await?;
    world.patch_namespace("asks", consent("nobody")).await?;
    world.settle().await;
    assert_eq!(world.copying(), [""; 0]);
    world.copied("asks", "token", "1").await?;
    // It goes on with what is the case by then.
    pause(false).await?;
    world.within("asks").wait_gone::<Secret>("token").await?;
    world.patch_namespace("asks", consent("team-a")).await?;
    world.copied("asks", "token", "2").await?;
    running.stop().await
}

/// What is in the way becomes a copy only if the sync says so, and then only what the policy allows.
pub(crate) async fn an_object_is_adopted_only_as_the_policy_allows(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.namespace("team-a", json!({})).await?;
    for namespace in ["same", "other"] {
        world.namespace(namespace, consent("team-a")).await?;
    }
    world.within("team-a").create(secret("token", "1")).await?;
    for (namespace, value) in [("same", "1"), ("other", "own")] {
        let mut own = secret("token", value);
        // The target agrees; what it is about here is the policy.
        own.annotations_mut()
            .insert(ADOPT.to_owned(), "team-a".to_owned());
        world.within(namespace).create(own).await?;
    }
    let before = [
        world.bytes("same", "token").await?,
        world.bytes("other", "token").await?,
    ];
    let running = world.start().await?;
    world
        .sync("team-a", "shared", json!({ "names": ["token"] }))
        .await?;
    world
        .says("team-a", "shared", |status| status.conflicts == 2)
        .await?;
    world.settle().await;
    assert_eq!(world.bytes("same", "token").await?, before[0]);
    assert_eq!(world.bytes("other", "token").await?, before[1]);
    let adopt = async |policy: &str| {
        let spec = json!({ "spec": { "adoptionPolicy": policy } });
        world.within("team-a").patch::<SecretSync>("shared", spec).await
    };
    adopt("IfIdentical").await?;
    let is_ours = |copy: &Secret| copy.labels().contains_key(SOURCE_UID);
    world.within("same").wait_for::<Secret>("token", is_ours).await?;
    world
        .says("team-a", "shared", |status| {
            status.conflicts == 1 && status.synced == 1
        })
        .await?;
    world.settle().await;
    assert_eq!(world.bytes("other", "token").await?, before[1]);
    adopt("Always").await?;
    let adopted = world.copied("other", "token", "1").await?;
    assert!(is_ours(&adopted));
    world
        .says("team-a", "shared", |status| {
            status.conflicts == 0 && status.synced == 2
        })
        .await?;
    running.stop().await
}

/// With `Orphan` the copies stay, as plain objects that nobody will ever touch again.
pub(crate) async fn orphans_stay_and_lose_our_marks(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.namespace("team-a", json!({})).await?;
    for namespace in ["b", "c"] {
        world.namespace(namespace, consent("team-a")).await?;
    }
    world.within("team-a").create(secret("token", "1")).await?;
    let running = world.start().await?;
    let spec = json!({ "names": ["token"], "deletionPolicy": "Orphan" });
    world.sync("team-a", "shared", spec).await?;
    for namespace in ["b", "c"] {
        world.copied(namespace, "token", "1").await?;
    }
    world.settle().await;
    world.within("team-a").delete::<SecretSync>("shared").await?;
    world.within("team-a").wait_gone::<SecretSync>("shared").await?;
    for namespace in ["b", "c"] {
        let left = world.copied(namespace, "token", "1").await?;
        let marks = left.labels().keys().chain(left.annotations().keys());
        let ours: Vec<_> = marks.filter(|name| name.contains("secretsync")).collect();
        assert_eq!(ours, [""; 0]);
    }
    let before = world.bytes("b", "token").await?;
    world.within("team-a").delete::<Secret>("token").await?;
    world.settle().await;
    assert_eq!(world.bytes("b", "token").await?, before);
    running.stop().await
}

/// Somebody takes the finalizer off while nobody runs: what the copies say is all that is known of their sync.
pub(crate) async fn a_sync_that_is_gone_left_word_whether_its_copies_stay(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.namespace("team-a", json!({})).await?;
    world.namespace("asks", consent("team-a")).await?;
    let running = world.start().await?;
    for (name, policy) in [("stays", "Orphan"), ("goes", "Delete")] {
        world.within("team-a").create(secret(name, "1")).await?;
        let spec = json!({ "names": [name], "deletionPolicy": policy });
        world.sync("team-a", name, spec).await?;
        world.copied("asks", name, "1").await?;
    }
    world.settle().await;
    running.stop().await?;
    let team = world.within("team-a");
    for name in ["stays", "goes"] {
        let free = json!({ "metadata": { "finalizers": null } });
        team.patch::<SecretSync>(name, free).await?;
        team.delete::<SecretSync>(name).await?;
        team.wait_gone::<SecretSync>(name).await?;
    }
    let running = world.start().await?;
    let is_plain = |copy: &Secret| !copy.labels().contains_key(SOURCE_UID);
    world.within("asks").wait_for::<Secret>("stays", is_plain).await?;
    world.within("asks").wait_gone::<Secret>("goes").await?;
    world.copied("asks", "stays", "1").await?;
    running.stop().await
}

/// What a spec means is not guessed: it is told, and what is there stays until it goes.
pub(crate) async fn a_spec_that_cannot_be_meant_is_told_and_takes_nothing_away(
    case: Case,
) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.namespace("team-a", json!({})).await?;
    world.namespace("asks", consent("team-a")).await?;
    world.within("team-a").create(secret("token", "1")).await?;
    let running = world.start().await?;
    world
        .sync("team-a", "shared", json!({ "names": ["token"] }))
        .await?;
    world.copied("asks", "token", "1").await?;
    world.settle().await;
    world.wire().forget();
    let team = world.within("team-a");
    let near = json!({ "matchExpressions": [{ "key": "a", "operator": "Resembles", "values": ["b"] }] });
    for (field, nonsense) in [
        ("namespaceSelector", near),
        // What the server would refuse only when somebody lists by it.
        ("secretSelector", json!({ "matchLabels": { "no label!": "a" } })),
        ("names", json!(["a,metadata.namespace=b"])),
    ] {
        let changed = json!({ "spec": { field: nonsense } });
        let changed = team.patch::<SecretSync>("shared", changed).await?;
        let told = world
            .says("team-a", "shared", |status| {
                status.observed_generation == changed.metadata.generation
                    && condition(status, "Ready", "False")
            })
            .await?;
        let conditions = &told.status.as_ref().expect("it was just there").conditions;
        let names_it = |message: &str| message.starts_with(&format!("spec.{field}: "));
        assert!(
            conditions.iter().any(|one| names_it(&one.message)),
            "{conditions:?}"
        );
        let right =
            json!({ "spec": { field: if field == "names" { json!(["token"]) } else { json!(null) } } });
        team.patch::<SecretSync>("shared", right).await?;
        world
            .says("team-a", "shared", |status| condition(status, "Ready", "True"))
            .await?;
    }
    // One that never made sense looked for nothing, so it does not say that something is missing.
    let nonsense =
        json!({ "names": ["token"], "namespaceSelector": { "matchLabels": { "no label!": "a" } } });
    world.sync("team-a", "born-so", nonsense).await?;
    let told = world
        .says("team-a", "born-so", |status| condition(status, "Ready", "False"))
        .await?;
    assert_eq!(told.status.as_ref().map(|status| status.failed), Some(0));
    let nonsense = json!({ "spec": { "names": ["No Name"] } });
    team.patch::<SecretSync>("shared", nonsense).await?;
    world.settle().await;
    assert_eq!(world.copying(), [""; 0]);
    team.delete::<SecretSync>("shared").await?;
    team.wait_gone::<SecretSync>("shared").await?;
    world.within("asks").wait_gone::<Secret>("token").await?;
    running.stop().await
}

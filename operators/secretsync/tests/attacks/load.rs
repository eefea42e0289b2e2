//! Attempts to wear the operator out.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use windlass::{
    kube::{api::PostParams, core::Request},
    prelude::*,
    serde_json::Value,
};
use windlass_cluster::Backend;
use windlass_secretsync::SecretSync;
use windlass_suite::Context as Case;

use crate::{
    stage::{KINDS, Kind, MALLORY, VICTIM, attacked, target, with},
    world::{HOME, condition, namespace_of},
};

/// The owner of a target namespace holds its copies by finalizers, and forges more of them: the SecretSync goes all the same, and
/// nothing happens in other namespaces.
pub(crate) async fn a_target_cannot_keep_a_sync_from_going(case: Case) -> anyhow::Result<()> {
    let world = attacked(&case, None).await?;
    world.namespace("second", target(MALLORY, None)).await?;
    let running = world.start().await?;
    let held = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    for kind in KINDS {
        world.make(kind, MALLORY, &kind.object("token", "1")).await?;
        let sync = kind.plural();
        world
            .sync(MALLORY, sync, json!({ "kind": kind.name(), "names": ["token"] }))
            .await?;
        world.says(MALLORY, sync, |status| status.synced == 2).await?;
        let copy = world.change(kind, VICTIM, "token", held.clone()).await?;
        let mut forged = with(kind.object("forged", "1"), &held);
        for marks in ["labels", "annotations"] {
            forged["metadata"][marks] = copy["metadata"][marks].clone();
        }
        let path = format!("/api/v1/namespaces/{VICTIM}/{}", kind.plural());
        let manager = PostParams {
            field_manager: Some("secretsync".to_owned()),
            ..PostParams::default()
        };
        let forge = Request::new(path).create(&manager, serde_json::to_vec(&forged)?)?;
        world.case().client().request::<Value>(forge).await?;
        world.settle().await;
        world.within(MALLORY).delete::<SecretSync>(sync).await?;
        world.within(MALLORY).wait_gone::<SecretSync>(sync).await?;
        for name in ["token", "forged"] {
            let left = world.find(kind, VICTIM, name).await?;
            assert!(!left["metadata"]["deletionTimestamp"].is_null(), "{left}");
        }
        assert!(world.find(kind, "second", "token").await.is_err());
    }
    running.stop().await
}

/// However many names and selectors a tenant has, there is one watch for its namespace and kind.
pub(crate) async fn many_names_and_selectors_share_one_watch_for_each_kind(case: Case) -> anyhow::Result<()> {
    let world = attacked(&case, None).await?;
    let running = world.start().await?;
    world.settle().await;
    world.wire().forget();
    for kind in KINDS {
        world.make(kind, MALLORY, &kind.object("name-7", "1")).await?;
        let names: Vec<_> = (0..1000).map(|number| format!("name-{number}")).collect();
        for namespace in [MALLORY, HOME] {
            let spec = json!({ "kind": kind.name(), "names": names });
            world
                .sync(namespace, &format!("names-{}", kind.plural()), spec)
                .await?;
            for number in 0..20 {
                let selector = json!({ "matchLabels": { "number": number.to_string() } });
                let spec = json!({ "kind": kind.name(), "secretSelector": selector });
                let name = format!("selector-{number}-{}", kind.plural());
                world.sync(namespace, &name, spec).await?;
            }
        }
    }
    for kind in KINDS {
        let named = format!("names-{}", kind.plural());
        world.says(MALLORY, &named, |status| status.matched == 1).await?;
        let password = |object: &Value| !object["data"]["password"].is_null();
        world.becomes(kind, VICTIM, "name-7", password).await?;
    }
    world.settle().await;
    let mut watches = BTreeMap::<_, usize>::new();
    for sent in world.wire().sent() {
        if ["list", "watch"].contains(&&*sent.access.verb) {
            let of = format!("{} {}", namespace_of(&sent), sent.resource());
            *watches.entry(of).or_default() += 1;
        }
    }
    // Those of the source namespace were there before.
    let expected = KINDS.map(|kind| (format!("{MALLORY} {}", kind.plural()), 1));
    let mut content = watches.clone();
    content.retain(|what, _| what.ends_with(" secrets") || what.ends_with(" configmaps"));
    assert_eq!(content, BTreeMap::from(expected), "{watches:?}");
    // With the last sync goes the watch.
    for kind in KINDS {
        let mallory = world.within(MALLORY);
        mallory
            .delete::<SecretSync>(&format!("names-{}", kind.plural()))
            .await?;
        let gone = world.within(VICTIM);
        match kind {
            Kind::Secret => {
                gone.wait_gone::<windlass::k8s_openapi::api::core::v1::Secret>("name-7")
                    .await?;
            }
            Kind::ConfigMap => {
                gone.wait_gone::<windlass::k8s_openapi::api::core::v1::ConfigMap>("name-7")
                    .await?;
            }
        }
    }
    running.stop().await
}

/// The server refuses what is longer than anybody needs.
pub(crate) async fn lists_have_a_limit(case: Case) -> anyhow::Result<()> {
    let world = attacked(&case, None).await?;
    let many = |count: usize| (0..count).map(|number| format!("n-{number}")).collect::<Vec<_>>();
    let labels = |count: usize| {
        let labels = many(count).into_iter().map(|name| (name, json!("a")));
        Value::Object(labels.collect())
    };
    let expressions = |count: usize| {
        let all = many(count).into_iter();
        Value::Array(
            all.map(|key| json!({ "key": key, "operator": "Exists" }))
                .collect(),
        )
    };
    let values = |count| json!([{ "key": "a", "operator": "In", "values": many(count) }]);
    for (number, (at_most, too_long)) in [
        (json!({ "names": many(1000) }), json!({ "names": many(12_000) })),
        (
            json!({ "names": ["n".repeat(253)] }),
            json!({ "names": ["n".repeat(254)] }),
        ),
        (
            json!({ "keys": { "include": many(100), "exclude": many(100) } }),
            json!({ "keys": { "include": many(101) } }),
        ),
        (json!({}), json!({ "keys": { "exclude": many(101) } })),
        (
            json!({}),
            json!({ "metadata": { "labels": { "include": many(101) } } }),
        ),
        (
            json!({}),
            json!({ "metadata": { "annotations": { "exclude": many(101) } } }),
        ),
        (
            json!({ "secretSelector": { "matchLabels": labels(100) } }),
            json!({ "secretSelector": { "matchLabels": labels(101) } }),
        ),
        (
            json!({ "namespaceSelector": { "matchExpressions": expressions(100) } }),
            json!({ "namespaceSelector": { "matchExpressions": expressions(101) } }),
        ),
        (
            json!({ "secretSelector": { "matchExpressions": values(100) } }),
            json!({ "secretSelector": { "matchExpressions": values(101) } }),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        world.sync(MALLORY, &format!("good-{number}"), at_most).await?;
        let refused = world.sync(MALLORY, &format!("bad-{number}"), too_long).await;
        let error = refused.err().context("it is too long, and nobody says so")?;
        let api = error.downcast_ref::<windlass::kube::Error>();
        assert!(
            matches!(api, Some(windlass::kube::Error::Api(status)) if status.code == 422),
            "{number}: {error}"
        );
    }
    Ok(())
}

/// Too many sources, or too many copies: nothing is written, it is said why, and what is not wanted any more still goes.
pub(crate) async fn a_sync_over_its_budget_writes_nothing_and_says_so(case: Case) -> anyhow::Result<()> {
    let world = attacked(&case, None).await?.told_to(|arguments| {
        arguments.max_sources = 3.try_into().expect("more than none");
        arguments.max_copies = 4.try_into().expect("more than none");
    });
    world.namespace("second", target(MALLORY, None)).await?;
    let labelled = |kind: Kind, name: &str| {
        let mut object = kind.object(name, "1");
        object["metadata"]["labels"] = json!({ "shared": "yes" });
        object
    };
    let running = world.start().await?;
    for kind in KINDS {
        for name in ["one", "two"] {
            world.make(kind, MALLORY, &labelled(kind, name)).await?;
        }
        let spec = json!({ "kind": kind.name(), "secretSelector": { "matchLabels": { "shared": "yes" } } });
        world.sync(MALLORY, kind.plural(), spec).await?;
        world
            .says(MALLORY, kind.plural(), |status| status.synced == 4)
            .await?;
    }
    let over = |status: &windlass_secretsync::SecretSyncStatus| {
        let mut conditions = status.conditions.iter();
        conditions.any(|one| one.type_ == "Ready" && one.reason == "BudgetExceeded" && one.status == "False")
    };
    // One namespace more, and there would be six copies of each kind.
    world.settle().await;
    world.wire().forget();
    world.namespace("third", target(MALLORY, None)).await?;
    for kind in KINDS {
        let told = world.says(MALLORY, kind.plural(), over).await?;
        let conditions = told.status.clone().unwrap_or_default().conditions;
        let message = conditions.iter().find(|one| one.type_ == "Ready");
        let message = &message.expect("it was just there").message;
        assert!(message.contains('6') && message.contains('4'), "{message}");
        let changed = json!({ "metadata": { "labels": { "changed": "yes" } } });
        world.change(kind, MALLORY, "one", changed).await?;
    }
    world.settle().await;
    assert_eq!(world.copying(), [""; 0]);
    // A namespace that withdraws its consent is not kept waiting, and then the rest fits again.
    world.patch_namespace("second", target("nobody", None)).await?;
    for kind in KINDS {
        for name in ["one", "two"] {
            world.becomes(kind, "third", name, |_| true).await?;
        }
        world
            .says(MALLORY, kind.plural(), |status| {
                status.synced == 4 && condition(status, "Ready", "True")
            })
            .await?;
        world.settle().await;
        assert!(world.find(kind, "second", "one").await.is_err(), "{kind:?}");
    }
    // Two sources more are too many, wherever they would go.
    for kind in KINDS {
        for name in ["three", "four"] {
            world.make(kind, MALLORY, &labelled(kind, name)).await?;
        }
        world.says(MALLORY, kind.plural(), over).await?;
        assert!(world.find(kind, VICTIM, "four").await.is_err());
        // It can still go.
        world.within(MALLORY).delete::<SecretSync>(kind.plural()).await?;
        world
            .within(MALLORY)
            .wait_gone::<SecretSync>(kind.plural())
            .await?;
    }
    running.stop().await
}

/// A tenant's content does not fill the operator's memory, however many SecretSyncs copy it; another tenant goes on.
pub(crate) async fn large_sources_are_not_held_beyond_the_limit(case: Case) -> anyhow::Result<()> {
    let world = attacked(&case, None).await?.told_to(|arguments| {
        arguments.max_content_mib = 1.try_into().expect("more than none");
    });
    world.namespace("bob", json!({})).await?;
    let both = format!("{MALLORY},bob");
    world.patch_namespace(VICTIM, target(&both, None)).await?;
    let large = "x".repeat(700 << 10);
    let kind = Kind::ConfigMap;
    for name in ["one", "two"] {
        world.make(kind, MALLORY, &kind.object(name, &large)).await?;
    }
    world.make(kind, "bob", &kind.object("bobs", &large)).await?;
    let running = world.start().await?;
    for name in ["one", "two"] {
        world
            .sync(MALLORY, name, json!({ "kind": "ConfigMap", "names": [name] }))
            .await?;
        world.says(MALLORY, name, |status| status.targets == 1).await?;
    }
    world
        .sync("bob", "bobs", json!({ "kind": "ConfigMap", "names": ["bobs"] }))
        .await?;
    world.says("bob", "bobs", |status| status.synced == 1).await?;
    let told = world.says(MALLORY, "two", |status| status.failed == 1).await?;
    let failures = &told.status.as_ref().expect("it was just there").failures;
    assert_eq!(failures[0].reason, "BudgetExceeded", "{failures:?}");
    assert!(world.find(kind, VICTIM, "one").await.is_ok());
    assert!(world.find(kind, VICTIM, "two").await.is_err());
    // It is not read again and again meanwhile, and fits when there is room.
    world.settle().await;
    let reads = world.wire().sent();
    let reads = reads
        .iter()
        .filter(|sent| sent.access.verb == "get" && sent.is_about("configmaps", "two"));
    assert_eq!(reads.count(), 1);
    world.within(MALLORY).delete::<SecretSync>("one").await?;
    world.says(MALLORY, "two", |status| status.synced == 1).await?;
    running.stop().await
}

/// A label on a SecretSync costs its owner one write; it does not cost the operator a look at every copy.
pub(crate) async fn a_sync_that_asks_for_the_same_is_not_looked_at_again(case: Case) -> anyhow::Result<()> {
    let world = attacked(&case, None).await?;
    let names: Vec<_> = (0..20).map(|number| format!("name-{number}")).collect();
    for name in &names {
        for namespace in [MALLORY, VICTIM] {
            let object = Kind::ConfigMap.object(name, namespace);
            world.make(Kind::ConfigMap, namespace, &object).await?;
        }
    }
    let running = world.start().await?;
    let spec = json!({ "kind": "ConfigMap", "names": names });
    let status = world.attack("many", spec).await?;
    assert_eq!(status.conflicts, 20, "{status:?}");
    world.wire().forget();
    for number in 0..5 {
        let label = json!({ "metadata": { "labels": { "number": number.to_string() } } });
        world.within(MALLORY).patch::<SecretSync>("many", label).await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let looks = world.wire().sent();
    let looks = looks
        .iter()
        .filter(|sent| sent.resource() == "configmaps")
        .count();
    assert_eq!(looks, 0);
    // What it asks for is looked at at once.
    let fewer = json!({ "spec": { "names": ["name-0"] } });
    world.within(MALLORY).patch::<SecretSync>("many", fewer).await?;
    world
        .says(MALLORY, "many", |status| status.conflicts == 1)
        .await?;
    running.stop().await
}

/// Objects in the way are looked at again and again; a hundred of them do not cost a hundred times as much.
pub(crate) async fn conflicts_are_looked_at_less_often_the_more_there_are(case: Case) -> anyhow::Result<()> {
    // Where time is real, long enough to see that nobody looks every half minute.
    let seconds = match case.cluster().backend() {
        Backend::Embedded => 1800,
        _ => 45,
    };
    let world = attacked(&case, None).await?;
    let names: Vec<_> = (0..120).map(|number| format!("name-{number}")).collect();
    for name in &names {
        for namespace in [MALLORY, VICTIM] {
            let object = Kind::ConfigMap.object(name, namespace);
            world.make(Kind::ConfigMap, namespace, &object).await?;
        }
    }
    let running = world.start().await?;
    let spec = json!({ "kind": "ConfigMap", "names": names });
    let status = world.attack("many", spec).await?;
    assert_eq!(status.conflicts, 120, "{status:?}");
    world.wire().forget();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let looks = world.wire().sent();
    let looks = looks.iter().filter(|sent| sent.access.verb == "get").count() as u64;
    // One for each second at most, and each of them at least every ten minutes.
    let least = 120 * (seconds / 600).saturating_sub(1);
    assert!((least..=seconds).contains(&looks), "{looks} in {seconds} seconds");
    running.stop().await
}

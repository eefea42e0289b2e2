//! Attempts to overload the operator.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use windlass::{
    kube::{api::PostParams, core::Request},
    prelude::*,
    serde_json::Value,
};
use windlass_cluster::Backend;
use windlass_secretsync::{
    SecretSync,
    api::{SOURCE_UID_LABEL, SYNC_ANNOTATION},
};
use windlass_suite::{Context as Case, RunningManager};

use crate::attacks::{
    fixture::{KINDS, Kind, MALLORY, VICTIM, attacked, target, with},
    test_cluster::{HOME, TestCluster, condition, namespace_of},
};

/// The owner of a target namespace holds its copies with finalizers, and forges more of them: the SecretSync is
/// deleted anyway, and nothing happens in other namespaces.
pub(crate) async fn target_cannot_block_the_deletion_of_a_sync(case: Case) -> anyhow::Result<()> {
    let env = attacked(&case, None).await?;
    env.namespace("second", target(MALLORY, None)).await?;
    let running = env.start().await?;
    let held = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    for kind in KINDS {
        env.make(kind, MALLORY, &kind.object("token", "1")).await?;
        let sync = kind.plural();
        env.sync(MALLORY, sync, json!({ "kind": kind.name(), "names": ["token"] }))
            .await?;
        env.wait_for_status(MALLORY, sync, |status| status.synced == 2)
            .await?;
        let copy = env.change(kind, VICTIM, "token", held.clone()).await?;
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
        env.case().client().request::<Value>(forge).await?;
        env.settle().await;
        env.in_namespace(MALLORY).delete::<SecretSync>(sync).await?;
        env.in_namespace(MALLORY)
            .wait_until_deleted::<SecretSync>(sync)
            .await?;
        for name in ["token", "forged"] {
            let left = env.find(kind, VICTIM, name).await?;
            assert!(!left["metadata"]["deletionTimestamp"].is_null(), "{left}");
        }
        assert!(env.find(kind, "second", "token").await.is_err());
    }
    running.stop().await
}

/// A tenant forges copies of another tenant's SecretSync: this neither holds back its removals, nor asks for a
/// confirmation. The forger knows all UIDs, since a copy shows them.
pub(crate) async fn forged_copies_do_not_hold_back_removals(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.namespace("team-a", json!({})).await?;
    let selected = json!({ "annotations": { SYNC_ANNOTATION: "team-a" }, "labels": { "tier": "backend" } });
    for name in ["one", "two"] {
        env.namespace(name, selected.clone()).await?;
    }
    // It consents, and is not selected.
    env.namespace(MALLORY, target("team-a", None)).await?;
    let kind = Kind::Secret;
    let mut uids = Vec::new();
    for number in 0..12 {
        let name = format!("token-{number:02}");
        let source = env.make(kind, "team-a", &kind.object(&name, "1")).await?;
        uids.push((name, source["metadata"]["uid"].clone()));
    }
    let spec = json!({
        "names": ["token-00"], "namespaceSelector": { "matchLabels": { "tier": "backend" } },
    });
    let running = env.start().await?;
    env.sync("team-a", "shared", spec).await?;
    env.wait_for_status("team-a", "shared", |status| status.synced == 2)
        .await?;
    env.settle().await;
    running.stop().await?;
    let copy = env.find(kind, "one", "token-00").await?;
    for (name, uid) in &uids {
        let mut forged = kind.object(name, "1");
        for marks in ["labels", "annotations"] {
            forged["metadata"][marks] = copy["metadata"][marks].clone();
        }
        forged["metadata"]["labels"][SOURCE_UID_LABEL] = uid.clone();
        let manager = PostParams {
            field_manager: Some("secretsync".to_owned()),
            ..PostParams::default()
        };
        let path = format!("/api/v1/namespaces/{MALLORY}/{}", kind.plural());
        let forge = Request::new(path).create(&manager, serde_json::to_vec(&forged)?)?;
        env.case().client().request::<Value>(forge).await?;
    }
    env.patch_namespace("two", json!({ "labels": { "tier": null } }))
        .await?;
    let running = env.start().await?;
    env.in_namespace("two")
        .wait_until_deleted::<windlass::k8s_openapi::api::core::v1::Secret>("token-00")
        .await?;
    env.wait_for_status("team-a", "shared", |status| {
        condition(status, "Ready", "True") && status.synced == 1
    })
    .await?;
    running.stop().await
}

/// However many names and selectors a tenant has, there is one watch per namespace and kind.
pub(crate) async fn names_and_selectors_share_one_watch_per_kind(case: Case) -> anyhow::Result<()> {
    let env = attacked(&case, None).await?;
    let running = env.start().await?;
    env.settle().await;
    env.proxy().clear();
    for kind in KINDS {
        env.make(kind, MALLORY, &kind.object("name-7", "1")).await?;
        let names: Vec<_> = (0..1000).map(|number| format!("name-{number}")).collect();
        for namespace in [MALLORY, HOME] {
            let spec = json!({ "kind": kind.name(), "names": names });
            env.sync(namespace, &format!("names-{}", kind.plural()), spec)
                .await?;
            for number in 0..20 {
                let selector = json!({ "matchLabels": { "number": number.to_string() } });
                let spec = json!({ "kind": kind.name(), "sourceSelector": selector });
                let name = format!("selector-{number}-{}", kind.plural());
                env.sync(namespace, &name, spec).await?;
            }
        }
    }
    for kind in KINDS {
        let named = format!("names-{}", kind.plural());
        env.wait_for_status(MALLORY, &named, |status| status.sources == 1)
            .await?;
        let password = |object: &Value| !object["data"]["password"].is_null();
        env.wait_for_object(kind, VICTIM, "name-7", password).await?;
    }
    env.settle().await;
    let mut watches = BTreeMap::<_, usize>::new();
    for sent in env.proxy().requests() {
        if ["list", "watch"].contains(&&*sent.access.verb) {
            let of = format!("{} {}", namespace_of(&sent), sent.resource());
            *watches.entry(of).or_default() += 1;
        }
    }
    // The watches of the source namespace existed before.
    let expected = KINDS.map(|kind| (format!("{MALLORY} {}", kind.plural()), 1));
    let mut content = watches.clone();
    content.retain(|what, _| what.ends_with(" secrets") || what.ends_with(" configmaps"));
    assert_eq!(content, BTreeMap::from(expected), "{watches:?}");
    // The watch is closed with its last sync.
    for kind in KINDS {
        let mallory = env.in_namespace(MALLORY);
        mallory
            .delete::<SecretSync>(&format!("names-{}", kind.plural()))
            .await?;
        let gone = env.in_namespace(VICTIM);
        match kind {
            Kind::Secret => {
                gone.wait_until_deleted::<windlass::k8s_openapi::api::core::v1::Secret>("name-7")
                    .await?;
            }
            Kind::ConfigMap => {
                gone.wait_until_deleted::<windlass::k8s_openapi::api::core::v1::ConfigMap>("name-7")
                    .await?;
            }
        }
    }
    running.stop().await
}

/// The server rejects lists that are longer than necessary.
pub(crate) async fn schema_limits_list_lengths(case: Case) -> anyhow::Result<()> {
    let env = attacked(&case, None).await?;
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
            json!({ "sourceSelector": { "matchLabels": labels(100) } }),
            json!({ "sourceSelector": { "matchLabels": labels(101) } }),
        ),
        (
            json!({ "namespaceSelector": { "matchExpressions": expressions(100) } }),
            json!({ "namespaceSelector": { "matchExpressions": expressions(101) } }),
        ),
        (
            json!({ "sourceSelector": { "matchExpressions": values(100) } }),
            json!({ "sourceSelector": { "matchExpressions": values(101) } }),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        env.sync(MALLORY, &format!("good-{number}"), at_most).await?;
        let refused = env.sync(MALLORY, &format!("bad-{number}"), too_long).await;
        let error = refused.err().context("a list over the limit was accepted")?;
        let api = error.downcast_ref::<windlass::kube::Error>();
        assert!(
            matches!(api, Some(windlass::kube::Error::Api(status)) if status.code == 422),
            "{number}: {error}"
        );
    }
    Ok(())
}

/// Too many sources or copies: nothing is written, the reason is reported, and unwanted copies are still removed.
pub(crate) async fn sync_over_its_limits_writes_nothing_and_reports_it(case: Case) -> anyhow::Result<()> {
    let env = attacked(&case, None).await?.with_arguments(|arguments| {
        arguments.max_sources = 3.try_into().expect("nonzero");
        arguments.max_copies = 4.try_into().expect("nonzero");
    });
    env.namespace("second", target(MALLORY, None)).await?;
    let labelled = |kind: Kind, name: &str| {
        let mut object = kind.object(name, "1");
        object["metadata"]["labels"] = json!({ "shared": "yes" });
        object
    };
    let running = env.start().await?;
    for kind in KINDS {
        for name in ["one", "two"] {
            env.make(kind, MALLORY, &labelled(kind, name)).await?;
        }
        let spec = json!({ "kind": kind.name(), "sourceSelector": { "matchLabels": { "shared": "yes" } } });
        env.sync(MALLORY, kind.plural(), spec).await?;
        env.wait_for_status(MALLORY, kind.plural(), |status| status.synced == 4)
            .await?;
    }
    let over = |status: &windlass_secretsync::SecretSyncStatus| {
        let mut conditions = status.conditions.iter();
        conditions.any(|one| one.type_ == "Ready" && one.reason == "LimitExceeded" && one.status == "False")
    };
    // One more namespace would make six copies of each kind.
    env.settle().await;
    env.proxy().clear();
    env.namespace("third", target(MALLORY, None)).await?;
    for kind in KINDS {
        let observed = env.wait_for_status(MALLORY, kind.plural(), over).await?;
        let conditions = observed.status.clone().unwrap_or_default().conditions;
        let message = conditions.iter().find(|one| one.type_ == "Ready");
        let message = &message.expect("it has a status").message;
        assert!(message.contains('6') && message.contains('4'), "{message}");
        let changed = json!({ "metadata": { "labels": { "changed": "yes" } } });
        env.change(kind, MALLORY, "one", changed).await?;
    }
    env.settle().await;
    assert_eq!(env.copy_writes(), [""; 0]);
    // A withdrawn consent takes effect at once, and then the rest fits again.
    env.patch_namespace("second", target("false", None)).await?;
    for kind in KINDS {
        for name in ["one", "two"] {
            env.wait_for_object(kind, "third", name, |_| true).await?;
        }
        env.wait_for_status(MALLORY, kind.plural(), |status| {
            status.synced == 4 && condition(status, "Ready", "True")
        })
        .await?;
        env.settle().await;
        assert!(env.find(kind, "second", "one").await.is_err(), "{kind:?}");
    }
    // Two more sources are too many, whatever their targets.
    for kind in KINDS {
        for name in ["three", "four"] {
            env.make(kind, MALLORY, &labelled(kind, name)).await?;
        }
        env.wait_for_status(MALLORY, kind.plural(), over).await?;
        assert!(env.find(kind, VICTIM, "four").await.is_err());
        // It can still be deleted.
        env.in_namespace(MALLORY)
            .delete::<SecretSync>(kind.plural())
            .await?;
        env.in_namespace(MALLORY)
            .wait_until_deleted::<SecretSync>(kind.plural())
            .await?;
    }
    running.stop().await
}

/// A tenant's content does not fill the operator's memory, however many SecretSyncs copy it; other tenants are not
/// affected.
pub(crate) async fn content_over_the_limit_is_not_held(case: Case) -> anyhow::Result<()> {
    let env = attacked(&case, None).await?.with_arguments(|arguments| {
        arguments.max_content_mib = 1.try_into().expect("nonzero");
    });
    env.namespace("bob", json!({})).await?;
    let both = format!("{MALLORY},bob");
    env.patch_namespace(VICTIM, target(&both, None)).await?;
    let large = "x".repeat(700 << 10);
    let kind = Kind::ConfigMap;
    for name in ["one", "two"] {
        env.make(kind, MALLORY, &kind.object(name, &large)).await?;
    }
    env.make(kind, "bob", &kind.object("bobs", &large)).await?;
    let running = env.start().await?;
    for name in ["one", "two"] {
        env.sync(MALLORY, name, json!({ "kind": "ConfigMap", "names": [name] }))
            .await?;
        env.wait_for_status(MALLORY, name, |status| status.targets == 1)
            .await?;
    }
    env.sync("bob", "bobs", json!({ "kind": "ConfigMap", "names": ["bobs"] }))
        .await?;
    env.wait_for_status("bob", "bobs", |status| status.synced == 1)
        .await?;
    let observed = env
        .wait_for_status(MALLORY, "two", |status| status.failed == 1)
        .await?;
    let failures = &observed.status.as_ref().expect("it has a status").failures;
    assert_eq!(failures[0].reason, "LimitExceeded", "{failures:?}");
    assert!(env.find(kind, VICTIM, "one").await.is_ok());
    assert!(env.find(kind, VICTIM, "two").await.is_err());
    // It is not fetched repeatedly meanwhile, and is copied when it fits.
    env.settle().await;
    let reads = env.proxy().requests();
    let reads = reads
        .iter()
        .filter(|sent| sent.access.verb == "get" && sent.is_about("configmaps", "two"));
    assert_eq!(reads.count(), 1);
    env.in_namespace(MALLORY).delete::<SecretSync>("one").await?;
    env.wait_for_status(MALLORY, "two", |status| status.synced == 1)
        .await?;
    running.stop().await
}

/// The SecretSync `many`, of which every copy conflicts with an object of the target.
async fn with_conflicts(case: &Case, count: u32) -> anyhow::Result<(TestCluster, RunningManager)> {
    let env = attacked(case, None).await?;
    let names: Vec<_> = (0..count).map(|number| format!("name-{number}")).collect();
    for name in &names {
        for namespace in [MALLORY, VICTIM] {
            let object = Kind::ConfigMap.object(name, namespace);
            env.make(Kind::ConfigMap, namespace, &object).await?;
        }
    }
    let running = env.start().await?;
    let spec = json!({ "kind": "ConfigMap", "names": names });
    let status = env.attack("many", spec).await?;
    assert_eq!(status.conflicts, count, "{status:?}");
    env.proxy().clear();
    Ok((env, running))
}

/// A label on a SecretSync costs its owner one write; it must not cause a reconcile of every copy.
pub(crate) async fn unchanged_spec_does_not_reconcile_copies(case: Case) -> anyhow::Result<()> {
    let (env, running) = with_conflicts(&case, 20).await?;
    for number in 0..5 {
        let label = json!({ "metadata": { "labels": { "number": number.to_string() } } });
        env.in_namespace(MALLORY)
            .patch::<SecretSync>("many", label)
            .await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let looks = env.proxy().requests();
    let looks = looks
        .iter()
        .filter(|sent| sent.resource() == "configmaps")
        .count();
    assert_eq!(looks, 0);
    // A changed spec is reconciled at once.
    let fewer = json!({ "spec": { "names": ["name-0"] } });
    env.in_namespace(MALLORY)
        .patch::<SecretSync>("many", fewer)
        .await?;
    env.wait_for_status(MALLORY, "many", |status| status.conflicts == 1)
        .await?;
    running.stop().await
}

/// Conflicting objects are checked periodically; a hundred of them do not cost a hundred times as much.
pub(crate) async fn conflict_checks_are_rate_limited(case: Case) -> anyhow::Result<()> {
    // Where time is real, long enough to see that not every object is checked every half minute.
    let seconds = match case.cluster().backend() {
        Backend::Embedded => 1800,
        _ => 45,
    };
    let (env, running) = with_conflicts(&case, 120).await?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let looks = env.proxy().requests();
    let looks = looks.iter().filter(|sent| sent.access.verb == "get").count() as u64;
    // At most one check per second, and each object at least every ten minutes.
    let least = 120 * (seconds / 600).saturating_sub(1);
    assert!((least..=seconds).contains(&looks), "{looks} in {seconds} seconds");
    running.stop().await
}

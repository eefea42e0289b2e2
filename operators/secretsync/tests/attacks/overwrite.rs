//! Attempts to replace or delete objects of another namespace.

use std::time::Duration;

use windlass::{prelude::*, serde_json::Value};
use windlass_secretsync::{SecretSync, api::SYNC_ANNOTATION};
use windlass_suite::Context as Case;

use crate::attacks::{
    fixture::{ADOPT, KINDS, Kind, MALLORY, POLICIES, VICTIM, adopt, attacked, is_marked, target, with},
    test_cluster::{HOME, TestCluster},
};

/// Objects of a kind that a target may have, with the name of a copy that contains `guess`.
fn existing_objects(kind: Kind) -> Vec<(&'static str, Value)> {
    let mut all = vec![
        ("own", kind.object("own", "own")),
        ("same", kind.object("same", "guess")),
        (
            "immutable",
            with(kind.object("immutable", "own"), &json!({ "immutable": true })),
        ),
        (
            "other-consent",
            with(kind.object("other-consent", "own"), &adopt("true, somebody-else")),
        ),
    ];
    if kind == Kind::Secret {
        let typed = |name: &str, of: &str| with(kind.object(name, "own"), &json!({ "type": of }));
        all.push(("typed", typed("typed", "example.com/own")));
        all.push(("release", typed("release", "helm.sh/release.v1")));
        all.push(("bootstrap", typed("bootstrap", "bootstrap.kubernetes.io/token")));
    }
    all
}

/// Whatever the sync's owner asks for: the namespace accepts copies, but does not consent to adoption.
pub(crate) async fn adoption_policy_without_target_consent_changes_nothing(case: Case) -> anyhow::Result<()> {
    let env = attacked(&case, None).await?;
    let mut before = Vec::new();
    let mut syncs = Vec::new();
    for kind in KINDS {
        for policy in POLICIES {
            let prefix = policy.to_lowercase();
            let mut names = Vec::new();
            for (name, mut object) in existing_objects(kind) {
                let name = format!("{prefix}-{name}");
                object["metadata"]["name"] = name.as_str().into();
                env.make(kind, VICTIM, &object).await?;
                env.make(kind, MALLORY, &kind.object(&name, "guess")).await?;
                before.push((kind, name.clone(), env.find(kind, VICTIM, &name).await?));
                names.push(name);
            }
            let sync = format!("{prefix}-{}", kind.plural());
            let spec = json!({
                "kind": kind.name(), "names": names, "adoptionPolicy": policy, "recreatePolicy": "IfNeeded",
            });
            syncs.push((sync, spec, u32::try_from(names.len())?));
        }
    }
    let running = env.start().await?;
    for (name, spec, conflicts) in &syncs {
        let status = env.attack(name, spec.clone()).await?;
        assert_eq!(
            (status.conflicts, status.synced, status.failed),
            (*conflicts, 0, 0),
            "{name}: {status:?}"
        );
    }
    // Nor by changing the source, nor by ending the sync.
    for (kind, name, _) in &before {
        let changed = json!({ "data": null, "metadata": { "labels": { "changed": "yes" } } });
        env.change(*kind, MALLORY, name, changed).await?;
    }
    env.settle().await;
    for (name, ..) in &syncs {
        env.in_namespace(MALLORY).delete::<SecretSync>(name).await?;
        env.in_namespace(MALLORY)
            .wait_until_deleted::<SecretSync>(name)
            .await?;
    }
    env.settle().await;
    for (kind, name, object) in &before {
        assert_eq!(&env.find(*kind, VICTIM, name).await?, object, "{name}");
    }
    assert_eq!(env.updates_and_deletions(VICTIM), [""; 0]);
    running.stop().await
}

/// Consent to adoption is not consent to deletion: objects that cannot be updated stay.
pub(crate) async fn recreate_never_deletes_preexisting_objects(case: Case) -> anyhow::Result<()> {
    let env = attacked(&case, Some(MALLORY)).await?;
    let mut before = Vec::new();
    for kind in KINDS {
        for (name, object) in existing_objects(kind) {
            if ["immutable", "typed"].contains(&name) {
                // With the consent of the namespace alone, and of the object as well.
                for (name, more) in [
                    (format!("{name}-1"), json!({})),
                    (format!("{name}-2"), adopt(MALLORY)),
                ] {
                    let mut object = with(object.clone(), &more);
                    object["metadata"]["name"] = name.as_str().into();
                    env.make(kind, VICTIM, &object).await?;
                    env.make(kind, MALLORY, &kind.object(&name, "guess")).await?;
                    before.push((kind, name.clone(), env.find(kind, VICTIM, &name).await?));
                }
            }
        }
    }
    let running = env.start().await?;
    for kind in KINDS {
        let names = before.iter().filter(|(of, ..)| *of == kind);
        let names: Vec<_> = names.map(|(_, name, _)| name.as_str()).collect();
        let spec = json!({
            "kind": kind.name(), "names": names, "adoptionPolicy": "Always", "recreatePolicy": "IfNeeded",
        });
        let status = env.attack(kind.plural(), spec).await?;
        assert_eq!(
            (status.conflicts as usize, status.synced),
            (names.len(), 0),
            "{status:?}"
        );
    }
    // An adopted object that becomes immutable later is not deleted either.
    env.make(Kind::Secret, VICTIM, &Kind::Secret.object("late", "own"))
        .await?;
    env.make(Kind::Secret, MALLORY, &Kind::Secret.object("late", "1"))
        .await?;
    let spec = json!({ "names": ["late"], "adoptionPolicy": "Always", "recreatePolicy": "IfNeeded" });
    env.attack("late", spec).await?;
    let adopted = env.find(Kind::Secret, VICTIM, "late").await?;
    assert!(is_marked(&adopted), "{adopted}");
    env.change(Kind::Secret, VICTIM, "late", json!({ "immutable": true }))
        .await?;
    let changed = json!({ "stringData": { "password": "2" } });
    env.change(Kind::Secret, MALLORY, "late", changed).await?;
    let observed = env
        .wait_for_status(MALLORY, "late", |status| status.failed == 1)
        .await?;
    assert_eq!(observed.status.as_ref().map(|status| status.synced), Some(0));
    env.settle().await;
    let after = env.find(Kind::Secret, VICTIM, "late").await?;
    assert_eq!(after["metadata"]["uid"], adopted["metadata"]["uid"]);
    for (kind, name, object) in &before {
        assert_eq!(&env.find(*kind, VICTIM, name).await?, object, "{name}");
    }
    let writes = env.copy_writes();
    assert!(
        !writes.iter().any(|write| write.starts_with("delete ")),
        "{writes:?}"
    );
    running.stop().await
}

/// Objects that the cluster publishes are neither replaced nor created first: the first one in a new namespace would
/// decide which certificates its pods trust. By both front ends.
pub(crate) async fn reserved_names_are_never_written(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.namespace(MALLORY, json!({})).await?;
    let reserved = [
        (Kind::ConfigMap, "kube-root-ca.crt"),
        (Kind::ConfigMap, "openshift-service-ca.crt"),
        (Kind::ConfigMap, "istio-ca-root-cert"),
        (Kind::ConfigMap, "sh.helm.release.v1.shop.v1"),
        (Kind::Secret, "sh.helm.release.v1.shop.v1"),
        (Kind::Secret, "bootstrap-token-abcdef"),
    ];
    // One namespace has them, one does not yet; both consent to everything.
    let both = format!("{MALLORY},{HOME}");
    for namespace in [VICTIM, "empty"] {
        env.namespace(namespace, target(&both, Some("*"))).await?;
    }
    let mut before = Vec::new();
    for (kind, name) in reserved {
        let mut object = with(kind.object(name, "own"), &adopt("*"));
        env.make(kind, VICTIM, &object).await?;
        before.push((kind, name, env.find(kind, VICTIM, name).await?));
        object = with(
            kind.object(name, "evil"),
            &json!({ "metadata": { "annotations": { SYNC_ANNOTATION: "" } } }),
        );
        for namespace in [MALLORY, HOME] {
            env.make(kind, namespace, &object).await?;
        }
    }
    let running = env.start().await?;
    for kind in KINDS {
        let names = reserved.iter().filter(|(of, _)| *of == kind);
        let names: Vec<_> = names.map(|(_, name)| *name).collect();
        for policy in POLICIES {
            for (how, mut spec) in [
                ("named", json!({ "names": names })),
                ("selected", json!({ "sourceSelector": {} })),
            ] {
                spec["kind"] = kind.name().into();
                spec["adoptionPolicy"] = policy.into();
                spec["recreatePolicy"] = "IfNeeded".into();
                let name = format!("{how}-{}-{}", policy.to_lowercase(), kind.plural());
                let status = env.attack(&name, spec).await?;
                assert_eq!(status.synced, 0, "{name}: {status:?}");
                // It is reported if it is named, and not if it is only selected.
                assert_eq!(status.failed > 0, how == "named", "{name}: {status:?}");
            }
        }
    }
    env.settle().await;
    for (kind, name, object) in &before {
        assert_eq!(&env.find(*kind, VICTIM, name).await?, object, "{name}");
        assert!(env.find(*kind, "empty", name).await.is_err(), "{name}");
    }
    assert_eq!(env.copy_writes(), [""; 0]);
    running.stop().await
}

/// Tokens and releases are not adopted, although their namespace consents to everything.
pub(crate) async fn protected_types_are_never_adopted(case: Case) -> anyhow::Result<()> {
    let env = attacked(&case, Some(MALLORY)).await?;
    let robot = json!({ "metadata": { "name": "robot" } });
    env.in_namespace(VICTIM)
        .create::<windlass::k8s_openapi::api::core::v1::ServiceAccount>(from_value(robot)?)
        .await?;
    let mut before = Vec::new();
    for (name, of) in [
        ("token", "kubernetes.io/service-account-token"),
        ("release", "helm.sh/release.v1"),
        ("bootstrap", "bootstrap.kubernetes.io/token"),
    ] {
        let typed = json!({
            "type": of,
            "metadata": { "annotations": { "kubernetes.io/service-account.name": "robot", ADOPT: MALLORY } },
        });
        let object = with(Kind::Secret.object(name, "guess"), &typed);
        env.make(Kind::Secret, VICTIM, &object).await?;
        before.push((name, env.find(Kind::Secret, VICTIM, name).await?));
        env.make(Kind::Secret, MALLORY, &Kind::Secret.object(name, "guess"))
            .await?;
    }
    let running = env.start().await?;
    let names: Vec<_> = before.iter().map(|(name, _)| *name).collect();
    for policy in POLICIES {
        let spec = json!({ "names": names, "adoptionPolicy": policy, "recreatePolicy": "IfNeeded" });
        let status = env.attack(&policy.to_lowercase(), spec).await?;
        assert_eq!((status.conflicts, status.synced), (3, 0), "{policy}: {status:?}");
        // The next sync must not conflict with this one.
        let sync = policy.to_lowercase();
        env.in_namespace(MALLORY).delete::<SecretSync>(&sync).await?;
        env.in_namespace(MALLORY)
            .wait_until_deleted::<SecretSync>(&sync)
            .await?;
    }
    for (name, object) in &before {
        assert_eq!(&env.find(Kind::Secret, VICTIM, name).await?, object, "{name}");
    }
    assert_eq!(env.updates_and_deletions(VICTIM), [""; 0]);
    running.stop().await
}

/// The sync whose copy exists keeps it: neither an older nor an annotated sync may replace another source's copy.
pub(crate) async fn older_sync_does_not_replace_a_copy_of_another_source(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    for namespace in [MALLORY, "bob"] {
        env.namespace(namespace, json!({})).await?;
    }
    let all = format!("{MALLORY},bob,{HOME}");
    env.namespace(VICTIM, target(&all, None)).await?;
    let running = env.start().await?;
    for kind in KINDS {
        for name in ["token", "annotated"] {
            env.make(kind, MALLORY, &kind.object(name, "evil")).await?;
            env.make(kind, "bob", &kind.object(name, "good")).await?;
        }
        env.make(kind, HOME, &kind.object("annotated", "evil")).await?;
        // An older sync that does not want the name yet.
        let spec = json!({ "kind": kind.name(), "names": ["nothing"], "adoptionPolicy": "Always" });
        env.attack(kind.plural(), spec).await?;
    }
    // Creation timestamps have a resolution of one second.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let mut before = Vec::new();
    for kind in KINDS {
        let spec = json!({ "kind": kind.name(), "names": ["token", "annotated"] });
        env.sync("bob", kind.plural(), spec).await?;
        env.wait_for_status("bob", kind.plural(), |status| status.synced == 2)
            .await?;
        for name in ["token", "annotated"] {
            before.push((kind, name, env.find(kind, VICTIM, name).await?));
        }
    }
    env.proxy().clear();
    for kind in KINDS {
        let widened = json!({ "spec": { "names": ["token"] } });
        env.in_namespace(MALLORY)
            .patch::<SecretSync>(kind.plural(), widened)
            .await?;
        let annotated = json!({ "metadata": { "annotations": { SYNC_ANNOTATION: "" } } });
        env.change(kind, HOME, "annotated", annotated).await?;
        let status = env.wait_for_status(MALLORY, kind.plural(), |status| status.conflicts == 1);
        status.await?;
    }
    env.settle().await;
    for (kind, name, object) in &before {
        assert_eq!(&env.find(*kind, VICTIM, name).await?, object, "{name}");
    }
    // The owner of the copy keeps it up to date.
    let changed = json!({ "data": null });
    env.change(Kind::ConfigMap, "bob", "token", changed).await?;
    let emptied = |object: &Value| object["data"].is_null();
    env.wait_for_object(Kind::ConfigMap, VICTIM, "token", emptied)
        .await?;
    env.wait_for_status("bob", "configmaps", |status| status.synced == 2)
        .await?;
    // When it is released, the other sync gets the name.
    env.in_namespace("bob").delete::<SecretSync>("configmaps").await?;
    let evil = |object: &Value| object["data"]["password"] == "evil";
    env.wait_for_object(Kind::ConfigMap, VICTIM, "token", evil)
        .await?;
    running.stop().await
}

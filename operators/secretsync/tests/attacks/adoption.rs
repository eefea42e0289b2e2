//! Adoption with the target's consent, and attempts to get adopted objects deleted.

use anyhow::Context as _;
use windlass::{prelude::*, serde_json::Value};
use windlass_secretsync::SecretSync;
use windlass_suite::{Context as Case, RunningManager};

use crate::attacks::{
    fixture::{
        ADOPT, KINDS, Kind, MALLORY, POLICIES, VICTIM, adopt, attacked, is_managed, is_marked, target, with,
    },
    test_cluster::TestCluster,
};

/// The annotation of `kubectl apply`.
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Only the source's policy and the target's consent together adopt, and only what the policy allows.
pub(crate) async fn adoption_needs_policy_and_target_consent(case: Case) -> anyhow::Result<()> {
    let consents: [(&str, Option<&str>, Option<&str>); 5] = [
        ("nobody", None, None),
        ("other", Some("true,bob"), Some("bob")),
        ("by-namespace", Some(MALLORY), None),
        ("by-object", None, Some(MALLORY)),
        ("nonsense", Some("No Name"), Some("No Name")),
    ];
    let env = TestCluster::new(&case).await?;
    env.namespace(MALLORY, json!({})).await?;
    let mut objects = Vec::new();
    for (namespace, by_namespace, by_object) in consents {
        env.namespace(namespace, target(MALLORY, by_namespace)).await?;
        for kind in KINDS {
            for policy in POLICIES {
                for value in ["same", "differs"] {
                    let name = format!("{}-{value}", policy.to_lowercase());
                    let more = by_object.map_or(json!({}), adopt);
                    let object = with(kind.object(&name, value), &more);
                    let made = env.make(kind, namespace, &object).await?;
                    objects.push((namespace, kind, policy, value, name, made));
                }
            }
        }
    }
    for kind in KINDS {
        for policy in POLICIES {
            for value in ["same", "differs"] {
                let name = format!("{}-{value}", policy.to_lowercase());
                env.make(kind, MALLORY, &kind.object(&name, "same")).await?;
            }
        }
    }
    let running = env.start().await?;
    for kind in KINDS {
        for policy in POLICIES {
            let prefix = policy.to_lowercase();
            let names = ["same", "differs"].map(|value| format!("{prefix}-{value}"));
            let spec = json!({ "kind": kind.name(), "names": names, "adoptionPolicy": policy });
            env.attack(&format!("{prefix}-{}", kind.plural()), spec).await?;
        }
    }
    for (namespace, kind, policy, value, name, made) in objects {
        let is_adopted = matches!(
            (policy, namespace, value),
            ("Always", "by-namespace" | "by-object", _) | ("IfIdentical", "by-object", "same")
        );
        let found = env.find(kind, namespace, &name).await?;
        let what = format!("{kind:?} {name} in {namespace}");
        assert_eq!(is_marked(&found), is_adopted, "{what}");
        assert_eq!(found["metadata"]["uid"], made["metadata"]["uid"], "{what}");
        if is_adopted {
            let same = env.find(kind, MALLORY, &name).await?;
            assert_eq!(found["data"], same["data"], "{what}");
        } else {
            assert_eq!(found, made, "{what}");
        }
    }
    running.stop().await
}

/// What ends the sync of an adopted object.
const ENDS: [&str; 9] = [
    "the SecretSync is deleted",
    "the source is deleted",
    "the source is recreated",
    "the name is taken out",
    "the namespace is deselected",
    "the namespace withdraws its consent",
    "the namespace withdraws its consent to adoption",
    "the SecretSync is deleted while no process runs",
    "the spec becomes invalid and the SecretSync is deleted",
];

async fn end(env: &TestCluster, kind: Kind, how: &str) -> anyhow::Result<()> {
    let mallory = env.in_namespace(MALLORY);
    let spec = |spec: Value| json!({ "spec": spec });
    match how {
        "the SecretSync is deleted" => mallory.delete::<SecretSync>("grab").await?,
        "the source is deleted" => env.remove(kind, MALLORY, "token").await?,
        "the source is recreated" => {
            // So that it does not adopt again.
            let never = spec(json!({ "adoptionPolicy": "Never" }));
            mallory.patch::<SecretSync>("grab", never).await?;
            env.remove(kind, MALLORY, "token").await?;
            env.make(kind, MALLORY, &kind.object("token", "evil")).await?;
        }
        "the name is taken out" => {
            let nothing = spec(json!({ "names": ["nothing"] }));
            mallory.patch::<SecretSync>("grab", nothing).await?;
        }
        "the namespace is deselected" => {
            let nowhere = spec(json!({ "namespaceSelector": { "matchLabels": { "no": "where" } } }));
            mallory.patch::<SecretSync>("grab", nowhere).await?;
        }
        "the namespace withdraws its consent" => {
            env.patch_namespace(VICTIM, target("false", Some(MALLORY)))
                .await?;
        }
        "the namespace withdraws its consent to adoption" => {
            env.patch_namespace(VICTIM, target(MALLORY, Some("false")))
                .await?;
        }
        "the SecretSync is deleted while no process runs" => {
            let free = json!({ "metadata": { "finalizers": null } });
            mallory.patch::<SecretSync>("grab", free).await?;
            mallory.delete::<SecretSync>("grab").await?;
        }
        _ => {
            let strange = spec(json!({ "namespaceSelector": { "matchLabels": { "no label!": "a" } } }));
            mallory.patch::<SecretSync>("grab", strange).await?;
            mallory.delete::<SecretSync>("grab").await?;
        }
    }
    Ok(())
}

/// A victim whose object was adopted with its namespace's consent.
async fn adopted_object(case: &Case, kind: Kind) -> anyhow::Result<(TestCluster, RunningManager, Value)> {
    let env = attacked(case, Some(MALLORY)).await?;
    let object = with(
        kind.object("token", "own"),
        &json!({ "metadata": { "labels": { "own": "yes" }, "annotations": { APPLIED: "{\"own\":1}" } } }),
    );
    let before = env.make(kind, VICTIM, &object).await?;
    // An immutable object stays immutable.
    let source = json!({ "immutable": true, "metadata": { "annotations": { APPLIED: "evil" } } });
    env.make(kind, MALLORY, &with(kind.object("token", "evil"), &source))
        .await?;
    let running = env.start().await?;
    let spec = json!({ "kind": kind.name(), "names": ["token"], "adoptionPolicy": "Always", "recreatePolicy": "IfNeeded" });
    let status = env.attack("grab", spec).await?;
    assert_eq!(status.synced, 1, "{status:?}");
    Ok((env, running, before))
}

/// It stays, with the same UID and its current data, and without our label, annotations and managed fields.
async fn assert_released(env: &TestCluster, kind: Kind, before: &Value) -> anyhow::Result<()> {
    env.wait_for_object(kind, VICTIM, "token", |object| !is_marked(object))
        .await?;
    env.settle().await;
    let after = env.find(kind, VICTIM, "token").await?;
    let source_data = with(kind.object("token", "evil"), &json!({}));
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["metadata"]["labels"], json!({ "own": "yes" }));
    assert_eq!(
        after["metadata"]["annotations"],
        json!({ APPLIED: "{\"own\":1}" })
    );
    assert!(after["immutable"].is_null(), "{after}");
    assert!(!is_managed(&after), "{after}");
    let value = match kind {
        Kind::Secret => json!("ZXZpbA=="),
        Kind::ConfigMap => source_data["data"]["password"].clone(),
    };
    assert_eq!(after["data"]["password"], value);
    let deleted = env.copy_writes();
    assert!(
        !deleted.iter().any(|write| write.starts_with("delete ")),
        "{deleted:?}"
    );
    Ok(())
}

/// Adopting an object and ending the sync does not delete it. While a process runs, and while none does.
pub(crate) async fn adopted_objects_are_released_by_every_removal(case: Case) -> anyhow::Result<()> {
    for (number, how) in ENDS.into_iter().enumerate() {
        for is_down in [false, true] {
            // Both kinds in turn: what ends a sync does not depend on the kind.
            let kind = KINDS[(number + usize::from(is_down)) % 2];
            let case = case.fresh().await?;
            let (env, running, before) = adopted_object(&case, kind).await?;
            let is_gone_first = how == "the SecretSync is deleted while no process runs";
            let running = if is_down || is_gone_first {
                running.stop().await?;
                end(&env, kind, how).await?;
                env.start().await?
            } else {
                end(&env, kind, how).await?;
                running
            };
            let released = assert_released(&env, kind, &before).await;
            released.with_context(|| format!("{how}, {kind:?}, down: {is_down}"))?;
            running.stop().await?;
        }
    }
    Ok(())
}

/// Consent on the object is withdrawn there, and the next change of the source no longer reaches it.
pub(crate) async fn withdrawn_consent_releases_at_once(case: Case) -> anyhow::Result<()> {
    for kind in KINDS {
        for policy in ["IfIdentical", "Always"] {
            let case = case.fresh().await?;
            let env = attacked(&case, None).await?;
            let object = with(kind.object("token", "1"), &adopt(MALLORY));
            let before = env.make(kind, VICTIM, &object).await?;
            env.make(kind, MALLORY, &kind.object("token", "1")).await?;
            let running = env.start().await?;
            let spec = json!({ "kind": kind.name(), "names": ["token"], "adoptionPolicy": policy });
            let status = env.attack("grab", spec).await?;
            assert_eq!(status.synced, 1, "{status:?}");
            let adopted = env.find(kind, VICTIM, "token").await?;
            assert_eq!(adopted["metadata"]["uid"], before["metadata"]["uid"]);
            let withdrawn = json!({ "metadata": { "annotations": { ADOPT: null } } });
            env.change(kind, VICTIM, "token", withdrawn).await?;
            let released = |object: &Value| !is_marked(object);
            env.within_two_seconds("a release", env.wait_for_object(kind, VICTIM, "token", released))
                .await?;
            env.settle().await;
            let left = env.find(kind, VICTIM, "token").await?;
            assert!(!is_managed(&left), "{left}");
            let changed = json!({ "metadata": { "labels": { "changed": "yes" } } });
            env.change(kind, MALLORY, "token", changed).await?;
            env.wait_for_status(MALLORY, "grab", |status| status.conflicts == 1)
                .await?;
            env.settle().await;
            assert_eq!(env.find(kind, VICTIM, "token").await?, left);
            running.stop().await?;
        }
    }
    Ok(())
}

/// A value that looks like a mistake releases nothing, and an object whose consent is not clear is not updated.
pub(crate) async fn mistaken_adopt_releases_nothing(case: Case) -> anyhow::Result<()> {
    for kind in KINDS {
        let case = case.fresh().await?;
        let env = attacked(&case, None).await?;
        let object = with(kind.object("token", "1"), &adopt(MALLORY));
        env.make(kind, VICTIM, &object).await?;
        env.make(kind, MALLORY, &kind.object("token", "1")).await?;
        let running = env.start().await?;
        let spec = json!({ "kind": kind.name(), "names": ["token"], "adoptionPolicy": "Always" });
        let status = env.attack("grab", spec).await?;
        assert_eq!(status.synced, 1, "{status:?}");
        let mistaken = env.change(kind, VICTIM, "token", adopt("true,mallory")).await?;
        env.change(kind, MALLORY, "token", kind.object("token", "2"))
            .await?;
        env.wait_for_status(MALLORY, "grab", |status| {
            status
                .failures
                .iter()
                .any(|failure| failure.reason == "InvalidConsent")
        })
        .await?;
        env.settle().await;
        assert_eq!(env.find(kind, VICTIM, "token").await?, mistaken, "{kind:?}");
        env.change(kind, VICTIM, "token", adopt("false")).await?;
        env.wait_for_object(kind, VICTIM, "token", |object| !is_marked(object))
            .await?;
        running.stop().await?;
    }
    Ok(())
}

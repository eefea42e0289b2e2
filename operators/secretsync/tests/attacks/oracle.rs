//! Attempts to learn the content of another namespace's object.

use std::collections::BTreeSet;

use windlass::{prelude::*, serde_json::Value};
use windlass_secretsync::{SecretSync, SecretSyncStatus};
use windlass_suite::Context as Case;

use crate::attacks::{
    fixture::{KINDS, MALLORY, POLICIES, VICTIM, attacked, target, with},
    test_cluster::{TestCluster, condition, namespace_of},
};

/// What the sync's owner sees, without the name of the target.
fn seen(status: &SecretSyncStatus, namespace: &str) -> String {
    let failures: Vec<_> = status
        .failures
        .iter()
        .map(|one| (&one.name, &one.reason, &one.message))
        .collect();
    let conditions: Vec<_> = status
        .conditions
        .iter()
        .map(|one| (&one.type_, &one.status, &one.reason, &one.message))
        .collect();
    let counts = (status.targets, status.synced, status.failed, status.conflicts);
    format!("{counts:?} {failures:?} {conditions:?}").replace(namespace, "the target")
}

/// A right guess and a wrong one look the same: in the status, in events, and in the requests. Also where the
/// namespace consents to adoption, and where the object cannot be overwritten.
pub(crate) async fn status_and_events_do_not_depend_on_the_value(case: Case) -> anyhow::Result<()> {
    for adopt in [None, Some(MALLORY)] {
        let case = case.fresh().await?;
        let env = TestCluster::new(&case).await?;
        env.namespace(MALLORY, json!({})).await?;
        let guesses = ["right", "wrong"];
        for guess in guesses {
            env.namespace(guess, target(MALLORY, adopt)).await?;
            for kind in KINDS {
                for (name, more) in [("plain", json!({})), ("fixed", json!({ "immutable": true }))] {
                    env.make(kind, guess, &with(kind.object(name, guess), &more))
                        .await?;
                }
            }
        }
        for kind in KINDS {
            for name in ["plain", "fixed"] {
                env.make(kind, MALLORY, &kind.object(name, "right")).await?;
            }
        }
        let running = env.start().await?;
        for kind in KINDS {
            for policy in POLICIES {
                for name in ["plain", "fixed"] {
                    let mut found = Vec::new();
                    for guess in guesses {
                        env.proxy().clear();
                        let only = json!({ "matchLabels": { "kubernetes.io/metadata.name": guess } });
                        let spec = json!({
                            "kind": kind.name(), "names": [name], "namespaceSelector": only,
                            "adoptionPolicy": policy, "recreatePolicy": "IfNeeded",
                        });
                        let status = env.attack(guess, spec).await?;
                        let sync = env.in_namespace(MALLORY).get::<SecretSync>(guess).await?;
                        let events = env.in_namespace(MALLORY).events(&sync).await?;
                        let events: Vec<_> = events
                            .iter()
                            .map(|event| (event.reason.clone(), event.message.clone()))
                            .collect();
                        let sent = env.proxy().requests();
                        // Only which requests are made; their number depends on time.
                        let requests: BTreeSet<_> = sent
                            .iter()
                            .filter(|sent| namespace_of(sent) == guess)
                            .map(|sent| match sent.resource() {
                                // The name of an event contains the time.
                                "events" => ("event".to_owned(), sent.body["message"].to_string()),
                                _ => (sent.to_string(), sent.accept.clone()),
                            })
                            .collect();
                        if adopt.is_none() {
                            // An object that may not be compared is not read.
                            let mut reads = requests.iter().filter(|(sent, _)| sent.starts_with("get "));
                            assert!(
                                reads.all(|(_, accept)| accept.contains("PartialObjectMetadata")),
                                "{requests:?}"
                            );
                        }
                        let shown = format!("{} {events:?} {requests:?}", seen(&status, guess));
                        found.push(shown.replace(guess, "the target"));
                        env.in_namespace(MALLORY).delete::<SecretSync>(guess).await?;
                        env.in_namespace(MALLORY)
                            .wait_until_deleted::<SecretSync>(guess)
                            .await?;
                        env.settle().await;
                    }
                    assert_eq!(found[0], found[1], "{kind:?} {policy} {name}, {adopt:?}");
                }
            }
        }
        running.stop().await?;
    }
    Ok(())
}

/// A tenant does not learn which syncs other tenants have.
pub(crate) async fn status_does_not_name_syncs_of_other_namespaces(case: Case) -> anyhow::Result<()> {
    let env = attacked(&case, None).await?;
    env.namespace("bob", json!({})).await?;
    let both = format!("{MALLORY},bob");
    env.patch_namespace(VICTIM, target(&both, None)).await?;
    for kind in KINDS {
        for namespace in [MALLORY, "bob"] {
            env.make(kind, namespace, &kind.object("token", "1")).await?;
        }
    }
    let running = env.start().await?;
    for kind in KINDS {
        let spec = json!({ "kind": kind.name(), "names": ["token"] });
        let sync = format!("hush-{}", kind.plural());
        env.sync("bob", &sync, spec.clone()).await?;
        env.wait_for_status("bob", &sync, |status| status.synced == 1)
            .await?;
        let status = env.attack(kind.plural(), spec).await?;
        assert!(condition(&status, "Conflict", "True"), "{status:?}");
        let shown: Value = serde_json::to_value(&status)?;
        assert!(
            !shown.to_string().contains("hush") && !shown.to_string().contains("bob"),
            "{shown}"
        );
    }
    running.stop().await
}

/// Those who can read the metadata of a copy, but not its data, learn nothing about the values: not even that they have
/// changed, except by its resource version.
pub(crate) async fn metadata_of_copies_does_not_depend_on_the_value(case: Case) -> anyhow::Result<()> {
    let env = attacked(&case, None).await?;
    let running = env.start().await?;
    for kind in KINDS {
        env.make(kind, MALLORY, &kind.object("token", "4711")).await?;
        env.sync(
            MALLORY,
            kind.plural(),
            json!({ "kind": kind.name(), "names": ["token"] }),
        )
        .await?;
        let mut seen = Vec::new();
        for (value, encoded) in [("4711", "NDcxMQ=="), ("4712", "NDcxMg==")] {
            let has = |copy: &Value| {
                [value, encoded]
                    .map(Value::from)
                    .contains(&copy["data"]["password"])
            };
            env.change(kind, MALLORY, "token", kind.object("token", value))
                .await?;
            env.wait_for_object(kind, VICTIM, "token", has).await?;
            let mut metadata = env.find(kind, VICTIM, "token").await?["metadata"].clone();
            for field in ["resourceVersion", "managedFields"] {
                metadata.as_object_mut().and_then(|fields| fields.remove(field));
            }
            seen.push(metadata);
        }
        assert_eq!(seen[0], seen[1], "{kind:?}");
    }
    running.stop().await
}

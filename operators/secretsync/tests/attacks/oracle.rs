//! Attempts to learn what another namespace's object holds.

use std::collections::BTreeSet;

use windlass::{prelude::*, serde_json::Value};
use windlass_secretsync::{SecretSync, SecretSyncStatus};
use windlass_suite::Context as Case;

use crate::{
    stage::{KINDS, MALLORY, POLICIES, VICTIM, attacked, target, with},
    world::{World, condition, namespace_of},
};

/// What the sync's owner sees, without what names the target.
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

/// A guess that is right and one that is wrong look the same: in the status, in events, and by which requests are made. Also
/// where the namespace consents to adoption, and where the object cannot be overwritten.
pub(crate) async fn status_and_events_do_not_depend_on_the_value(case: Case) -> anyhow::Result<()> {
    for adopt in [None, Some(MALLORY)] {
        let case = case.anew().await?;
        let world = World::new(&case).await?;
        world.namespace(MALLORY, json!({})).await?;
        let guesses = ["right", "wrong"];
        for guess in guesses {
            world.namespace(guess, target(MALLORY, adopt)).await?;
            for kind in KINDS {
                for (name, more) in [("plain", json!({})), ("fixed", json!({ "immutable": true }))] {
                    world
                        .make(kind, guess, &with(kind.object(name, guess), &more))
                        .await?;
                }
            }
        }
        for kind in KINDS {
            for name in ["plain", "fixed"] {
                world.make(kind, MALLORY, &kind.object(name, "right")).await?;
            }
        }
        let running = world.start().await?;
        for kind in KINDS {
            for policy in POLICIES {
                for name in ["plain", "fixed"] {
                    let mut found = Vec::new();
                    for guess in guesses {
                        world.wire().forget();
                        let only = json!({ "matchLabels": { "kubernetes.io/metadata.name": guess } });
                        let spec = json!({
                            "kind": kind.name(), "names": [name], "namespaceSelector": only,
                            "adoptionPolicy": policy, "recreate": "IfNeeded",
                        });
                        let status = world.attack(guess, spec).await?;
                        let sync = world.within(MALLORY).get::<SecretSync>(guess).await?;
                        let events = world.within(MALLORY).told_of(&sync).await?;
                        let events: Vec<_> = events
                            .iter()
                            .map(|event| (event.reason.clone(), event.message.clone()))
                            .collect();
                        let sent = world.wire().sent();
                        // What is asked; how often it is asked is a matter of time.
                        let requests: BTreeSet<_> = sent
                            .iter()
                            .filter(|sent| namespace_of(sent) == guess)
                            .map(|sent| (sent.to_string(), sent.accept.clone()))
                            .collect();
                        if adopt.is_none() {
                            // What may not be compared is not read.
                            let mut reads = requests.iter().filter(|(sent, _)| sent.starts_with("get "));
                            assert!(
                                reads.all(|(_, accept)| accept.contains("PartialObjectMetadata")),
                                "{requests:?}"
                            );
                        }
                        let shown = format!("{} {events:?} {requests:?}", seen(&status, guess));
                        found.push(shown.replace(guess, "the target"));
                        world.within(MALLORY).delete::<SecretSync>(guess).await?;
                        world.within(MALLORY).wait_gone::<SecretSync>(guess).await?;
                        world.settle().await;
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
pub(crate) async fn status_names_no_sync_of_another_namespace(case: Case) -> anyhow::Result<()> {
    let world = attacked(&case, None).await?;
    world.namespace("bob", json!({})).await?;
    let both = format!("{MALLORY},bob");
    world.patch_namespace(VICTIM, target(&both, None)).await?;
    for kind in KINDS {
        for namespace in [MALLORY, "bob"] {
            world.make(kind, namespace, &kind.object("token", "1")).await?;
        }
    }
    let running = world.start().await?;
    for kind in KINDS {
        let spec = json!({ "kind": kind.name(), "names": ["token"] });
        let sync = format!("hush-{}", kind.plural());
        world.sync("bob", &sync, spec.clone()).await?;
        world.says("bob", &sync, |status| status.synced == 1).await?;
        let status = world.attack(kind.plural(), spec).await?;
        assert!(condition(&status, "Conflict", "True"), "{status:?}");
        let shown: Value = serde_json::to_value(&status)?;
        assert!(
            !shown.to_string().contains("hush") && !shown.to_string().contains("bob"),
            "{shown}"
        );
    }
    running.stop().await
}

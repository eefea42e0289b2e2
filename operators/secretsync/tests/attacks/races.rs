//! Between the look and the write: what the target's owner does in that moment counts.

use std::time::Duration;

use windlass::{prelude::*, serde_json::Value};
use windlass_secretsync::api::{SOURCE_UID, SYNCED_BY};
use windlass_suite::{Context as Case, Sent};

use crate::{
    stage::{ADOPT, KINDS, Kind, MALLORY, VICTIM, adopt, attacked, is_marked, with},
    world::{World, namespace_of},
};

fn is_of_victim(kind: Kind, verb: &'static str) -> impl Fn(&Sent) -> bool + Clone + Send + 'static {
    move |sent| {
        sent.access.verb == verb && sent.is_about(kind.plural(), "token") && namespace_of(sent) == VICTIM
    }
}

/// The owner makes a copy their own: without our label it is none.
async fn take_over(world: &World, kind: Kind) -> anyhow::Result<Value> {
    let own = json!({ "metadata": { "labels": { SOURCE_UID: null }, "annotations": { SYNCED_BY: null } } });
    world.change(kind, VICTIM, "token", own).await
}

/// A deletion is for the version that was looked at.
pub(crate) async fn marks_removed_before_a_delete_keep_the_object(case: Case) -> anyhow::Result<()> {
    for kind in KINDS {
        let case = case.anew().await?;
        let world = attacked(&case, None).await?;
        world.make(kind, MALLORY, &kind.object("token", "1")).await?;
        let running = world.start().await?;
        let spec = json!({ "kind": kind.name(), "names": ["token"] });
        let status = world.attack("copy", spec).await?;
        assert_eq!(status.synced, 1, "{status:?}");
        let deleted = is_of_victim(kind, "delete");
        world.wire().delay(1, Duration::from_secs(1), deleted.clone());
        world.remove(kind, MALLORY, "token").await?;
        world.wire().seen(deleted).await?;
        let own = take_over(&world, kind).await?;
        world.settle().await;
        assert_eq!(world.find(kind, VICTIM, "token").await?, own, "{kind:?}");
        running.stop().await?;
    }
    Ok(())
}

/// What is read before an update has to be a copy still.
pub(crate) async fn marks_removed_before_an_update_keep_the_object(case: Case) -> anyhow::Result<()> {
    for kind in KINDS {
        let case = case.anew().await?;
        let world = attacked(&case, None).await?;
        world.make(kind, MALLORY, &kind.object("token", "1")).await?;
        let running = world.start().await?;
        let spec = json!({ "kind": kind.name(), "names": ["token"], "adoptionPolicy": "Always" });
        let status = world.attack("copy", spec).await?;
        assert_eq!(status.synced, 1, "{status:?}");
        let read = is_of_victim(kind, "get");
        // It is known as a copy when the work begins, and is none any more when it is read.
        world.wire().delay(1, Duration::from_secs(1), read.clone());
        world
            .change(
                kind,
                MALLORY,
                "token",
                json!({ "metadata": { "labels": { "changed": "yes" } } }),
            )
            .await?;
        world.wire().seen(read).await?;
        let own = take_over(&world, kind).await?;
        world.settle().await;
        assert_eq!(world.find(kind, VICTIM, "token").await?, own, "{kind:?}");
        running.stop().await?;
    }
    Ok(())
}

/// An adoption is for the version that consents.
pub(crate) async fn consent_withdrawn_before_an_adoption_stops_it(case: Case) -> anyhow::Result<()> {
    for kind in KINDS {
        // Before the object is read whole, and after; and by putting another one in its place.
        for (verb, is_replaced) in [("get", false), ("update", false), ("get", true), ("update", true)] {
            let case = case.anew().await?;
            let world = attacked(&case, None).await?;
            let object = with(kind.object("token", "own"), &adopt(MALLORY));
            world.make(kind, VICTIM, &object).await?;
            world.make(kind, MALLORY, &kind.object("token", "evil")).await?;
            let running = world.start().await?;
            world.settle().await;
            let concerned = is_of_victim(kind, verb);
            let delayed = move |sent: &Sent| {
                concerned(sent) && (verb == "update" || !sent.accept.contains("PartialObjectMetadata"))
            };
            world.wire().delay(1, Duration::from_secs(1), delayed.clone());
            let spec = json!({ "kind": kind.name(), "names": ["token"], "adoptionPolicy": "Always" });
            world.sync(MALLORY, "grab", spec).await?;
            world.wire().seen(delayed).await?;
            let own = if is_replaced {
                world.remove(kind, VICTIM, "token").await?;
                world.make(kind, VICTIM, &kind.object("token", "own")).await?
            } else {
                let withdrawn = json!({ "metadata": { "annotations": { ADOPT: null } } });
                world.change(kind, VICTIM, "token", withdrawn).await?
            };
            world
                .says(MALLORY, "grab", |status| status.conflicts == 1)
                .await?;
            world.settle().await;
            let left = world.find(kind, VICTIM, "token").await?;
            assert!(!is_marked(&left), "{left}");
            assert_eq!(left, own, "{kind:?} {verb} {is_replaced}");
            running.stop().await?;
        }
    }
    Ok(())
}

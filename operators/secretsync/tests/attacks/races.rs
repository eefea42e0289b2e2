//! Races between our read and our write: what the target's owner does in between takes effect.

use std::time::Duration;

use windlass::{prelude::*, serde_json::Value};
use windlass_secretsync::api::{SOURCE_UID_LABEL, SYNCED_BY_ANNOTATION};
use windlass_suite::{Context as Case, RecordedRequest};

use crate::attacks::{
    fixture::{ADOPT, KINDS, Kind, MALLORY, VICTIM, adopt, attacked, is_marked, with},
    test_cluster::{TestCluster, namespace_of},
};

fn is_of_victim(
    kind: Kind,
    verb: &'static str,
) -> impl Fn(&RecordedRequest) -> bool + Clone + Send + 'static {
    move |sent| {
        sent.access.verb == verb && sent.is_about(kind.plural(), "token") && namespace_of(sent) == VICTIM
    }
}

/// The owner takes over a copy: without our label it is no longer one.
async fn take_over(env: &TestCluster, kind: Kind) -> anyhow::Result<Value> {
    let own = json!({ "metadata": { "labels": { SOURCE_UID_LABEL: null }, "annotations": { SYNCED_BY_ANNOTATION: null } } });
    env.change(kind, VICTIM, "token", own).await
}

/// A deletion is conditional on the resource version that was read.
pub(crate) async fn removing_our_label_before_a_delete_keeps_the_object(case: Case) -> anyhow::Result<()> {
    for kind in KINDS {
        let case = case.fresh().await?;
        let env = attacked(&case, None).await?;
        env.make(kind, MALLORY, &kind.object("token", "1")).await?;
        let running = env.start().await?;
        let spec = json!({ "kind": kind.name(), "names": ["token"] });
        let status = env.attack("copy", spec).await?;
        assert_eq!(status.synced, 1, "{status:?}");
        let deleted = is_of_victim(kind, "delete");
        env.proxy().delay(1, Duration::from_secs(1), deleted.clone());
        env.remove(kind, MALLORY, "token").await?;
        env.proxy().wait_until_sent(deleted).await?;
        let own = take_over(&env, kind).await?;
        env.settle().await;
        assert_eq!(env.find(kind, VICTIM, "token").await?, own, "{kind:?}");
        running.stop().await?;
    }
    Ok(())
}

/// An object that is updated must still be a copy: when it is read first, because it has metadata of others, and when it
/// is not.
pub(crate) async fn removing_our_label_before_an_update_keeps_the_object(case: Case) -> anyhow::Result<()> {
    for (kind, verb) in KINDS
        .into_iter()
        .flat_map(|kind| ["get", "update"].map(|verb| (kind, verb)))
    {
        let case = case.fresh().await?;
        let env = attacked(&case, None).await?;
        env.make(kind, MALLORY, &kind.object("token", "1")).await?;
        let running = env.start().await?;
        let spec = json!({ "kind": kind.name(), "names": ["token"], "adoptionPolicy": "Always" });
        let status = env.attack("copy", spec).await?;
        assert_eq!(status.synced, 1, "{status:?}");
        if verb == "get" {
            let theirs = json!({ "metadata": { "labels": { "theirs": "yes" } } });
            env.change(kind, VICTIM, "token", theirs).await?;
            env.settle().await;
            env.proxy().clear();
        }
        let request = is_of_victim(kind, verb);
        // It is cached as a copy when the work begins, but no longer one when the request arrives.
        env.proxy().delay(1, Duration::from_secs(1), request.clone());
        env.change(
            kind,
            MALLORY,
            "token",
            json!({ "metadata": { "labels": { "changed": "yes" } } }),
        )
        .await?;
        env.proxy().wait_until_sent(request).await?;
        let own = take_over(&env, kind).await?;
        env.settle().await;
        assert_eq!(env.find(kind, VICTIM, "token").await?, own, "{kind:?} {verb}");
        running.stop().await?;
    }
    Ok(())
}

/// An adoption is conditional on the version that consents.
pub(crate) async fn consent_withdrawn_before_an_adoption_stops_it(case: Case) -> anyhow::Result<()> {
    for kind in KINDS {
        // Before the object is read with content, and after; and by replacing the object.
        for (verb, is_replaced) in [("get", false), ("update", false), ("get", true), ("update", true)] {
            let case = case.fresh().await?;
            let env = attacked(&case, None).await?;
            let object = with(kind.object("token", "own"), &adopt(MALLORY));
            env.make(kind, VICTIM, &object).await?;
            env.make(kind, MALLORY, &kind.object("token", "evil")).await?;
            let running = env.start().await?;
            env.settle().await;
            let concerned = is_of_victim(kind, verb);
            let delayed = move |sent: &RecordedRequest| {
                concerned(sent) && (verb == "update" || !sent.accept.contains("PartialObjectMetadata"))
            };
            env.proxy().delay(1, Duration::from_secs(1), delayed.clone());
            let spec = json!({ "kind": kind.name(), "names": ["token"], "adoptionPolicy": "Always" });
            env.sync(MALLORY, "grab", spec).await?;
            env.proxy().wait_until_sent(delayed).await?;
            let own = if is_replaced {
                env.remove(kind, VICTIM, "token").await?;
                env.make(kind, VICTIM, &kind.object("token", "own")).await?
            } else {
                let withdrawn = json!({ "metadata": { "annotations": { ADOPT: null } } });
                env.change(kind, VICTIM, "token", withdrawn).await?
            };
            env.wait_for_status(MALLORY, "grab", |status| status.conflicts == 1)
                .await?;
            env.settle().await;
            let left = env.find(kind, VICTIM, "token").await?;
            assert!(!is_marked(&left), "{left}");
            assert_eq!(left, own, "{kind:?} {verb} {is_replaced}");
            running.stop().await?;
        }
    }
    Ok(())
}

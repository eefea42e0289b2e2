//! The declarative style.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use windlass::{
    k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Condition},
    kube::{Api, api::DeleteParams},
    prelude::*,
    runtime::CONTROLLER_LABEL,
};
use windlass_suite::{Context as Case, RecordedRequest, RunningManager};

use crate::runtime::{
    fixture::{Fixture, lock},
    garden::{Garden, desired, gardener, gardens},
};

pub(crate) async fn children_are_created_once_with_owner_references(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = RunningManager::start(env.manager().controller(gardener()));
    let garden = env.garden("kitchen", &["herbs", "roots"]).await?;
    env.wait_for::<Garden>("kitchen", |garden| garden.status.is_some())
        .await?;
    for bed in ["herbs", "roots"] {
        let child = env.get::<ConfigMap>(&format!("kitchen-{bed}")).await?;
        assert_eq!(
            child.data.as_ref().map(|data| &data["bed"]),
            Some(&bed.to_owned())
        );
        assert_eq!(
            child.labels().get(CONTROLLER_LABEL).map(String::as_str),
            Some("gardener")
        );
        let [owner] = child.owner_references() else {
            panic!("one owner: {:?}", child.owner_references())
        };
        assert_eq!(
            (&owner.kind, Some(&owner.uid)),
            (&"Garden".to_owned(), garden.metadata.uid.as_ref())
        );
        assert_eq!(
            (owner.controller, owner.block_owner_deletion),
            (Some(true), Some(true))
        );
    }
    env.wait_until_processed().await?;
    assert_eq!(
        env.writes("kitchen"),
        [
            "patch configmaps/kitchen-herbs",
            "patch configmaps/kitchen-roots",
            "patch gardens/kitchen/status"
        ]
    );

    // Neither an irrelevant change nor a restart causes a write.
    env.patch::<Garden>(
        "kitchen",
        json!({ "metadata": { "annotations": { "visited": "yes" } } }),
    )
    .await?;
    env.wait_until_processed().await?;
    running.stop().await?;
    let running = RunningManager::start(env.manager().controller(gardener()));
    env.wait_until_processed().await?;
    assert_eq!(env.writes("kitchen"), [""; 0]);
    running.stop().await
}

pub(crate) async fn condition_has_the_observed_generation(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = RunningManager::start(env.manager().controller(gardener()));
    env.garden("kitchen", &["herbs"]).await?;
    let planted = |beds: usize| {
        move |garden: &Garden| {
            garden
                .status
                .as_ref()
                .is_some_and(|status| status.planted == beds)
        }
    };
    let first = env.wait_for("kitchen", planted(1)).await?;
    env.patch::<Garden>("kitchen", json!({ "spec": { "beds": ["herbs", "roots"] } }))
        .await?;
    let second = env.wait_for("kitchen", planted(2)).await?;
    let condition = |garden: &Garden| -> Condition {
        let conditions = garden.status.as_ref().map(|status| status.conditions.clone());
        conditions.and_then(|mut all| all.pop()).expect("a condition")
    };
    let (first, second) = (condition(&first), condition(&second));
    assert_eq!(
        (first.type_.as_str(), first.status.as_str(), first.reason.as_str()),
        ("Planted", "True", "AllBeds")
    );
    assert_eq!(
        (first.observed_generation, second.observed_generation),
        (Some(1), Some(2))
    );
    assert_eq!(
        first.last_transition_time, second.last_transition_time,
        "the condition did not change"
    );
    running.stop().await
}

pub(crate) async fn undesired_children_are_pruned_and_foreign_objects_stay(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let theirs = |name: &str| -> ConfigMap {
        from_value(json!({ "metadata": { "name": name, "labels": { CONTROLLER_LABEL: "gardener" } } }))
            .expect("a config map")
    };
    env.create(theirs("kitchen-weeds")).await?;
    let running = RunningManager::start(env.manager().controller(gardener()));
    env.garden("kitchen", &["herbs", "roots"]).await?;
    env.garden("other", &["herbs"]).await?;
    env.wait_for::<ConfigMap>("kitchen-roots", |_| true).await?;
    env.patch::<Garden>("kitchen", json!({ "spec": { "beds": ["herbs", "fruit"] } }))
        .await?;
    env.wait_until::<ConfigMap>("kitchen-roots", |bed| bed.is_none())
        .await?;
    env.wait_until_processed().await?;
    for stays in ["kitchen-herbs", "kitchen-fruit", "kitchen-weeds", "other-herbs"] {
        env.get::<ConfigMap>(stays).await?;
    }
    running.stop().await
}

pub(crate) async fn drift_is_corrected_and_foreign_fields_stay(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = RunningManager::start(env.manager().controller(gardener()));
    env.garden("kitchen", &["herbs"]).await?;
    env.wait_for::<ConfigMap>("kitchen-herbs", |_| true).await?;
    env.wait_until_processed().await?;
    env.writes("kitchen");
    env.patch::<ConfigMap>(
        "kitchen-herbs",
        json!({ "data": { "bed": "weeds", "note": "theirs" } }),
    )
    .await?;
    let value = |bed: &ConfigMap, name: &str| bed.data.as_ref().and_then(|data| data.get(name).cloned());
    let repaired = env
        .wait_for::<ConfigMap>("kitchen-herbs", |bed| {
            value(bed, "bed").as_deref() == Some("herbs")
        })
        .await?;
    assert_eq!(value(&repaired, "note").as_deref(), Some("theirs"));
    env.wait_until_processed().await?;
    assert_eq!(env.writes("kitchen"), ["patch configmaps/kitchen-herbs"]);

    case.api::<ConfigMap>()
        .delete("kitchen-herbs", &DeleteParams::default())
        .await?;
    env.wait_for::<ConfigMap>("kitchen-herbs", |bed| bed.uid() != repaired.uid())
        .await?;
    running.stop().await
}

pub(crate) async fn foreign_object_is_reported_and_not_touched(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let theirs: ConfigMap =
        from_value(json!({ "metadata": { "name": "kitchen-herbs" }, "data": { "mine": "yes" } }))?;
    let theirs = env.create(theirs).await?;
    let running = RunningManager::start(env.manager().controller(gardener()));
    let garden = env.garden("kitchen", &["herbs"]).await?;
    let event = env
        .wait_for_event(&garden, |event| {
            event.reason.as_deref() == Some("ErrResourceExists")
        })
        .await?;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    let message = event.message.unwrap_or_default();
    assert!(message.contains("kitchen-herbs"), "{message}");
    assert_eq!(env.get::<ConfigMap>("kitchen-herbs").await?, theirs);
    assert_eq!(env.writes("kitchen"), ["patch gardens/kitchen/status"]);
    let status = env.get::<Garden>("kitchen").await?.status;
    let ready = status
        .as_ref()
        .and_then(|status| status.conditions.of_type("Ready"));
    let shown = ready.map(|ready| (ready.status.as_str(), ready.reason.as_str()));
    assert_eq!(shown, Some(("False", "AlreadyExists")));
    running.stop().await
}

pub(crate) async fn cleanup_runs_before_deletion_and_is_retried(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let tidy = gardens().declare(desired).cleanup(FINALIZER, move |_, _| {
        let attempt = counted.fetch_add(1, Ordering::Relaxed);
        async move {
            // A failed cleanup is retried, and the object waits for it.
            if attempt == 0 {
                Err("the gate is shut".into())
            } else {
                Ok(())
            }
        }
    });
    let running = RunningManager::start(env.manager().controller(tidy));
    env.garden("kitchen", &["herbs"]).await?;
    let garden = env
        .wait_for::<Garden>("kitchen", |garden| garden.status.is_some())
        .await?;
    assert_eq!(garden.finalizers(), [FINALIZER]);
    assert_eq!(tries.load(Ordering::Relaxed), 0);
    case.api::<Garden>()
        .delete("kitchen", &DeleteParams::default())
        .await?;
    env.wait_until::<Garden>("kitchen", |garden| garden.is_none())
        .await?;
    assert_eq!(tries.load(Ordering::Relaxed), 2);
    running.stop().await
}

/// The finalizer of the controllers below.
const FINALIZER: &str = "suite.windlass.dev/tidy";

/// How often the clean-up of each object ran, by UID.
type Cleanups = Arc<Mutex<BTreeMap<String, usize>>>;

/// A gardener whose clean-up deletes the beds, whose deletions trigger the garden again.
fn tidy_gardener(cleanups: &Cleanups) -> Controller<Garden, impl Reconciler + use<>> {
    let counted = Arc::clone(cleanups);
    gardens()
        .declare(desired)
        .cleanup(FINALIZER, move |garden: Arc<Garden>, ctx: Context| {
            let counted = Arc::clone(&counted);
            async move {
                let namespace = garden.namespace().unwrap_or_default();
                let beds = Api::<ConfigMap>::namespaced(ctx.client().clone(), &namespace);
                for bed in &garden.spec.beds {
                    let name = format!("{}-{bed}", garden.name_any());
                    beds.delete(&name, &DeleteParams::default()).await?;
                }
                *lock(&counted)
                    .entry(garden.uid().unwrap_or_default())
                    .or_default() += 1;
                Ok(())
            }
        })
}

/// A server takes the last finalizer for a deletion and answers with the object, which the cache must not show any more.
pub(crate) async fn cleanup_runs_once_for_each_object(case: Case) -> anyhow::Result<()> {
    const GARDENS: usize = 40;
    let env = Fixture::new(&case).await?;
    let cleanups = Cleanups::default();
    let running = RunningManager::start(env.manager().controller(tidy_gardener(&cleanups)));
    let names: Vec<_> = (0..GARDENS).map(|number| format!("garden-{number}")).collect();
    let mut uids = BTreeMap::new();
    for name in &names {
        env.garden(name, &["herbs", "roots"]).await?;
    }
    for name in &names {
        let garden = env
            .wait_for::<Garden>(name, |garden| garden.status.is_some())
            .await?;
        uids.insert(garden.uid().unwrap_or_default(), 1);
    }
    for name in &names {
        env.delete::<Garden>(name).await?;
    }
    for name in &names {
        env.wait_until_deleted::<Garden>(name).await?;
    }
    env.wait_until_processed().await?;
    assert_eq!(*lock(&cleanups), uids);
    running.stop().await
}

/// A conflict or an outage does not repeat a clean-up that has succeeded; the end of the process does.
pub(crate) async fn cleanup_is_repeated_only_by_a_new_process(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let cleanups = Cleanups::default();
    let releases = |sent: &RecordedRequest| {
        sent.is_write()
            && sent.resource() == "gardens"
            && sent.name() == "kitchen"
            && sent.subresource().is_empty()
    };
    let running = RunningManager::start(env.manager().controller(tidy_gardener(&cleanups)));
    let mut expected = BTreeMap::new();
    for (fault, runs) in [(true, 1), (false, 2)] {
        env.garden("kitchen", &[]).await?;
        let garden = env
            .wait_for::<Garden>("kitchen", |garden| garden.status.is_some())
            .await?;
        expected.insert(garden.uid().unwrap_or_default(), runs);
        env.proxy().clear();
        if fault {
            for (code, reason) in [(409, "Conflict"), (500, "InternalError")] {
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
                    "message": "rejected by the test",
                });
                env.proxy().respond(1, status, releases);
            }
        } else {
            env.proxy().delay(1, Duration::from_hours(1), releases);
        }
        env.delete::<Garden>("kitchen").await?;
        if fault {
            env.wait_until_deleted::<Garden>("kitchen").await?;
        } else {
            env.proxy().wait_until_sent(releases).await?;
        }
    }
    // The process ends between the clean-up and the removal of the finalizer.
    running.kill().await;
    let running = RunningManager::start(env.manager().controller(tidy_gardener(&cleanups)));
    env.wait_until_deleted::<Garden>("kitchen").await?;
    assert_eq!(*lock(&cleanups), expected);
    running.stop().await
}

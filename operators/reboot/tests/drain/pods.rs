//! Pods that stay, go, come back elsewhere, or do not go.

use std::time::Duration;

use windlass::{
    k8s_openapi::api::core::v1::Pod,
    kube::{ResourceExt, api::DeleteParams},
    prelude::{from_value, json},
};
use windlass_reboot::drain::{BlockerReason, DrainError, How};
use windlass_suite::{Context as Case, Sent};

use crate::stage::{Stage, drainer};

pub(crate) async fn pods_that_may_stay_are_not_touched(case: Case) -> anyhow::Result<()> {
    let stage = Stage::new(&case).await?;
    let elsewhere = format!("{}-b", stage.here());
    stage.node(&elsewhere).await?;
    stage.pod_on(&elsewhere, "elsewhere", "ReplicaSet").await?;
    stage.pod_on(&stage.here(), "proxy", "DaemonSet").await?;
    stage.pod("done").await?;
    let succeeded = json!({ "status": { "phase": "Succeeded" } });
    stage.world.patch_status::<Pod>("done", succeeded).await?;
    let mirror = json!({
        "metadata": { "name": "mirror", "annotations": { "kubernetes.io/config.mirror": "x" } },
        "spec": { "nodeName": stage.here(), "containers": [{ "name": "main", "image": "main" }] },
    });
    stage.world.create::<Pod>(from_value(mirror)?).await?;
    stage.pod("chosen").await?;

    let progress = stage.pass().await?;
    assert_eq!((progress.left, progress.blockers.len()), (1, 0));
    let writes: Vec<_> = stage
        .world
        .wire()
        .writes()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(writes, ["create pods/chosen/eviction"]);
    Ok(())
}

pub(crate) async fn a_pod_gets_the_time_that_the_policy_gives(case: Case) -> anyhow::Result<()> {
    let mut stage = Stage::new(&case).await?;
    stage.options.grace_period_seconds = Some(7);
    stage.pod("web").await?;
    stage.pass().await?;
    let web = stage.world.get::<Pod>("web").await?;
    assert_eq!(web.metadata.deletion_grace_period_seconds, Some(7));
    // It is on its way, and not asked again however often somebody looks.
    stage.passes(6).await?;
    assert_eq!(stage.asked("web").len(), 1);
    Ok(())
}

/// A StatefulSet's pod has the same name wherever it is.
pub(crate) async fn a_pod_made_anew_elsewhere_under_its_name_is_never_evicted(
    case: Case,
) -> anyhow::Result<()> {
    let stage = Stage::new(&case).await?;
    let elsewhere = format!("{}-b", stage.here());
    stage.node(&elsewhere).await?;
    let before = stage.pod_on(&stage.here(), "db-0", "StatefulSet").await?;
    // Between the list and the eviction it goes, and its successor is made.
    stage
        .world
        .wire()
        .delay(1, Duration::from_secs(2), |sent: &Sent| sent.part() == "eviction");
    let (progress, successor) = tokio::join!(stage.pass(), async {
        stage
            .world
            .wire()
            .seen(|sent: &Sent| sent.part() == "eviction")
            .await?;
        stage.stopped("db-0").await?;
        stage.pod_on(&elsewhere, "db-0", "StatefulSet").await
    });
    let (progress, successor) = (progress?, successor?);
    assert_ne!(before.uid(), successor.uid());
    assert!(progress.is_drained(), "{progress:?}");
    assert!(stage.stays(&successor).await?);
    // The other way round: it is listed as gone, and its successor is somebody else's.
    assert!(stage.pass().await?.is_drained() && stage.stays(&successor).await?);
    assert_eq!(stage.asked("db-0").len(), 1);
    Ok(())
}

pub(crate) async fn a_forced_deletion_meets_no_successor_either(case: Case) -> anyhow::Result<()> {
    let stage = Stage::new(&case).await?;
    let elsewhere = format!("{}-b", stage.here());
    stage.node(&elsewhere).await?;
    stage.pod_on(&stage.here(), "db-0", "StatefulSet").await?;
    let deletion = |sent: &Sent| &*sent.access.verb == "delete" && sent.name() == "db-0";
    stage.world.wire().delay(1, Duration::from_secs(2), deletion);
    let here = stage.here();
    let (progress, successor) = tokio::join!(stage.drainer.pass(&here, &stage.options, How::Force), async {
        stage.world.wire().seen(deletion).await?;
        stage.stopped("db-0").await?;
        stage.pod_on(&elsewhere, "db-0", "StatefulSet").await
    });
    assert!(progress?.is_drained() && stage.stays(&successor?).await?);
    Ok(())
}

pub(crate) async fn a_pod_that_does_not_go_is_named(case: Case) -> anyhow::Result<()> {
    let stage = Stage::new(&case).await?;
    stage.pod("held").await?;
    let finalizer = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    stage.world.patch::<Pod>("held", finalizer).await?;
    let pods = stage.world.case().api::<Pod>();
    pods.delete("held", &DeleteParams::default().grace_period(0))
        .await?;
    // Long after its time, by a clock that is ahead of the server's.
    let late =
        windlass::runtime::Clock::starting_at(jiff::Timestamp::now() + jiff::SignedDuration::from_mins(2));
    let writer = windlass::runtime::Writer::new(stage.world.wire().client(), "drain-test");
    let drainer = windlass_reboot::drain::Drainer::new(writer, late);
    let progress = drainer.pass(&stage.here(), &stage.options, How::Evict).await?;
    assert_eq!((progress.left, progress.blockers.len()), (1, 1));
    assert_eq!(progress.blockers[0].reason, BlockerReason::Overdue);
    assert!(
        progress.blockers[0]
            .message
            .ends_with("finalizers: example.com/held"),
        "{progress:?}"
    );
    // Who forces has done what can be done about it.
    assert!(
        drainer
            .pass(&stage.here(), &stage.options, How::Force)
            .await?
            .is_drained()
    );
    let free = json!({ "metadata": { "finalizers": null } });
    stage.world.patch::<Pod>("held", free).await?;
    Ok(())
}

pub(crate) async fn a_server_that_fails_is_asked_again_in_five_seconds(case: Case) -> anyhow::Result<()> {
    let stage = Stage::new(&case).await?;
    stage.pod("web").await?;
    stage.pod("api").await?;
    let wire = stage.world.wire();
    wire.refuse(1, http::StatusCode::SERVICE_UNAVAILABLE, |sent| {
        &*sent.access.verb == "list"
    });
    let error = stage
        .drainer
        .pass(&stage.here(), &stage.options, How::Evict)
        .await;
    assert!(
        matches!(error, Err(DrainError::List { .. })),
        "nobody knows the pods"
    );
    let concerns = |sent: &Sent| sent.part() == "eviction" && sent.name() == "web";
    wire.refuse(1, http::StatusCode::INTERNAL_SERVER_ERROR, concerns);
    let progress = stage.passes(4).await?;
    assert_eq!(progress.blockers[0].reason, BlockerReason::Refused);
    assert_eq!((stage.asked("web").len(), stage.asked("api").len()), (1, 1));
    tokio::time::sleep(progress.next_try).await;
    let progress = stage.pass().await?;
    assert_eq!((progress.blockers.len(), stage.asked("web").len()), (0, 2));
    Ok(())
}

pub(crate) async fn a_drain_goes_on_where_another_one_died(case: Case) -> anyhow::Result<()> {
    let stage = Stage::new(&case).await?;
    for pod in ["a", "b", "c"] {
        stage.pod(pod).await?;
    }
    stage.budget("strict", "b", Some(0)).await?;
    stage.pass().await?;
    stage.stopped("a").await?;
    let successor = drainer(&stage.world);
    let progress = successor.pass(&stage.here(), &stage.options, How::Evict).await?;
    assert_eq!((progress.left, progress.blockers.len()), (2, 1));
    assert_eq!(
        (
            stage.asked("a").len(),
            stage.asked("b").len(),
            stage.asked("c").len()
        ),
        (1, 2, 1)
    );
    // Forgotten: for example since the node was given back, and is asked for again.
    successor.forget(&stage.here());
    successor.pass(&stage.here(), &stage.options, How::Evict).await?;
    assert_eq!(stage.asked("b").len(), 3);
    Ok(())
}

//! Pods that stay, leave, are recreated elsewhere, or do not leave.

use std::time::Duration;

use windlass::{
    k8s_openapi::api::core::v1::Pod,
    kube::{ResourceExt, api::DeleteParams},
    prelude::{from_value, json},
};
use windlass_reboot::drain::{BlockerReason, DrainError, DrainMode};
use windlass_suite::{Context as Case, RecordedRequest};

use crate::drain::stage::{Stage, drainer};

pub(crate) async fn ignored_pods_are_not_evicted(case: Case) -> anyhow::Result<()> {
    let stage = Stage::new(&case).await?;
    let elsewhere = format!("{}-b", stage.node_name());
    stage.node(&elsewhere).await?;
    stage.pod_on(&elsewhere, "elsewhere", "ReplicaSet").await?;
    stage.pod_on(&stage.node_name(), "proxy", "DaemonSet").await?;
    stage.pod("done").await?;
    let succeeded = json!({ "status": { "phase": "Succeeded" } });
    stage.world.patch_status::<Pod>("done", succeeded).await?;
    let mirror = json!({
        "metadata": { "name": "mirror", "annotations": { "kubernetes.io/config.mirror": "x" } },
        "spec": { "nodeName": stage.node_name(), "containers": [{ "name": "main", "image": "main" }] },
    });
    stage.world.create::<Pod>(from_value(mirror)?).await?;
    stage.pod("chosen").await?;

    let progress = stage.pass().await?;
    assert_eq!((progress.remaining, progress.blockers.len()), (1, 0));
    let writes: Vec<_> = stage
        .world
        .proxy()
        .writes()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(writes, ["create pods/chosen/eviction"]);
    Ok(())
}

pub(crate) async fn eviction_uses_the_policys_grace_period(case: Case) -> anyhow::Result<()> {
    let mut stage = Stage::new(&case).await?;
    stage.options.grace_period_seconds = Some(7);
    stage.pod("web").await?;
    stage.pass().await?;
    let web = stage.world.get::<Pod>("web").await?;
    assert_eq!(web.metadata.deletion_grace_period_seconds, Some(7));
    // It is terminating, and not evicted again however often a pass runs.
    stage.passes(6).await?;
    assert_eq!(stage.eviction_times("web").len(), 1);
    Ok(())
}

/// A StatefulSet's pod has the same name on every node.
pub(crate) async fn pod_recreated_under_its_name_is_not_evicted(case: Case) -> anyhow::Result<()> {
    let stage = Stage::new(&case).await?;
    let elsewhere = format!("{}-b", stage.node_name());
    stage.node(&elsewhere).await?;
    let before = stage.pod_on(&stage.node_name(), "db-0", "StatefulSet").await?;
    // Between the list and the eviction it is deleted and recreated.
    stage
        .world
        .proxy()
        .delay(1, Duration::from_secs(2), |sent: &RecordedRequest| {
            sent.subresource() == "eviction"
        });
    let (progress, successor) = tokio::join!(stage.pass(), async {
        stage
            .world
            .proxy()
            .wait_until_sent(|sent: &RecordedRequest| sent.subresource() == "eviction")
            .await?;
        stage.stop_pod("db-0").await?;
        stage.pod_on(&elsewhere, "db-0", "StatefulSet").await
    });
    let (progress, successor) = (progress?, successor?);
    assert_ne!(before.uid(), successor.uid());
    assert!(progress.is_drained(), "{progress:?}");
    assert!(stage.is_running(&successor).await?);
    // The other way round: the list shows it as gone, and its successor is on another node.
    assert!(stage.pass().await?.is_drained() && stage.is_running(&successor).await?);
    assert_eq!(stage.eviction_times("db-0").len(), 1);
    Ok(())
}

pub(crate) async fn forced_deletion_does_not_delete_a_recreated_pod(case: Case) -> anyhow::Result<()> {
    let stage = Stage::new(&case).await?;
    let elsewhere = format!("{}-b", stage.node_name());
    stage.node(&elsewhere).await?;
    stage.pod_on(&stage.node_name(), "db-0", "StatefulSet").await?;
    let deletion = |sent: &RecordedRequest| &*sent.access.verb == "delete" && sent.name() == "db-0";
    stage.world.proxy().delay(1, Duration::from_secs(2), deletion);
    let here = stage.node_name();
    let (progress, successor) = tokio::join!(
        stage.drainer.pass(&here, &stage.options, DrainMode::Force),
        async {
            stage.world.proxy().wait_until_sent(deletion).await?;
            stage.stop_pod("db-0").await?;
            stage.pod_on(&elsewhere, "db-0", "StatefulSet").await
        }
    );
    assert!(progress?.is_drained() && stage.is_running(&successor?).await?);
    Ok(())
}

pub(crate) async fn overdue_pod_is_reported_with_its_finalizers(case: Case) -> anyhow::Result<()> {
    let stage = Stage::new(&case).await?;
    stage.pod("held").await?;
    let finalizer = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    stage.world.patch::<Pod>("held", finalizer).await?;
    let pods = stage.world.case().api::<Pod>();
    pods.delete("held", &DeleteParams::default().grace_period(0))
        .await?;
    // Long after its grace period, by a clock that is ahead of the server's.
    let late =
        windlass::runtime::Clock::starting_at(jiff::Timestamp::now() + jiff::SignedDuration::from_mins(2));
    let writer = windlass::runtime::Writer::new(stage.world.proxy().client(), "drain-test");
    let drainer = windlass_reboot::drain::Drainer::new(writer, late);
    let progress = drainer
        .pass(&stage.node_name(), &stage.options, DrainMode::Evict)
        .await?;
    assert_eq!((progress.remaining, progress.blockers.len()), (1, 1));
    assert_eq!(progress.blockers[0].reason, BlockerReason::TerminationOverdue);
    assert!(
        progress.blockers[0]
            .message
            .ends_with("finalizers: example.com/held"),
        "{progress:?}"
    );
    // A forced pass has nothing more to do about it.
    assert!(
        drainer
            .pass(&stage.node_name(), &stage.options, DrainMode::Force)
            .await?
            .is_drained()
    );
    let free = json!({ "metadata": { "finalizers": null } });
    stage.world.patch::<Pod>("held", free).await?;
    Ok(())
}

pub(crate) async fn failed_requests_are_retried_after_five_seconds(case: Case) -> anyhow::Result<()> {
    let stage = Stage::new(&case).await?;
    stage.pod("web").await?;
    stage.pod("api").await?;
    let wire = stage.world.proxy();
    wire.reject(1, http::StatusCode::SERVICE_UNAVAILABLE, |sent| {
        &*sent.access.verb == "list"
    });
    let error = stage
        .drainer
        .pass(&stage.node_name(), &stage.options, DrainMode::Evict)
        .await;
    assert!(
        matches!(error, Err(DrainError::List { .. })),
        "the pods cannot be listed"
    );
    let concerns = |sent: &RecordedRequest| sent.subresource() == "eviction" && sent.name() == "web";
    wire.reject(1, http::StatusCode::INTERNAL_SERVER_ERROR, concerns);
    let progress = stage.passes(4).await?;
    assert_eq!(progress.blockers[0].reason, BlockerReason::EvictionRefused);
    assert_eq!(
        (
            stage.eviction_times("web").len(),
            stage.eviction_times("api").len()
        ),
        (1, 1)
    );
    tokio::time::sleep(progress.next_pass).await;
    let progress = stage.pass().await?;
    assert_eq!(
        (progress.blockers.len(), stage.eviction_times("web").len()),
        (0, 2)
    );
    Ok(())
}

pub(crate) async fn new_drainer_continues_after_a_crash(case: Case) -> anyhow::Result<()> {
    let stage = Stage::new(&case).await?;
    for pod in ["a", "b", "c"] {
        stage.pod(pod).await?;
    }
    stage.budget("strict", "b", Some(0)).await?;
    stage.pass().await?;
    stage.stop_pod("a").await?;
    let successor = drainer(&stage.world);
    let progress = successor
        .pass(&stage.node_name(), &stage.options, DrainMode::Evict)
        .await?;
    assert_eq!((progress.remaining, progress.blockers.len()), (2, 1));
    assert_eq!(
        (
            stage.eviction_times("a").len(),
            stage.eviction_times("b").len(),
            stage.eviction_times("c").len()
        ),
        (1, 2, 1)
    );
    // Forgotten, for example because the drain was aborted and is retried.
    successor.forget(&stage.node_name());
    successor
        .pass(&stage.node_name(), &stage.options, DrainMode::Evict)
        .await?;
    assert_eq!(stage.eviction_times("b").len(), 3);
    Ok(())
}

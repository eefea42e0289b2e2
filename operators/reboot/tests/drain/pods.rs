//! Pods that stay, leave, are recreated elsewhere, or do not leave.

use std::time::Duration;

use windlass::{
    k8s_openapi::api::core::v1::Pod,
    kube::{ResourceExt, api::DeleteParams},
    prelude::{from_value, json},
};
use windlass_reboot::drain::{BlockerReason, DrainError, DrainMode};
use windlass_suite::{Context as Case, RecordedRequest};

use crate::drain::fixture::{Fixture, drainer};

pub(crate) async fn ignored_pods_are_not_evicted(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let elsewhere = format!("{}-b", fixture.node_name());
    fixture.node(&elsewhere).await?;
    fixture.pod_on(&elsewhere, "elsewhere", "ReplicaSet").await?;
    fixture.pod_on(&fixture.node_name(), "proxy", "DaemonSet").await?;
    fixture.pod("done").await?;
    let succeeded = json!({ "status": { "phase": "Succeeded" } });
    fixture.env.patch_status::<Pod>("done", succeeded).await?;
    let mirror = json!({
        "metadata": { "name": "mirror", "annotations": { "kubernetes.io/config.mirror": "x" } },
        "spec": { "nodeName": fixture.node_name(), "containers": [{ "name": "main", "image": "main" }] },
    });
    fixture.env.create::<Pod>(from_value(mirror)?).await?;
    fixture.pod("chosen").await?;

    let progress = fixture.pass().await?;
    assert_eq!((progress.remaining, progress.blockers.len()), (1, 0));
    let writes: Vec<_> = fixture
        .env
        .proxy()
        .writes()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(writes, ["create pods/chosen/eviction"]);
    Ok(())
}

pub(crate) async fn eviction_uses_the_policys_grace_period(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::new(&case).await?;
    fixture.options.grace_period_seconds = Some(7);
    fixture.pod("web").await?;
    fixture.pass().await?;
    let web = fixture.env.get::<Pod>("web").await?;
    assert_eq!(web.metadata.deletion_grace_period_seconds, Some(7));
    // It is terminating, and not evicted again however often a pass runs.
    fixture.passes(6).await?;
    assert_eq!(fixture.eviction_times("web").len(), 1);
    Ok(())
}

/// A StatefulSet's pod has the same name on every node.
pub(crate) async fn pod_recreated_under_its_name_is_not_evicted(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let elsewhere = format!("{}-b", fixture.node_name());
    fixture.node(&elsewhere).await?;
    let before = fixture
        .pod_on(&fixture.node_name(), "db-0", "StatefulSet")
        .await?;
    // Between the list and the eviction it is deleted and recreated.
    fixture
        .env
        .proxy()
        .delay(1, Duration::from_secs(2), |sent: &RecordedRequest| {
            sent.subresource() == "eviction"
        });
    let (progress, successor) = tokio::join!(fixture.pass(), async {
        fixture
            .env
            .proxy()
            .wait_until_sent(|sent: &RecordedRequest| sent.subresource() == "eviction")
            .await?;
        fixture.stop_pod("db-0").await?;
        fixture.pod_on(&elsewhere, "db-0", "StatefulSet").await
    });
    let (progress, successor) = (progress?, successor?);
    assert_ne!(before.uid(), successor.uid());
    assert!(progress.is_drained(), "{progress:?}");
    assert!(fixture.is_running(&successor).await?);
    // The other way round: the list shows it as gone, and its successor is on another node.
    assert!(fixture.pass().await?.is_drained() && fixture.is_running(&successor).await?);
    assert_eq!(fixture.eviction_times("db-0").len(), 1);
    Ok(())
}

pub(crate) async fn forced_deletion_does_not_delete_a_recreated_pod(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let elsewhere = format!("{}-b", fixture.node_name());
    fixture.node(&elsewhere).await?;
    fixture
        .pod_on(&fixture.node_name(), "db-0", "StatefulSet")
        .await?;
    let deletion = |sent: &RecordedRequest| &*sent.access.verb == "delete" && sent.name() == "db-0";
    fixture.env.proxy().delay(1, Duration::from_secs(2), deletion);
    let here = fixture.node_name();
    let (progress, successor) = tokio::join!(
        fixture.drainer.pass(&here, &fixture.options, DrainMode::Force),
        async {
            fixture.env.proxy().wait_until_sent(deletion).await?;
            fixture.stop_pod("db-0").await?;
            fixture.pod_on(&elsewhere, "db-0", "StatefulSet").await
        }
    );
    assert!(progress?.is_drained() && fixture.is_running(&successor?).await?);
    Ok(())
}

pub(crate) async fn overdue_pod_is_reported_with_its_finalizers(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    fixture.pod("held").await?;
    let finalizer = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    fixture.env.patch::<Pod>("held", finalizer).await?;
    let pods = fixture.env.case().api::<Pod>();
    pods.delete("held", &DeleteParams::default().grace_period(0))
        .await?;
    // Long after its grace period, by a clock that is ahead of the server's.
    let late =
        windlass::runtime::Clock::starting_at(jiff::Timestamp::now() + jiff::SignedDuration::from_mins(2));
    let writer = windlass::runtime::Writer::new(fixture.env.proxy().client(), "drain-test");
    let drainer = windlass_reboot::drain::Drainer::new(writer, late);
    let progress = drainer
        .pass(&fixture.node_name(), &fixture.options, DrainMode::Evict)
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
            .pass(&fixture.node_name(), &fixture.options, DrainMode::Force)
            .await?
            .is_drained()
    );
    let free = json!({ "metadata": { "finalizers": null } });
    fixture.env.patch::<Pod>("held", free).await?;
    Ok(())
}

pub(crate) async fn failed_requests_are_retried_after_five_seconds(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    fixture.pod("web").await?;
    fixture.pod("api").await?;
    let proxy = fixture.env.proxy();
    proxy.reject(1, http::StatusCode::SERVICE_UNAVAILABLE, |sent| {
        &*sent.access.verb == "list"
    });
    let error = fixture
        .drainer
        .pass(&fixture.node_name(), &fixture.options, DrainMode::Evict)
        .await;
    assert!(
        matches!(error, Err(DrainError::List { .. })),
        "the pods cannot be listed"
    );
    let concerns = |sent: &RecordedRequest| sent.subresource() == "eviction" && sent.name() == "web";
    proxy.reject(1, http::StatusCode::INTERNAL_SERVER_ERROR, concerns);
    let progress = fixture.passes(4).await?;
    assert_eq!(progress.blockers[0].reason, BlockerReason::EvictionRefused);
    assert_eq!(
        (
            fixture.eviction_times("web").len(),
            fixture.eviction_times("api").len()
        ),
        (1, 1)
    );
    tokio::time::sleep(progress.next_pass).await;
    let progress = fixture.pass().await?;
    assert_eq!(
        (progress.blockers.len(), fixture.eviction_times("web").len()),
        (0, 2)
    );
    Ok(())
}

pub(crate) async fn new_drainer_continues_after_a_crash(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    for pod in ["a", "b", "c"] {
        fixture.pod(pod).await?;
    }
    fixture.budget("strict", "b", Some(0)).await?;
    fixture.pass().await?;
    fixture.stop_pod("a").await?;
    let successor = drainer(&fixture.env);
    let progress = successor
        .pass(&fixture.node_name(), &fixture.options, DrainMode::Evict)
        .await?;
    assert_eq!((progress.remaining, progress.blockers.len()), (2, 1));
    assert_eq!(
        (
            fixture.eviction_times("a").len(),
            fixture.eviction_times("b").len(),
            fixture.eviction_times("c").len()
        ),
        (1, 2, 1)
    );
    // Forgotten, for example because the drain was aborted and is retried.
    successor.forget(&fixture.node_name());
    successor
        .pass(&fixture.node_name(), &fixture.options, DrainMode::Evict)
        .await?;
    assert_eq!(fixture.eviction_times("b").len(), 3);
    Ok(())
}

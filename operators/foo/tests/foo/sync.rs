//! A Foo's Deployment and status: created, updated and deleted.

use serde_json::json;
use windlass::{
    k8s_openapi::api::{apps::v1::Deployment, core::v1::Event},
    prelude::*,
};
use windlass_foo::Foo;
use windlass_suite::{Context as Case, RecordedRequest};

use crate::foo::fixture::{Fixture, IDLE_AFTER, image, spec};

/// The Deployment is written once, then the status, both with upstream's field manager.
pub(crate) async fn new_foo_gets_one_deployment_and_one_status(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = env.start();
    env.create_foo("example", "web", Some(2)).await?;
    let foo = env.wait_for_status("example").await?;
    let deployment = env.get::<Deployment>("web").await?;
    let available = foo.status.as_ref().map(|status| status.available_replicas);
    assert_eq!(available, Some(0));

    let owners = deployment.owner_references();
    assert_eq!(owners.len(), 1);
    assert_eq!(
        (owners[0].kind.as_str(), Some(&owners[0].uid)),
        ("Foo", foo.metadata.uid.as_ref())
    );
    assert_eq!(
        (owners[0].controller, owners[0].block_owner_deletion),
        (Some(true), Some(true))
    );
    let spec = spec(&deployment);
    let labels = json!({ "app": "nginx", "controller": "example" });
    assert_eq!(spec.replicas, Some(2));
    assert_eq!(json!(spec.selector.match_labels), labels);
    assert_eq!(
        json!(
            spec.template
                .metadata
                .as_ref()
                .and_then(|meta| meta.labels.as_ref())
        ),
        labels
    );
    assert_eq!(image(&deployment), Some("nginx:latest"));

    env.wait_until_processed().await?;
    for write in env.proxy().writes() {
        // Events have no field manager.
        if write.resource() != "events" {
            assert_eq!(
                write.field_manager.as_deref(),
                Some("sample-controller"),
                "{write}"
            );
        }
    }
    assert_eq!(env.get::<Deployment>("web").await?.metadata.generation, Some(1));
    let version = env.version::<Foo>("example").await?;
    assert_eq!(
        version, foo.metadata.resource_version,
        "the status was written once"
    );
    assert_eq!(
        env.writes_about(&["example", "web"]),
        ["patch deployments/web", "patch foos/example/status"]
    );
    running.stop().await
}

/// Upstream needs as many at best, and more whenever its watch delivers its own writes.
pub(crate) async fn foo_needs_the_minimum_of_requests(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = env.start();
    env.wait_until_processed().await?;
    let sent = || {
        let about = |sent: &RecordedRequest| match sent.resource() {
            "events" => format!("{} an event", sent.access.verb),
            _ => sent.to_string(),
        };
        env.proxy().take(|_| true).iter().map(about).collect::<Vec<_>>()
    };
    sent();
    env.create_foo("example", "web", Some(1)).await?;
    env.wait_for_status("example").await?;
    env.proxy().wait_until_idle(IDLE_AFTER).await;
    let new = [
        "patch deployments/web",
        "patch foos/example/status",
        "create an event",
    ];
    assert_eq!(sent(), new);
    let status = json!({ "status": { "replicas": 1, "readyReplicas": 1, "availableReplicas": 1 } });
    env.patch_status::<Deployment>("web", status).await?;
    let available = |foo: &Foo| {
        foo.status
            .as_ref()
            .is_some_and(|status| status.available_replicas == 1)
    };
    env.wait_for::<Foo>("example", available).await?;
    env.proxy().wait_until_idle(IDLE_AFTER).await;
    assert_eq!(sent(), ["patch foos/example/status", "patch an event"]);
    running.stop().await
}

/// Better than upstream, which writes the status each time.
pub(crate) async fn restart_does_not_write_a_synced_foo(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = env.start();
    env.create_foo("example", "web", Some(1)).await?;
    env.wait_for_status("example").await?;
    running.stop().await?;
    let before = (
        env.version::<Foo>("example").await?,
        env.version::<Deployment>("web").await?,
    );
    env.proxy().clear();

    let running = env.start();
    env.wait_until_processed().await?;
    assert_eq!(env.writes_about(&["example", "web"]), [""; 0]);
    assert_eq!(
        (
            env.version::<Foo>("example").await?,
            env.version::<Deployment>("web").await?
        ),
        before
    );
    running.stop().await
}

/// Without `replicas`, the server's default applies at first, and others may scale later.
pub(crate) async fn foo_without_replicas_keeps_foreign_scaling(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = env.start();
    env.create_foo("example", "web", None).await?;
    env.wait_for::<Deployment>("web", |_| true).await?;
    env.patch::<Deployment>("web", json!({ "spec": { "replicas": 4 } }))
        .await?;
    env.wait_until_processed().await?;
    assert_eq!(spec(&env.get::<Deployment>("web").await?).replicas, Some(4));
    running.stop().await
}

pub(crate) async fn deployment_follows_replicas(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = env.start();
    env.create_foo("example", "web", Some(1)).await?;
    env.wait_for::<Deployment>("web", |_| true).await?;
    env.wait_until_processed().await?;
    env.proxy().clear();
    env.patch::<Foo>("example", json!({ "spec": { "replicas": 5 } }))
        .await?;
    env.wait_for::<Deployment>("web", |deployment| spec(deployment).replicas == Some(5))
        .await?;
    env.wait_until_processed().await?;
    assert_eq!(env.writes_about(&["example", "web"]), ["patch deployments/web"]);
    running.stop().await
}

/// Better than upstream, which corrects only the replicas. Fields that others add are kept.
pub(crate) async fn drift_is_corrected_with_one_write(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = env.start();
    env.create_foo("example", "web", Some(2)).await?;
    env.wait_for::<Deployment>("web", |_| true).await?;
    env.wait_until_processed().await?;
    let sidecar = json!({ "name": "sidecar", "image": "sidecar" });
    let drifts = [
        json!({ "spec": { "replicas": 7 } }),
        json!({ "spec": { "template": { "spec": { "containers": [{ "name": "nginx", "image": "evil" }, sidecar] } } } }),
        json!({ "spec": { "template": { "spec": { "containers": [sidecar] } } } }),
    ];
    for drift in drifts {
        env.proxy().clear();
        let before = env.patch::<Deployment>("web", drift.clone()).await?;
        let changed = before.metadata.generation;
        let deployment = env
            .wait_for::<Deployment>("web", |now| now.metadata.generation > changed)
            .await?;
        assert_eq!(
            (spec(&deployment).replicas, image(&deployment)),
            (Some(2), Some("nginx:latest")),
            "{drift}"
        );
        env.wait_until_processed().await?;
        assert_eq!(
            env.writes_about(&["example", "web"]),
            ["patch deployments/web"],
            "{drift}"
        );
    }
    let containers = env
        .get::<Deployment>("web")
        .await?
        .spec
        .and_then(|spec| spec.template.spec);
    let names: Vec<_> = containers
        .into_iter()
        .flat_map(|spec| spec.containers)
        .map(|container| container.name)
        .collect();
    assert_eq!(names, ["sidecar", "nginx"], "an added container is kept");
    running.stop().await
}

/// Also if it was deleted while the controller was stopped.
pub(crate) async fn deleted_deployment_is_recreated(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = env.start();
    env.create_foo("example", "web", Some(1)).await?;
    let first = env.wait_for::<Deployment>("web", |_| true).await?;
    env.delete::<Deployment>("web").await?;
    let another = |now: &Deployment| now.uid() != first.uid();
    let second = env.wait_for::<Deployment>("web", another).await?;
    env.wait_until_processed().await?;
    running.stop().await?;
    env.delete::<Deployment>("web").await?;
    env.wait_until_deleted::<Deployment>("web").await?;
    let running = env.start();
    let third = env.wait_for::<Deployment>("web", |_| true).await?;
    assert_ne!(third.uid(), second.uid());
    running.stop().await
}

/// Better than upstream, which leaves it behind.
pub(crate) async fn renaming_removes_the_old_deployment(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = env.start();
    for foo in ["example", "other"] {
        env.create_foo(foo, &format!("{foo}-web"), Some(1)).await?;
        env.wait_for::<Deployment>(&format!("{foo}-web"), |_| true)
            .await?;
    }
    env.patch::<Foo>("example", json!({ "spec": { "deploymentName": "renamed" } }))
        .await?;
    env.wait_for::<Deployment>("renamed", |_| true).await?;
    env.wait_until_deleted::<Deployment>("example-web").await?;
    env.get::<Deployment>("other-web").await?;
    running.stop().await
}

/// No controller runs Deployments here, so the test writes their status.
pub(crate) async fn status_follows_the_deployment(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = env.start();
    env.create_foo("example", "web", Some(3)).await?;
    env.wait_for::<Deployment>("web", |_| true).await?;
    for available in [2, 3, 0] {
        let status =
            json!({ "status": { "replicas": 3, "readyReplicas": 3, "availableReplicas": available } });
        env.patch_status::<Deployment>("web", status).await?;
        let is_reported = |foo: &Foo| {
            foo.status
                .as_ref()
                .is_some_and(|status| status.available_replicas == available)
        };
        env.wait_for::<Foo>("example", is_reported).await?;
    }
    running.stop().await
}

/// As one event with a growing count.
pub(crate) async fn every_sync_records_an_event(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = env.start();
    let foo = env.create_foo("example", "web", Some(1)).await?;
    let synced = |event: &Event| event.reason.as_deref() == Some("Synced");
    let first = env.wait_for_event(&foo, synced).await?;
    assert_eq!(first.type_.as_deref(), Some("Normal"));
    assert_eq!(first.message.as_deref(), Some("Foo synced successfully"));
    let component = first
        .source
        .as_ref()
        .and_then(|source| source.component.as_deref());
    assert_eq!(component, Some("sample-controller"));
    env.wait_until_processed().await?;
    let so_far = env.wait_for_event(&foo, synced).await?.count;
    let visited = json!({ "metadata": { "annotations": { "visited": "yes" } } });
    env.patch::<Foo>("example", visited).await?;
    let again = env
        .wait_for_event(&foo, |event| synced(event) && event.count > so_far)
        .await?;
    assert_eq!(again.metadata.name, first.metadata.name);
    running.stop().await
}

pub(crate) async fn terminating_foo_gets_nothing_new(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    env.create_foo("example", "web", Some(1)).await?;
    env.patch::<Foo>(
        "example",
        json!({ "metadata": { "finalizers": ["example.com/hold"] } }),
    )
    .await?;
    env.delete::<Foo>("example").await?;
    env.wait_for::<Foo>("example", |foo| foo.metadata.deletion_timestamp.is_some())
        .await?;
    let running = env.start();
    env.wait_until_processed().await?;
    assert_eq!(env.writes_about(&["example", "web"]), [""; 0]);
    env.patch::<Foo>("example", json!({ "metadata": { "finalizers": null } }))
        .await?;
    env.wait_until_deleted::<Foo>("example").await?;
    running.stop().await
}

//! A Foo's Deployment and status: made, kept, and removed.

use serde_json::json;
use windlass::{
    k8s_openapi::api::{apps::v1::Deployment, core::v1::Event},
    prelude::*,
};
use windlass_foo::Foo;
use windlass_suite::{Context as Case, Sent};

use crate::world::{QUIET, World, image, spec};

/// 2, 3, 11: the Deployment is written once, then the status, under upstream's name.
pub(crate) async fn a_new_foo_gets_one_deployment_and_one_status(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    world.create_foo("example", "web", Some(2)).await?;
    let foo = world.synced("example").await?;
    let deployment = world.get::<Deployment>("web").await?;
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

    world.settle().await?;
    for write in world.wire().writes() {
        // Events are not fields of anybody.
        if write.resource() != "events" {
            assert_eq!(
                write.field_manager.as_deref(),
                Some("sample-controller"),
                "{write}"
            );
        }
    }
    assert_eq!(world.get::<Deployment>("web").await?.metadata.generation, Some(1));
    let version = world.version::<Foo>("example").await?;
    assert_eq!(
        version, foo.metadata.resource_version,
        "the status was written once"
    );
    assert_eq!(
        world.writes_about(&["example", "web"]),
        ["patch deployments/web", "patch foos/example/status"]
    );
    running.stop().await
}

/// Upstream needs as many, and looks at nothing, when it has its luck; and more whenever it hears an echo of its own writes.
pub(crate) async fn a_foo_costs_no_more_requests_than_it_must(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    world.settle().await?;
    let sent = || {
        let about = |sent: &Sent| match sent.resource() {
            "events" => format!("{} an event", sent.access.verb),
            _ => sent.to_string(),
        };
        world.wire().take(|_| true).iter().map(about).collect::<Vec<_>>()
    };
    sent();
    world.create_foo("example", "web", Some(1)).await?;
    world.synced("example").await?;
    world.wire().quiet(QUIET).await;
    let new = [
        "patch deployments/web",
        "patch foos/example/status",
        "create an event",
    ];
    assert_eq!(sent(), new);
    let status = json!({ "status": { "replicas": 1, "readyReplicas": 1, "availableReplicas": 1 } });
    world.patch_status::<Deployment>("web", status).await?;
    let available = |foo: &Foo| {
        foo.status
            .as_ref()
            .is_some_and(|status| status.available_replicas == 1)
    };
    world.wait_for::<Foo>("example", available).await?;
    world.wire().quiet(QUIET).await;
    assert_eq!(sent(), ["patch foos/example/status", "patch an event"]);
    running.stop().await
}

/// 4, and better: upstream writes the status each time.
pub(crate) async fn a_foo_in_sync_is_left_alone_by_a_restarted_controller(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    world.create_foo("example", "web", Some(1)).await?;
    world.synced("example").await?;
    running.stop().await?;
    let before = (
        world.version::<Foo>("example").await?,
        world.version::<Deployment>("web").await?,
    );
    world.wire().forget();

    let running = world.start();
    world.settle().await?;
    assert_eq!(world.writes_about(&["example", "web"]), [""; 0]);
    assert_eq!(
        (
            world.version::<Foo>("example").await?,
            world.version::<Deployment>("web").await?
        ),
        before
    );
    running.stop().await
}

/// 3: left out means that the server's default holds at first, and then what somebody sets.
pub(crate) async fn a_foo_without_replicas_does_not_fight_for_them(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    world.create_foo("example", "web", None).await?;
    world.wait_for::<Deployment>("web", |_| true).await?;
    world
        .patch::<Deployment>("web", json!({ "spec": { "replicas": 4 } }))
        .await?;
    world.settle().await?;
    assert_eq!(spec(&world.get::<Deployment>("web").await?).replicas, Some(4));
    running.stop().await
}

/// 5.
pub(crate) async fn replicas_follow_the_foo(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    world.create_foo("example", "web", Some(1)).await?;
    world.wait_for::<Deployment>("web", |_| true).await?;
    world.settle().await?;
    world.wire().forget();
    world
        .patch::<Foo>("example", json!({ "spec": { "replicas": 5 } }))
        .await?;
    world
        .wait_for::<Deployment>("web", |deployment| spec(deployment).replicas == Some(5))
        .await?;
    world.settle().await?;
    assert_eq!(world.writes_about(&["example", "web"]), ["patch deployments/web"]);
    running.stop().await
}

/// 14, and better: upstream puts nothing right but the replicas. What others add is theirs.
pub(crate) async fn whatever_drifts_is_put_right_with_one_write_each(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    world.create_foo("example", "web", Some(2)).await?;
    world.wait_for::<Deployment>("web", |_| true).await?;
    world.settle().await?;
    let sidecar = json!({ "name": "sidecar", "image": "sidecar" });
    let drifts = [
        json!({ "spec": { "replicas": 7 } }),
        json!({ "spec": { "template": { "spec": { "containers": [{ "name": "nginx", "image": "evil" }, sidecar] } } } }),
        json!({ "spec": { "template": { "spec": { "containers": [sidecar] } } } }),
    ];
    for drift in drifts {
        world.wire().forget();
        let before = world.patch::<Deployment>("web", drift.clone()).await?;
        let changed = before.metadata.generation;
        let deployment = world
            .wait_for::<Deployment>("web", |now| now.metadata.generation > changed)
            .await?;
        assert_eq!(
            (spec(&deployment).replicas, image(&deployment)),
            (Some(2), Some("nginx:latest")),
            "{drift}"
        );
        world.settle().await?;
        assert_eq!(
            world.writes_about(&["example", "web"]),
            ["patch deployments/web"],
            "{drift}"
        );
    }
    let containers = world
        .get::<Deployment>("web")
        .await?
        .spec
        .and_then(|spec| spec.template.spec);
    let names: Vec<_> = containers
        .into_iter()
        .flat_map(|spec| spec.containers)
        .map(|container| container.name)
        .collect();
    assert_eq!(names, ["sidecar", "nginx"], "what somebody added stays");
    running.stop().await
}

/// 9, 13: also when nobody saw it go.
pub(crate) async fn a_deployment_that_is_deleted_comes_back(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    world.create_foo("example", "web", Some(1)).await?;
    let first = world.wait_for::<Deployment>("web", |_| true).await?;
    world.delete::<Deployment>("web").await?;
    let another = |now: &Deployment| now.uid() != first.uid();
    let second = world.wait_for::<Deployment>("web", another).await?;
    world.settle().await?;
    running.stop().await?;
    world.delete::<Deployment>("web").await?;
    world.wait_gone::<Deployment>("web").await?;
    let running = world.start();
    let third = world.wait_for::<Deployment>("web", |_| true).await?;
    assert_ne!(third.uid(), second.uid());
    running.stop().await
}

/// 14, and better: upstream leaves it behind.
pub(crate) async fn the_deployment_of_a_former_name_is_removed(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    for foo in ["example", "other"] {
        world.create_foo(foo, &format!("{foo}-web"), Some(1)).await?;
        world
            .wait_for::<Deployment>(&format!("{foo}-web"), |_| true)
            .await?;
    }
    world
        .patch::<Foo>("example", json!({ "spec": { "deploymentName": "renamed" } }))
        .await?;
    world.wait_for::<Deployment>("renamed", |_| true).await?;
    world.wait_gone::<Deployment>("example-web").await?;
    world.get::<Deployment>("other-web").await?;
    running.stop().await
}

/// 12. Nobody runs Deployments here, so the test says what became available.
pub(crate) async fn the_status_follows_the_deployment(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    world.create_foo("example", "web", Some(3)).await?;
    world.wait_for::<Deployment>("web", |_| true).await?;
    for available in [2, 3, 0] {
        let status =
            json!({ "status": { "replicas": 3, "readyReplicas": 3, "availableReplicas": available } });
        world.patch_status::<Deployment>("web", status).await?;
        let told = |foo: &Foo| {
            foo.status
                .as_ref()
                .is_some_and(|status| status.available_replicas == available)
        };
        world.wait_for::<Foo>("example", told).await?;
    }
    running.stop().await
}

/// 7: each time that all is as it should be, as one event that counts.
pub(crate) async fn every_sync_is_told(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    let foo = world.create_foo("example", "web", Some(1)).await?;
    let synced = |event: &Event| event.reason.as_deref() == Some("Synced");
    let first = world.told(&foo, synced).await?;
    assert_eq!(first.type_.as_deref(), Some("Normal"));
    assert_eq!(first.message.as_deref(), Some("Foo synced successfully"));
    let component = first
        .source
        .as_ref()
        .and_then(|source| source.component.as_deref());
    assert_eq!(component, Some("sample-controller"));
    world.settle().await?;
    let so_far = world.told(&foo, synced).await?.count;
    let visited = json!({ "metadata": { "annotations": { "visited": "yes" } } });
    world.patch::<Foo>("example", visited).await?;
    let again = world
        .told(&foo, |event| synced(event) && event.count > so_far)
        .await?;
    assert_eq!(again.metadata.name, first.metadata.name);
    running.stop().await
}

pub(crate) async fn a_foo_that_is_being_deleted_gets_nothing_new(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.create_foo("example", "web", Some(1)).await?;
    world
        .patch::<Foo>(
            "example",
            json!({ "metadata": { "finalizers": ["example.com/hold"] } }),
        )
        .await?;
    world.delete::<Foo>("example").await?;
    world
        .wait_for::<Foo>("example", |foo| foo.metadata.deletion_timestamp.is_some())
        .await?;
    let running = world.start();
    world.settle().await?;
    assert_eq!(world.writes_about(&["example", "web"]), [""; 0]);
    world
        .patch::<Foo>("example", json!({ "metadata": { "finalizers": null } }))
        .await?;
    world.wait_gone::<Foo>("example").await?;
    running.stop().await
}

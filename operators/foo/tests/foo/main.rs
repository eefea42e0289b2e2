//! What the sample controller promises, on every kind of cluster. Numbers are the statements about upstream's
//! controller that each case shows.

#![allow(
    clippy::disallowed_names,
    reason = "here, foo is not a placeholder: it is what the kind is called"
)]

mod world;

use serde_json::json;
use windlass::{
    k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec},
    kube::api::{DeleteParams, Patch, PatchParams, PostParams},
    prelude::*,
};
use windlass_foo::Foo;
use windlass_suite::{Context as Case, suite};
use world::World;

suite!("foo";
    the_server_refuses_replicas_out_of_range,
    a_new_foo_gets_one_deployment_and_one_status,
    a_foo_in_sync_is_left_alone_by_a_restarted_controller,
    a_foo_without_replicas_does_not_fight_for_them,
    replicas_follow_the_foo,
    whatever_drifts_is_put_right_with_one_write_each,
    a_deployment_that_is_deleted_comes_back,
    a_deployment_of_somebody_else_is_not_touched,
    two_foos_do_not_share_a_deployment,
    the_deployment_of_a_former_name_is_removed,
    the_status_follows_the_deployment,
    a_foo_without_a_deployment_name_waits_for_one,
    a_foo_that_is_being_deleted_gets_nothing_new,
);

/// 1.
async fn the_server_refuses_replicas_out_of_range(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    for replicas in [0, 11, -1] {
        let refused = world.create_foo("example", "web", Some(replicas)).await;
        assert!(refused.is_err(), "{replicas} replicas are accepted");
    }
    for (name, replicas) in [("one", Some(1)), ("ten", Some(10)), ("none", None)] {
        world.create_foo(name, "web", replicas).await?;
    }
    Ok(())
}

/// 2, 3, 11: the Deployment is written once, then the status, under upstream's name.
async fn a_new_foo_gets_one_deployment_and_one_status(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    let foo = world.create_foo("example", "web", Some(2)).await?;
    let foo = world
        .wait::<Foo>(&foo.name_any(), |foo| foo.status.is_some())
        .await?;
    let deployment = world.get::<Deployment>("web").await?;
    assert_eq!(foo.status.map(|status| status.available_replicas), Some(0));

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
    assert!(world.wrote_as_sample_controller());

    world.settle().await?;
    assert_eq!(world.get::<Deployment>("web").await?.metadata.generation, Some(1));
    let version = world.version::<Foo>("example").await?;
    assert_eq!(
        version, foo.metadata.resource_version,
        "the status was written once"
    );
    assert_eq!(
        world.writes_about(&["example", "web"]),
        ["PATCH deployments/web", "PATCH foos/example/status"]
    );
    running.stop().await
}

/// 4, and better: upstream writes the status each time.
async fn a_foo_in_sync_is_left_alone_by_a_restarted_controller(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    world.create_foo("example", "web", Some(1)).await?;
    world.wait::<Foo>("example", |foo| foo.status.is_some()).await?;
    world.wait::<Deployment>("web", |_| true).await?;
    running.stop().await?;
    let before = (
        world.version::<Foo>("example").await?,
        world.version::<Deployment>("web").await?,
    );
    world.forget_writes();

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
async fn a_foo_without_replicas_does_not_fight_for_them(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    world.create_foo("example", "web", None).await?;
    world.wait::<Deployment>("web", |_| true).await?;
    world
        .patch::<Deployment>("web", json!({ "spec": { "replicas": 4 } }))
        .await?;
    world.settle().await?;
    assert_eq!(spec(&world.get::<Deployment>("web").await?).replicas, Some(4));
    running.stop().await
}

/// 5.
async fn replicas_follow_the_foo(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    world.create_foo("example", "web", Some(1)).await?;
    world.wait::<Deployment>("web", |_| true).await?;
    world.settle().await?;
    world.forget_writes();
    world
        .patch::<Foo>("example", json!({ "spec": { "replicas": 5 } }))
        .await?;
    world
        .wait::<Deployment>("web", |deployment| spec(deployment).replicas == Some(5))
        .await?;
    world.settle().await?;
    assert_eq!(world.writes_about(&["example", "web"]), ["PATCH deployments/web"]);
    running.stop().await
}

/// 14, and better: upstream puts nothing right but the replicas. What others add is theirs.
async fn whatever_drifts_is_put_right_with_one_write_each(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    world.create_foo("example", "web", Some(2)).await?;
    world.wait::<Deployment>("web", |_| true).await?;
    world.settle().await?;
    let sidecar = json!({ "name": "sidecar", "image": "sidecar" });
    let drifts = [
        json!({ "spec": { "replicas": 7 } }),
        json!({ "spec": { "template": { "spec": { "containers": [{ "name": "nginx", "image": "evil" }, sidecar] } } } }),
        json!({ "spec": { "template": { "spec": { "containers": [sidecar] } } } }),
    ];
    for drift in drifts {
        world.forget_writes();
        let before = world.patch::<Deployment>("web", drift.clone()).await?;
        let changed = before.metadata.generation;
        let deployment = world
            .wait::<Deployment>("web", |now| now.metadata.generation > changed)
            .await?;
        assert_eq!(
            (spec(&deployment).replicas, image(&deployment)),
            (Some(2), Some("nginx:latest")),
            "{drift}"
        );
        world.settle().await?;
        assert_eq!(
            world.writes_about(&["example", "web"]),
            ["PATCH deployments/web"],
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

/// 13.
async fn a_deployment_that_is_deleted_comes_back(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    world.create_foo("example", "web", Some(1)).await?;
    let first = world.wait::<Deployment>("web", |_| true).await?;
    case.api::<Deployment>()
        .delete("web", &DeleteParams::background())
        .await?;
    world
        .wait::<Deployment>("web", |second| second.uid() != first.uid())
        .await?;
    running.stop().await
}

/// 6.
async fn a_deployment_of_somebody_else_is_not_touched(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let labels = json!({ "app": "nginx" });
    let foreign: Deployment = from_value(json!({
        "metadata": { "name": "web" },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "nginx", "image": "nginx:latest" }] },
            },
        },
    }))?;
    let foreign = case
        .api::<Deployment>()
        .create(&PostParams::default(), &foreign)
        .await?;
    world.wait::<Deployment>("web", |_| true).await?;
    let running = world.start();
    world.create_foo("example", "web", Some(5)).await?;
    world.failed(2).await?;
    assert_eq!(world.writes_about(&["example", "web"]), [""; 0]);
    assert_eq!(world.get::<Deployment>("web").await?, foreign);
    running.stop().await
}

/// 6: nor one of another Foo, until that one gives up the name.
async fn two_foos_do_not_share_a_deployment(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    world.create_foo("first", "web", Some(1)).await?;
    let theirs = world.wait::<Deployment>("web", |_| true).await?;
    let second = world.create_foo("second", "web", Some(3)).await?;
    world.failed(1).await?;
    assert_eq!(world.get::<Deployment>("web").await?.uid(), theirs.uid());
    world
        .patch::<Foo>("first", json!({ "spec": { "deploymentName": "moved" } }))
        .await?;
    let ours = world
        .wait::<Deployment>("web", |now| now.uid() != theirs.uid())
        .await?;
    assert_eq!(
        Some(&ours.owner_references()[0].uid),
        second.metadata.uid.as_ref()
    );
    running.stop().await
}

/// 14, and better: upstream leaves it behind.
async fn the_deployment_of_a_former_name_is_removed(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    for foo in ["example", "other"] {
        world.create_foo(foo, &format!("{foo}-web"), Some(1)).await?;
        world.wait::<Deployment>(&format!("{foo}-web"), |_| true).await?;
    }
    world
        .patch::<Foo>("example", json!({ "spec": { "deploymentName": "renamed" } }))
        .await?;
    world.wait::<Deployment>("renamed", |_| true).await?;
    world.wait_gone::<Deployment>("example-web").await?;
    world.get::<Deployment>("other-web").await?;
    running.stop().await
}

/// 12. Nobody runs Deployments here, so the test says what became available.
async fn the_status_follows_the_deployment(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    world.create_foo("example", "web", Some(3)).await?;
    world.wait::<Deployment>("web", |_| true).await?;
    for available in [2, 3, 0] {
        let status =
            json!({ "status": { "replicas": 3, "readyReplicas": 3, "availableReplicas": available } });
        let api = case.api::<Deployment>();
        api.patch_status("web", &PatchParams::default(), &Patch::Merge(status))
            .await?;
        let told = |foo: &Foo| {
            foo.status
                .as_ref()
                .is_some_and(|status| status.available_replicas == available)
        };
        world.wait::<Foo>("example", told).await?;
    }
    running.stop().await
}

/// 8.
async fn a_foo_without_a_deployment_name_waits_for_one(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    world.create_foo("example", "", Some(1)).await?;
    world.settle().await?;
    assert_eq!(world.writes_about(&["example"]), [""; 0]);
    assert_eq!(world.failures(), 0);
    world
        .patch::<Foo>("example", json!({ "spec": { "deploymentName": "web" } }))
        .await?;
    world.wait::<Deployment>("web", |_| true).await?;
    running.stop().await
}

async fn a_foo_that_is_being_deleted_gets_nothing_new(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.create_foo("example", "web", Some(1)).await?;
    world
        .patch::<Foo>(
            "example",
            json!({ "metadata": { "finalizers": ["example.com/hold"] } }),
        )
        .await?;
    case.api::<Foo>()
        .delete("example", &DeleteParams::background())
        .await?;
    world
        .wait::<Foo>("example", |foo| foo.metadata.deletion_timestamp.is_some())
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

fn spec(deployment: &Deployment) -> &DeploymentSpec {
    deployment
        .spec
        .as_ref()
        .expect("the server keeps no Deployment without one")
}

fn image(deployment: &Deployment) -> Option<&str> {
    let containers = &spec(deployment).template.spec.as_ref()?.containers;
    containers
        .iter()
        .find(|container| container.name == "nginx")?
        .image
        .as_deref()
}

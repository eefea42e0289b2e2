//! Deployments of others.

use std::time::Duration;

use serde_json::json;
use windlass::{
    k8s_openapi::api::{apps::v1::Deployment, core::v1::Event},
    prelude::*,
};
use windlass_foo::Foo;
use windlass_suite::{Context as Case, Sent};

use crate::world::World;

/// 6.
pub(crate) async fn a_deployment_of_somebody_else_is_not_touched(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let foreign = world.create(foreign()?).await?;
    world.wait_for::<Deployment>("web", |_| true).await?;
    let running = world.start();
    let foo = world.create_foo("example", "web", Some(5)).await?;
    let told = world
        .told(&foo, |event| taken(event) && event.count > Some(1))
        .await?;
    assert_eq!(told.type_.as_deref(), Some("Warning"));
    let message = told.message.as_deref();
    assert_eq!(
        message,
        Some(r#"Resource "web" already exists and is not managed by Foo"#)
    );
    let before = world.wire().requests();
    world.a_while().await;
    let requests = world.wire().requests() - before;
    assert!(
        (1..=60).contains(&requests),
        "{requests}: it looks again, ever more seldom"
    );
    assert_eq!(world.writes_about(&["example", "web"]), [""; 0]);
    assert_eq!(world.get::<Deployment>("web").await?, foreign);
    assert_eq!(world.get::<Foo>("example").await?.status, None);

    world.delete::<Deployment>("web").await?;
    assert_succeeds(&world, &foo, &foreign).await?;
    running.stop().await
}

/// 6: nor one that the controller could not see when it looked.
pub(crate) async fn a_deployment_that_appears_in_the_last_moment_stays_theirs(
    case: Case,
) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let makes = |sent: &Sent| sent.is_write() && sent.is_about("deployments", "web");
    world.wire().delay(1, Duration::from_secs(2), makes);
    let running = world.start();
    let foo = world.create_foo("example", "web", Some(5)).await?;
    world.wire().seen(makes).await?;
    let foreign = world.create(foreign()?).await?;
    let told = world.told(&foo, taken).await?;
    assert_eq!(told.type_.as_deref(), Some("Warning"));
    assert_eq!(world.get::<Deployment>("web").await?, foreign);
    assert_eq!(world.get::<Foo>("example").await?.status, None);
    assert_eq!(
        world.writes_about(&["example", "web"]),
        ["patch deployments/web"],
        "and that was refused"
    );

    world.delete::<Deployment>("web").await?;
    assert_succeeds(&world, &foo, &foreign).await?;
    running.stop().await
}

/// 6: nor one of another Foo, until that one gives up the name.
pub(crate) async fn two_foos_do_not_share_a_deployment(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    world.create_foo("first", "web", Some(1)).await?;
    let theirs = world.wait_for::<Deployment>("web", |_| true).await?;
    let second = world.create_foo("second", "web", Some(3)).await?;
    world.told(&second, taken).await?;
    assert_eq!(world.get::<Deployment>("web").await?.uid(), theirs.uid());
    world
        .patch::<Foo>("first", json!({ "spec": { "deploymentName": "moved" } }))
        .await?;
    assert_succeeds(&world, &second, &theirs).await?;
    running.stop().await
}

/// 6: control is by UID. Who has the name of one that is gone waits for its Deployment to be collected.
pub(crate) async fn a_foo_does_not_inherit_from_its_namesake(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    world.create_foo("example", "web", Some(1)).await?;
    world.synced("example").await?;
    let theirs = world.get::<Deployment>("web").await?;
    world.delete::<Foo>("example").await?;
    world.wait_gone::<Foo>("example").await?;
    world.settle().await?;
    world.wire().forget();
    let second = world.create_foo("example", "web", Some(3)).await?;
    world.told(&second, taken).await?;
    assert_eq!(world.writes_about(&["example", "web"]), [""; 0]);
    // Nobody collects garbage here, so the test does.
    world.delete::<Deployment>("web").await?;
    assert_succeeds(&world, &second, &theirs).await?;
    running.stop().await
}

/// 8, 9: neither a Deployment that another kind controls or nobody, nor one whose Foo is gone, leads to anything.
pub(crate) async fn what_happens_to_others_is_none_of_its_business(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    world.create_foo("example", "web", Some(1)).await?;
    world.synced("example").await?;
    world.settle().await?;
    let owner = |kind: &str, name: &str| {
        let (group, uid) = (
            "samplecontroller.k8s.io/v1alpha1",
            "0e8d2a3f-0000-4000-8000-000000000000",
        );
        json!([{ "apiVersion": group, "kind": kind, "name": name, "uid": uid, "controller": true }])
    };
    let before = (world.outcomes().done(), world.wire().requests());
    let owners = [owner("Bar", "example"), owner("Foo", "gone"), json!([])];
    for (number, owners) in owners.into_iter().enumerate() {
        let mut others = world.get::<Deployment>("web").await?;
        others.metadata =
            from_value(json!({ "name": format!("other-{number}"), "ownerReferences": owners }))?;
        let others = world.create(others).await?;
        let scale = json!({ "spec": { "replicas": 7 } });
        world.patch::<Deployment>(&others.name_any(), scale).await?;
        world.delete::<Deployment>(&others.name_any()).await?;
    }
    world.a_while().await;
    let (done, requests) = (world.outcomes().done(), world.wire().requests());
    // The Foo that is gone may be looked for in the cache, and that is all.
    assert!(done - before.0 <= 3, "{done} after {}", before.0);
    assert_eq!(requests, before.1);
    assert_eq!(world.outcomes().failed(), 0);
    running.stop().await
}

/// The Deployment of this name is another one, and the Foo's.
async fn assert_succeeds(world: &World, foo: &Foo, before: &Deployment) -> anyhow::Result<()> {
    let is_another = |now: &Deployment| now.uid() != before.uid();
    let now = world.wait_for("web", is_another).await?;
    assert_eq!(Some(&now.owner_references()[0].uid), foo.metadata.uid.as_ref());
    Ok(())
}

/// It has much in common with one of a Foo.
fn foreign() -> anyhow::Result<Deployment> {
    let labels = json!({ "app": "nginx" });
    Ok(from_value(json!({
        "metadata": { "name": "web" },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "nginx", "image": "nginx:latest" }] },
            },
        },
    }))?)
}

fn taken(event: &Event) -> bool {
    event.reason.as_deref() == Some("ErrResourceExists")
}

//! The rights that it ships with.

use http::StatusCode;
use serde_json::json;
use windlass::{k8s_openapi::api::apps::v1::Deployment, runtime::ElectionConfig};
use windlass_foo::Foo;
use windlass_suite::{Context as Case, Running, Sent};

use crate::world::{World, foo, shipped};

/// All cases run with these rights. Here is a life in which each of them is needed.
pub(crate) async fn the_roles_are_enough_and_nothing_in_them_is_idle(case: Case) -> anyhow::Result<()> {
    let rights = shipped();
    let world = World::with(&case, &rights).await?;
    // A server that does not stream lists is asked for them.
    let streams = |sent: &Sent| sent.access.verb == "watch";
    world.wire().refuse(2, StatusCode::UNPROCESSABLE_ENTITY, streams);
    let manager = foo(world.manager()).elect(ElectionConfig::new("foo"));
    let running = Running::start(manager);
    world.create_foo("example", "web", Some(1)).await?;
    world.synced("example").await?;
    let renamed = json!({ "spec": { "deploymentName": "renamed" } });
    world.patch::<Foo>("example", renamed).await?;
    let first = world.wait_for::<Deployment>("renamed", |_| true).await?;
    world.wait_gone::<Deployment>("web").await?;
    world.settle().await?;
    world.delete::<Deployment>("renamed").await?;
    let is_another = |now: &Deployment| now.metadata.uid != first.metadata.uid;
    world.wait_for("renamed", is_another).await?;
    world.settle().await?;
    running.stop().await?;
    assert_eq!(rights.refused(), [""; 0]);
    assert_eq!(rights.unused(), [], "granted, and nobody needs it");
    Ok(())
}

//! What a Foo can ask for, and what it cannot.

use serde_json::json;
use windlass::{
    k8s_openapi::api::{apps::v1::Deployment, core::v1::Event},
    kube::api::ListParams,
};
use windlass_foo::Foo;
use windlass_suite::Context as Case;

use crate::world::{QUIET, World};

/// 1: and says which field, and what it may be.
pub(crate) async fn the_server_refuses_replicas_out_of_range(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    for replicas in [0, 11, -1] {
        let refused = world.create_foo("example", "web", Some(replicas)).await;
        let error = refused.expect_err("out of range").to_string();
        assert!(error.contains("spec.replicas"), "{error}");
        let limit = if replicas > 10 {
            "less than or equal to 10"
        } else {
            "greater than or equal to 1"
        };
        assert!(error.contains(limit), "{error}");
    }
    for (name, replicas) in [("one", Some(1)), ("ten", Some(10)), ("none", None)] {
        world.create_foo(name, "web", replicas).await?;
    }
    Ok(())
}

/// 8, and better: upstream says so in its log alone.
pub(crate) async fn a_foo_without_a_deployment_name_waits_for_one(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    let foo = world.create_foo("example", "", Some(1)).await?;
    let told = world.told(&foo, invalid).await?;
    let message = told.message.unwrap_or_default();
    assert!(
        message.contains("spec.deploymentName is empty: set it"),
        "{message}"
    );
    world.wire().quiet(QUIET).await;
    let before = world.wire().requests();
    world.a_while().await;
    assert_eq!(world.wire().requests(), before, "it is not tried again");
    assert_eq!(world.writes_about(&["example"]), [""; 0]);
    assert_eq!((world.outcomes().failed(), world.outcomes().terminal()), (0, 1));

    let named = json!({ "spec": { "deploymentName": "web" } });
    world.patch::<Foo>("example", named).await?;
    world.wait_for::<Deployment>("web", |_| true).await?;
    running.stop().await
}

/// The server takes any text for a name; what comes of it is told to whoever looks at the Foo, and costs next to nothing.
pub(crate) async fn a_name_that_cannot_be_is_told_and_not_asked_for_again_and_again(
    case: Case,
) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    // A part of what the name of another could be, which must not be taken for it.
    world.create_foo("other", "web", Some(1)).await?;
    world.synced("other").await?;
    let untouched = world.version::<Deployment>("web").await?;
    let long = "x".repeat(254);
    let names = [
        ("capitals", "Not_Valid!", "lowercase RFC 1123 subdomain"),
        ("part", "web/status", "letters, digits"),
        ("query", "web?dryRun=All", "letters, digits"),
        ("dots", "..", "letters, digits"),
        ("long", &long, "no more than 253"),
    ];
    for (foo, name, fix) in names {
        let foo = world.create_foo(foo, name, Some(1)).await?;
        let told = world.told(&foo, invalid).await?;
        assert_eq!(told.type_.as_deref(), Some("Warning"));
        let message = told.message.unwrap_or_default();
        assert!(message.contains(fix), "{name}: {message}");
        // Messages of events have an end.
        assert!(message.contains(&name[..name.len().min(40)]), "{name}: {message}");
    }
    let before = world.wire().requests();
    world.a_while().await;
    let requests = world.wire().requests() - before;
    assert!(
        requests <= 100,
        "{requests} requests for two names that the server refuses"
    );
    assert_eq!(world.version::<Deployment>("web").await?, untouched);
    let deployments = case.api::<Deployment>().list(&ListParams::default()).await?;
    assert_eq!(deployments.items.len(), 1);
    running.stop().await
}

/// Nothing is lost by a slip of the pen.
pub(crate) async fn a_foo_that_asks_for_what_cannot_be_keeps_what_it_has(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    let foo = world.create_foo("example", "web", Some(1)).await?;
    world.synced("example").await?;
    let made = world.version::<Deployment>("web").await?;
    for name in ["", "Not_Valid!"] {
        let slip = json!({ "spec": { "deploymentName": name } });
        world.patch::<Foo>("example", slip).await?;
        let about = |event: &Event| {
            let message = event.message.as_deref().unwrap_or_default();
            invalid(event) && message.contains(if name.is_empty() { "is empty" } else { name })
        };
        world.told(&foo, about).await?;
        assert_eq!(world.version::<Deployment>("web").await?, made, "`{name}`");
    }
    let back = json!({ "spec": { "deploymentName": "web" } });
    world.patch::<Foo>("example", back).await?;
    world.settle().await?;
    assert_eq!(world.version::<Deployment>("web").await?, made);
    running.stop().await
}

fn invalid(event: &Event) -> bool {
    event.reason.as_deref() == Some("ErrInvalid")
}

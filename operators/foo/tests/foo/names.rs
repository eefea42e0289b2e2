//! Valid and invalid specs.

use serde_json::json;
use windlass::{
    k8s_openapi::api::{apps::v1::Deployment, core::v1::Event},
    kube::api::ListParams,
};
use windlass_foo::Foo;
use windlass_suite::Context as Case;

use crate::foo::fixture::{Fixture, IDLE_AFTER};

/// The error names the field and its limits.
pub(crate) async fn server_rejects_replicas_out_of_range(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    for replicas in [0, 11, -1] {
        let refused = env.create_foo("example", "web", Some(replicas)).await;
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
        env.create_foo(name, "web", replicas).await?;
    }
    Ok(())
}

/// Better than upstream, which only logs it.
pub(crate) async fn empty_deployment_name_is_reported_and_not_retried(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = env.start();
    let foo = env.create_foo("example", "", Some(1)).await?;
    let event = env.wait_for_event(&foo, is_invalid).await?;
    let message = event.message.unwrap_or_default();
    assert!(
        message.contains("spec.deploymentName is empty: set it"),
        "{message}"
    );
    env.proxy().wait_until_idle(IDLE_AFTER).await;
    let before = env.proxy().request_count();
    env.wait_for_retries().await;
    assert_eq!(env.proxy().request_count(), before, "it is not retried");
    assert_eq!(env.writes_about(&["example"]), [""; 0]);
    assert_eq!((env.outcomes().failed(), env.outcomes().terminal()), (0, 1));

    let named = json!({ "spec": { "deploymentName": "web" } });
    env.patch::<Foo>("example", named).await?;
    env.wait_for::<Deployment>("web", |_| true).await?;
    running.stop().await
}

/// The CRD accepts any string as a name; an event reports an invalid one, and retries are rare.
pub(crate) async fn invalid_deployment_name_is_reported_and_retried_rarely(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = env.start();
    // Some of the invalid names below would address this Deployment if they were put into a path.
    env.create_foo("other", "web", Some(1)).await?;
    env.wait_for_status("other").await?;
    let untouched = env.version::<Deployment>("web").await?;
    let long = "x".repeat(254);
    let names = [
        ("capitals", "Not_Valid!", "lowercase RFC 1123 subdomain"),
        ("part", "web/status", "letters, digits"),
        ("query", "web?dryRun=All", "letters, digits"),
        ("dots", "..", "letters, digits"),
        ("long", &long, "no more than 253"),
        // The Foo's own name becomes a label of its pods.
        (&long[..64], "fine", "no more than 63"),
    ];
    for (foo, name, fix) in names {
        let foo = env.create_foo(foo, name, Some(1)).await?;
        let event = env.wait_for_event(&foo, is_invalid).await?;
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        let message = event.message.unwrap_or_default();
        assert!(message.contains(fix), "{name}: {message}");
        // Event messages are truncated.
        assert!(message.contains(&name[..name.len().min(40)]), "{name}: {message}");
    }
    let before = env.proxy().request_count();
    env.wait_for_retries().await;
    let requests = env.proxy().request_count() - before;
    assert!(
        requests <= 130,
        "{requests} requests for three names that the server rejects"
    );
    assert_eq!(env.version::<Deployment>("web").await?, untouched);
    let deployments = case.api::<Deployment>().list(&ListParams::default()).await?;
    assert_eq!(deployments.items.len(), 1);
    running.stop().await
}

pub(crate) async fn invalid_change_keeps_the_existing_deployment(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = env.start();
    let foo = env.create_foo("example", "web", Some(1)).await?;
    env.wait_for_status("example").await?;
    let made = env.version::<Deployment>("web").await?;
    for name in ["", "Not_Valid!"] {
        let slip = json!({ "spec": { "deploymentName": name } });
        env.patch::<Foo>("example", slip).await?;
        let about = |event: &Event| {
            let message = event.message.as_deref().unwrap_or_default();
            is_invalid(event) && message.contains(if name.is_empty() { "is empty" } else { name })
        };
        env.wait_for_event(&foo, about).await?;
        assert_eq!(env.version::<Deployment>("web").await?, made, "`{name}`");
    }
    let back = json!({ "spec": { "deploymentName": "web" } });
    env.patch::<Foo>("example", back).await?;
    env.wait_until_processed().await?;
    assert_eq!(env.version::<Deployment>("web").await?, made);
    running.stop().await
}

fn is_invalid(event: &Event) -> bool {
    event.reason.as_deref() == Some("ErrInvalid")
}

//! Deployments that the Foo does not own.

use std::time::Duration;

use serde_json::json;
use windlass::{
    k8s_openapi::api::{apps::v1::Deployment, core::v1::Event},
    prelude::*,
};
use windlass_foo::Foo;
use windlass_suite::{Context as Case, RecordedRequest};

use crate::foo::fixture::Fixture;

pub(crate) async fn foreign_deployment_is_not_touched(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let foreign = env.create(foreign()?).await?;
    env.wait_for::<Deployment>("web", |_| true).await?;
    let running = env.start();
    let foo = env.create_foo("example", "web", Some(5)).await?;
    let event = env
        .wait_for_event(&foo, |event| is_name_taken(event) && event.count > Some(1))
        .await?;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    let message = event.message.as_deref();
    assert_eq!(
        message,
        Some(r#"Resource "web" already exists and is not managed by Foo"#)
    );
    let before = env.proxy().request_count();
    env.wait_for_retries().await;
    let requests = env.proxy().request_count() - before;
    assert!((1..=60).contains(&requests), "{requests}: retried with backoff");
    assert_eq!(env.writes_about(&["example", "web"]), [""; 0]);
    assert_eq!(env.get::<Deployment>("web").await?, foreign);
    assert_eq!(env.get::<Foo>("example").await?.status, None);

    env.delete::<Deployment>("web").await?;
    assert_replaces(&env, &foo, &foreign).await?;
    running.stop().await
}

/// Even if its cache did not have the Deployment yet.
pub(crate) async fn deployment_created_during_the_write_is_not_taken_over(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let makes = |sent: &RecordedRequest| sent.is_write() && sent.is_about("deployments", "web");
    env.proxy().delay(1, Duration::from_secs(2), makes);
    let running = env.start();
    let foo = env.create_foo("example", "web", Some(5)).await?;
    env.proxy().wait_until_sent(makes).await?;
    let foreign = env.create(foreign()?).await?;
    let event = env.wait_for_event(&foo, is_name_taken).await?;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(env.get::<Deployment>("web").await?, foreign);
    assert_eq!(env.get::<Foo>("example").await?.status, None);
    assert_eq!(
        env.writes_about(&["example", "web"]),
        ["patch deployments/web"],
        "which was rejected"
    );

    env.delete::<Deployment>("web").await?;
    assert_replaces(&env, &foo, &foreign).await?;
    running.stop().await
}

/// The second Foo gets the name when the first releases it.
pub(crate) async fn two_foos_do_not_share_a_deployment(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = env.start();
    env.create_foo("first", "web", Some(1)).await?;
    let theirs = env.wait_for::<Deployment>("web", |_| true).await?;
    let second = env.create_foo("second", "web", Some(3)).await?;
    env.wait_for_event(&second, is_name_taken).await?;
    assert_eq!(env.get::<Deployment>("web").await?.uid(), theirs.uid());
    env.patch::<Foo>("first", json!({ "spec": { "deploymentName": "moved" } }))
        .await?;
    assert_replaces(&env, &second, &theirs).await?;
    running.stop().await
}

/// Ownership is by UID: the new Foo waits until the old one's Deployment is garbage-collected.
pub(crate) async fn recreated_foo_does_not_adopt_the_old_deployment(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = env.start();
    env.create_foo("example", "web", Some(1)).await?;
    env.wait_for_status("example").await?;
    let theirs = env.get::<Deployment>("web").await?;
    env.delete::<Foo>("example").await?;
    env.wait_until_deleted::<Foo>("example").await?;
    env.wait_until_processed().await?;
    env.proxy().clear();
    let second = env.create_foo("example", "web", Some(3)).await?;
    env.wait_for_event(&second, is_name_taken).await?;
    assert_eq!(env.writes_about(&["example", "web"]), [""; 0]);
    // There is no garbage collector here, so the test deletes it.
    env.delete::<Deployment>("web").await?;
    assert_replaces(&env, &second, &theirs).await?;
    running.stop().await
}

/// Deployments without a controller, with one of another kind, or with a deleted Foo.
pub(crate) async fn foreign_deployments_cause_no_requests(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = env.start();
    env.create_foo("example", "web", Some(1)).await?;
    env.wait_for_status("example").await?;
    env.wait_until_processed().await?;
    let owner = |kind: &str, name: &str| {
        let (group, uid) = (
            "samplecontroller.k8s.io/v1alpha1",
            "0e8d2a3f-0000-4000-8000-000000000000",
        );
        json!([{ "apiVersion": group, "kind": kind, "name": name, "uid": uid, "controller": true }])
    };
    let before = (env.outcomes().done(), env.proxy().request_count());
    let owners = [owner("Bar", "example"), owner("Foo", "gone"), json!([])];
    for (number, owners) in owners.into_iter().enumerate() {
        let mut others = env.get::<Deployment>("web").await?;
        others.metadata =
            from_value(json!({ "name": format!("other-{number}"), "ownerReferences": owners }))?;
        let others = env.create(others).await?;
        let scale = json!({ "spec": { "replicas": 7 } });
        env.patch::<Deployment>(&others.name_any(), scale).await?;
        env.delete::<Deployment>(&others.name_any()).await?;
    }
    env.wait_for_retries().await;
    let (done, requests) = (env.outcomes().done(), env.proxy().request_count());
    // At most, the deleted Foo is looked up in the cache.
    assert!(done - before.0 <= 3, "{done} after {}", before.0);
    assert_eq!(requests, before.1);
    assert_eq!(env.outcomes().failed(), 0);
    running.stop().await
}

/// Waits for a new Deployment of this name, owned by the Foo.
async fn assert_replaces(env: &Fixture, foo: &Foo, before: &Deployment) -> anyhow::Result<()> {
    let is_another = |now: &Deployment| now.uid() != before.uid();
    let now = env.wait_for("web", is_another).await?;
    assert_eq!(Some(&now.owner_references()[0].uid), foo.metadata.uid.as_ref());
    Ok(())
}

/// A Deployment that resembles a Foo's.
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

fn is_name_taken(event: &Event) -> bool {
    event.reason.as_deref() == Some("ErrResourceExists")
}

//! Services that the Deployment does not own, and the shipped rights.

use http::StatusCode;
use windlass::{
    k8s_openapi::api::{apps::v1::Deployment, core::v1::Service},
    prelude::*,
    runtime::ElectionConfig,
    serde_json::Value,
};
use windlass_suite::{Context as Case, RecordedRequest, RunningManager};

use crate::autoservice::{
    fixture::{Fixture, container, shipped, web},
    program::controller,
};

/// Not even with our label, or when the annotation is removed, or the Deployment deleted.
pub(crate) async fn foreign_service_is_never_touched(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let foreign = fixture.create(labelled_service()?).await?;
    let running = fixture.start();
    let web = fixture.create_web(Some("true"), &[80]).await?;
    let message = fixture.wait_for_warning(&web, "ErrResourceExists").await?;
    assert_eq!(
        message,
        r#"Resource "web" already exists and is not managed by Deployment"#
    );
    fixture.annotate(None).await?;
    fixture.wait_until_idle().await;
    fixture.delete::<Deployment>("web").await?;
    fixture.wait_until_deleted::<Deployment>("web").await?;
    fixture.wait_until_idle().await;
    assert_eq!(fixture.get::<Service>("web").await?, foreign);
    assert_eq!(fixture.writes(), [""; 0]);
    running.stop().await
}

/// Owned by a Deployment that the user did not annotate, and not created by this controller.
pub(crate) async fn service_of_another_deployment_is_never_touched(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let mut other = web(None, &json!([container("web", &json!([]))]))?;
    other.metadata.name = Some("other".to_owned());
    let other = fixture.create(other).await?;
    let owner = other.controller_owner_ref(&());
    let foreign = fixture
        .create(service(json!({ "ownerReferences": owner.as_slice() }))?)
        .await?;
    let running = fixture.start();
    let web = fixture.create_web(Some("true"), &[80]).await?;
    fixture.wait_for_warning(&web, "ErrResourceExists").await?;
    fixture.wait_until_idle().await;
    assert_eq!(fixture.get::<Service>("web").await?, foreign);
    running.stop().await
}

pub(crate) async fn service_is_created_when_the_name_is_free(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let foreign = fixture.create(labelled_service()?).await?;
    let running = fixture.start();
    let web = fixture.create_web(Some("true"), &[80]).await?;
    fixture.wait_for_warning(&web, "ErrResourceExists").await?;
    fixture.delete::<Service>("web").await?;
    let ours = fixture
        .wait_for::<Service>("web", |service| service.uid() != foreign.uid())
        .await?;
    assert_eq!(Some(&ours.owner_references()[0].uid), web.metadata.uid.as_ref());
    running.stop().await
}

/// All cases run with the shipped rights. This one needs each of them.
pub(crate) async fn shipped_rights_are_sufficient_and_minimal(case: Case) -> anyhow::Result<()> {
    let rights = shipped();
    let fixture = Fixture::with(&case, &rights).await?;
    // A server without streaming lists makes the caches list.
    let streams = |sent: &RecordedRequest| sent.access.verb == "watch";
    fixture
        .proxy()
        .reject(2, StatusCode::UNPROCESSABLE_ENTITY, streams);
    let manager = fixture
        .manager()
        .controller(controller())
        .elect(ElectionConfig::new("autoservice"));
    let running = RunningManager::start(manager);
    let web = fixture.create_web(Some("true"), &[80]).await?;
    let first = fixture.wait_for::<Service>("web", |_| true).await?;
    fixture.wait_until_idle().await;
    fixture.delete::<Service>("web").await?;
    let is_another = |service: &Service| service.uid() != first.uid();
    fixture.wait_for("web", is_another).await?;
    // Two equal events: the second patches the first.
    for image in ["nginx:1", "nginx:2"] {
        let without_ports = json!({ "name": "web", "image": image, "ports": [] });
        fixture.set_containers(&[without_ports]).await?;
        fixture.wait_until_deleted::<Service>("web").await?;
        fixture.wait_for_warning(&web, "NoPorts").await?;
        fixture.wait_until_idle().await;
    }
    fixture.wait_until_idle().await;
    running.stop().await?;
    assert_eq!(rights.forbidden(), [""; 0]);
    assert_eq!(rights.unused(), [], "unused rights");
    Ok(())
}

/// A Service `web` with this additional metadata.
fn labelled_service() -> anyhow::Result<Service> {
    service(json!({ "labels": { "windlass.dev/controller": "autoservice" } }))
}

fn service(mut metadata: Value) -> anyhow::Result<Service> {
    metadata["name"] = json!("web");
    let spec = json!({ "selector": { "app": "theirs" }, "ports": [{ "port": 8080 }] });
    Ok(from_value(json!({ "metadata": metadata, "spec": spec }))?)
}

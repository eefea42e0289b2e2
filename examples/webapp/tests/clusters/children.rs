//! The children of a WebApp, and its status.

use windlass::{
    k8s_openapi::api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Secret, Service},
        networking::v1::Ingress,
    },
    prelude::*,
};
use windlass_webapp::{SECRET_VERSION_ANNOTATION, WebApp};

use crate::fixture::Fixture;

pub(crate) async fn webapp_gets_its_children_and_becomes_ready(fixture: &Fixture) -> anyhow::Result<()> {
    let running = fixture.start()?;
    let host = "shop.example.com";
    fixture
        .create_shop(json!({ "replicas": 2, "host": host, "config": { "GREETING": "hello" } }))
        .await?;
    fixture.wait_for::<ConfigMap>("shop", |_| true).await?;
    fixture.wait_for::<Service>("shop", |_| true).await?;
    fixture.wait_for::<Ingress>("shop", |_| true).await?;
    let is_waiting = |app: &WebApp| {
        app.status
            .as_ref()
            .is_some_and(|status| !status.conditions.is_true("Ready"))
    };
    fixture.wait_for("shop", is_waiting).await?;
    fixture.roll_out("shop").await?;
    let is_ready = |app: &WebApp| {
        app.status
            .as_ref()
            .is_some_and(|status| status.conditions.is_true("Ready"))
    };
    let app = fixture.wait_for("shop", is_ready).await?;
    let status = app.status.clone().unwrap_or_default();
    assert_eq!(status.url.as_deref(), Some("http://shop.example.com/"));
    assert_eq!(status.ready_replicas, 2);
    assert!(!status.conditions.is_stale("Ready", app.metadata.generation));
    assert_eq!(status.observed_generation, app.metadata.generation);
    running.stop().await
}

pub(crate) async fn webapp_is_not_ready_with_pods_of_the_old_image(fixture: &Fixture) -> anyhow::Result<()> {
    let running = fixture.start()?;
    fixture.create_shop(json!({ "replicas": 2 })).await?;
    fixture.wait_for::<Deployment>("shop", |_| true).await?;
    fixture.roll_out("shop").await?;
    let ready = |app: &WebApp| {
        let conditions = &app.status.as_ref()?.conditions;
        let ready = conditions.of_type("Ready")?;
        Some((ready.observed_generation, ready.status == "True"))
    };
    fixture
        .wait_for::<WebApp>("shop", |app| ready(app).is_some_and(|(_, is_ready)| is_ready))
        .await?;
    let image = json!({ "spec": { "image": "registry.example.com/shop:2" } });
    let generation = fixture.patch::<WebApp>("shop", image).await?.metadata.generation;
    // The first status of the new generation, while the Deployment still has its old pods.
    let app = fixture
        .wait_for::<WebApp>("shop", |app| ready(app).is_some_and(|(of, _)| of == generation))
        .await?;
    assert_eq!(ready(&app), Some((generation, false)));
    // Both old pods are ready and a new one is not; then a new one has replaced an old one, and the other is not ready.
    for (replicas, updated, current) in [(3, 1, 0), (3, 2, 1)] {
        fixture.report_replicas("shop", replicas, updated, 2).await?;
        let message = format!("{current} of 2 replicas are ready");
        let is_reported = |app: &WebApp| {
            let conditions = app.status.as_ref().map(|status| &status.conditions);
            conditions
                .and_then(|conditions| conditions.of_type("Ready"))
                .is_some_and(|ready| ready.message == message)
        };
        let app = fixture.wait_for::<WebApp>("shop", is_reported).await?;
        assert_eq!(ready(&app), Some((generation, false)));
    }
    fixture.roll_out("shop").await?;
    fixture
        .wait_for::<WebApp>("shop", |app| ready(app) == Some((generation, true)))
        .await?;
    running.stop().await
}

/// The version of the Secret that the pods use.
fn secret_version(deployment: &Deployment) -> Option<&String> {
    let template = &deployment.spec.as_ref()?.template;
    template
        .metadata
        .as_ref()?
        .annotations
        .as_ref()?
        .get(SECRET_VERSION_ANNOTATION)
}

fn keys() -> anyhow::Result<Secret> {
    Ok(from_value(
        json!({ "metadata": { "name": "keys" }, "stringData": { "KEY": "one" } }),
    )?)
}

pub(crate) async fn changed_secret_restarts_the_pods(fixture: &Fixture) -> anyhow::Result<()> {
    let running = fixture.start()?;
    let secret = fixture.create(keys()?).await?;
    fixture.create_shop(json!({ "secretName": "keys" })).await?;
    let uses = |deployment: &Deployment, secret: &Secret| {
        secret_version(deployment) == secret.resource_version().as_ref()
    };
    fixture
        .wait_for::<Deployment>("shop", |deployment| uses(deployment, &secret))
        .await?;
    let secret = fixture
        .patch::<Secret>("keys", json!({ "stringData": { "KEY": "two" } }))
        .await?;
    fixture
        .wait_for::<Deployment>("shop", |deployment| uses(deployment, &secret))
        .await?;
    running.stop().await
}

pub(crate) async fn missing_secret_keeps_the_children(fixture: &Fixture) -> anyhow::Result<()> {
    let running = fixture.start()?;
    let secret = fixture.create(keys()?).await?;
    fixture
        .create_shop(json!({ "secretName": "keys", "host": "shop.example.com" }))
        .await?;
    let before = fixture.wait_for::<Ingress>("shop", |_| true).await?;
    fixture.delete::<Secret>("keys").await?;
    fixture.wait_until_deleted::<Secret>("keys").await?;
    let is_undecided = |app: &WebApp| {
        let conditions = app.status.as_ref().map(|status| &status.conditions);
        conditions
            .and_then(|conditions| conditions.of_type("Ready"))
            .is_some_and(|ready| ready.reason == "SecretMissing")
    };
    fixture.wait_for::<WebApp>("shop", is_undecided).await?;
    assert_eq!(fixture.get::<Ingress>("shop").await?.uid(), before.uid());
    assert_eq!(
        secret_version(&fixture.get::<Deployment>("shop").await?),
        secret.resource_version().as_ref()
    );
    // Created again, it is used at once.
    let secret = fixture.create(keys()?).await?;
    let uses = |deployment: &Deployment| secret_version(deployment) == secret.resource_version().as_ref();
    fixture.wait_for::<Deployment>("shop", uses).await?;
    running.stop().await
}

pub(crate) async fn ingress_is_deleted_with_the_host(fixture: &Fixture) -> anyhow::Result<()> {
    let running = fixture.start()?;
    fixture.create_shop(json!({ "host": "shop.example.com" })).await?;
    fixture.wait_for::<Ingress>("shop", |_| true).await?;
    fixture
        .patch::<WebApp>("shop", json!({ "spec": { "host": null } }))
        .await?;
    fixture.wait_until_deleted::<Ingress>("shop").await?;
    fixture.get::<Deployment>("shop").await?;
    running.stop().await
}

pub(crate) async fn server_enforces_the_rules(fixture: &Fixture) -> anyhow::Result<()> {
    let preview = fixture
        .create_shop(json!({ "replicas": 2, "ttlSeconds": 60 }))
        .await;
    let error = preview.expect_err("it has two replicas").to_string();
    assert!(error.contains("is a preview and has one replica"), "{error}");
    fixture.create_shop(json!({})).await?;
    let changed = fixture
        .patch::<WebApp>("shop", json!({ "spec": { "port": 80 } }))
        .await;
    let error = changed.expect_err("the port has changed").to_string();
    assert!(error.contains("port is immutable"), "{error}");
    Ok(())
}

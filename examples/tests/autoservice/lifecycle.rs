//! When a Service is created, corrected and deleted.

use windlass::{
    k8s_openapi::api::{apps::v1::Deployment, core::v1::Service},
    prelude::*,
};
use windlass_suite::Context as Case;

use crate::autoservice::fixture::Fixture;

pub(crate) async fn annotated_deployment_gets_a_service_that_it_owns(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let running = fixture.start();
    let web = fixture.create_web(Some("true"), &[80]).await?;
    let service = fixture.wait_for_ports(&["tcp-80: TCP 80 to 80"]).await?;
    let [owner] = service.owner_references() else {
        panic!("one owner, not {:?}", service.owner_references());
    };
    assert_eq!(
        (&owner.uid, owner.controller),
        (&web.uid().unwrap_or_default(), Some(true))
    );
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.clone());
    assert_eq!(selector, Some([("app".to_owned(), "web".to_owned())].into()));
    fixture.wait_until_idle().await;
    assert_eq!(fixture.writes(), ["patch services/web"]);
    running.stop().await
}

pub(crate) async fn deployment_without_annotation_gets_no_service(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let running = fixture.start();
    fixture.create_web(None, &[80]).await?;
    fixture.wait_until_idle().await;
    fixture.annotate(Some("false")).await?;
    fixture.wait_until_idle().await;
    assert_eq!(fixture.writes(), [""; 0]);
    running.stop().await
}

pub(crate) async fn annotation_can_be_added_later(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let running = fixture.start();
    fixture.create_web(None, &[80]).await?;
    fixture.wait_until_idle().await;
    fixture.annotate(Some("true")).await?;
    fixture.wait_for_ports(&["tcp-80: TCP 80 to 80"]).await?;
    running.stop().await
}

/// The Service of another annotated Deployment stays.
pub(crate) async fn removing_the_annotation_deletes_the_service(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let running = fixture.start();
    let mut other = fixture.create_web(Some("true"), &[80]).await?;
    other.metadata = from_value(json!({ "name": "other", "annotations": other.annotations() }))?;
    fixture.create(other).await?;
    fixture.wait_for::<Service>("other", |_| true).await?;
    for disabled in [None, Some("false")] {
        fixture.annotate(Some("true")).await?;
        fixture.wait_for::<Service>("web", |_| true).await?;
        // The change of the annotation must trigger it, not that of the Service.
        fixture.wait_until_idle().await;
        fixture.annotate(disabled).await?;
        fixture.wait_until_deleted::<Service>("web").await?;
    }
    fixture.wait_until_idle().await;
    fixture.get::<Service>("other").await?;
    running.stop().await
}

pub(crate) async fn invalid_annotation_is_reported_and_keeps_the_service(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let running = fixture.start();
    let web = fixture.create_web(Some("true"), &[80]).await?;
    fixture.wait_for::<Service>("web", |_| true).await?;
    fixture.wait_until_idle().await;
    fixture.annotate(Some("yes")).await?;
    let message = fixture.wait_for_warning(&web, "ErrInvalid").await?;
    assert!(
        message.contains(r#"example.com/autoservice="yes": must be "true" or "false""#),
        "{message}"
    );
    fixture.wait_until_idle().await;
    assert_eq!(fixture.writes(), ["patch services/web"]);
    running.stop().await
}

pub(crate) async fn deleted_service_is_recreated(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let running = fixture.start();
    fixture.create_web(Some("true"), &[80]).await?;
    let first = fixture.wait_for::<Service>("web", |_| true).await?;
    fixture.delete::<Service>("web").await?;
    fixture
        .wait_for::<Service>("web", |service| service.uid() != first.uid())
        .await?;
    running.stop().await
}

pub(crate) async fn drift_is_corrected_and_foreign_labels_are_kept(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let running = fixture.start();
    fixture.create_web(Some("true"), &[80]).await?;
    fixture.wait_for::<Service>("web", |_| true).await?;
    fixture.wait_until_idle().await;
    let drift = json!({
        "metadata": { "labels": { "theirs": "kept" } },
        "spec": {
            "selector": { "app": "other" },
            "ports": [{ "name": "tcp-80", "port": 80, "targetPort": 8080 }],
        },
    });
    fixture.patch::<Service>("web", drift).await?;
    let corrected = fixture
        .wait_for::<Service>("web", |service| {
            let spec = json!(service.spec);
            spec["selector"] == json!({ "app": "web" }) && spec["ports"][0]["targetPort"] == 80
        })
        .await?;
    assert_eq!(corrected.labels().get("theirs").map(String::as_str), Some("kept"));
    running.stop().await
}

/// A missed event is no loss: what counts is the state that it finds at the start.
pub(crate) async fn changes_while_stopped_are_caught_up(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    fixture.create_web(Some("true"), &[80]).await?;
    let running = fixture.start();
    fixture.wait_for_ports(&["tcp-80: TCP 80 to 80"]).await?;
    running.stop().await?;
    fixture.annotate(None).await?;
    fixture
        .wait_for::<Deployment>("web", |web| {
            web.annotations().get("example.com/autoservice").is_none()
        })
        .await?;
    let running = fixture.start();
    fixture.wait_until_deleted::<Service>("web").await?;
    running.stop().await
}

pub(crate) async fn restart_writes_nothing(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let running = fixture.start();
    fixture.create_web(Some("true"), &[80]).await?;
    fixture.wait_for::<Service>("web", |_| true).await?;
    fixture.wait_until_idle().await;
    running.stop().await?;
    fixture.proxy().clear();
    let running = fixture.start();
    fixture.wait_until_idle().await;
    assert_eq!(fixture.writes(), [""; 0]);
    running.stop().await
}

/// By the cluster's garbage collector, because of the owner reference.
pub(crate) async fn service_is_deleted_with_its_deployment(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let running = fixture.start();
    fixture.create_web(Some("true"), &[80]).await?;
    fixture.wait_for::<Service>("web", |_| true).await?;
    fixture.wait_until_idle().await;
    fixture.proxy().clear();
    fixture.delete::<Deployment>("web").await?;
    fixture.wait_until_deleted::<Service>("web").await?;
    assert_eq!(fixture.writes(), [""; 0]);
    running.stop().await
}

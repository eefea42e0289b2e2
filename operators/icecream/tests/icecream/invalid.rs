//! Invalid Icecreams: they are reported, change nothing, and are not retried in a loop.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use windlass::{k8s_openapi::api::apps::v1::Deployment, prelude::*};
use windlass_icecream::Icecream;
use windlass_suite::Context as Case;

use crate::icecream::fixture::{Fixture, flavor_label};

/// The maximum number of requests per minute for an invalid spec: it is not retried, only its event may be repeated.
const MAX_REQUESTS_INVALID: usize = 3;

/// The maximum number of requests per minute for a retried error: the backoff from 5 ms allows 13 retries, each with an event.
const MAX_REQUESTS_RETRIED: usize = 14;

pub(crate) async fn server_rejects_replicas_out_of_range(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::stopped(&case).await?;
    for replicas in [0, 11, -1] {
        let spec = json!({ "deploymentName": "scoops", "replicas": replicas });
        let refused = fixture
            .create_icecream("example", spec)
            .await
            .expect_err("out of range");
        assert!(refused.to_string().contains("spec.replicas"), "{refused}");
    }
    for (name, replicas) in [("one", json!(1)), ("ten", json!(10)), ("none", json!(null))] {
        let spec = json!({ "deploymentName": "scoops", "replicas": replicas });
        fixture.create_icecream(name, spec).await?;
    }
    Ok(())
}

pub(crate) async fn invalid_names_and_labels_are_reported_and_change_nothing(
    case: Case,
) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    let long = "a".repeat(64);
    let mistakes = [
        (
            "empty",
            json!({ "deploymentName": "" }),
            "spec.deploymentName: invalid name \"\": use ",
        ),
        (
            "missing",
            json!({}),
            "spec.deploymentName: invalid name \"\": use ",
        ),
        (
            "upper",
            json!({ "deploymentName": "Scoops" }),
            "spec.deploymentName: invalid name \"Scoops\": use ",
        ),
        (
            "path",
            json!({ "deploymentName": "x/status" }),
            "spec.deploymentName: invalid name \"x/status\": use ",
        ),
        (
            "spaced",
            json!({ "deploymentName": "scoops", "flavor": "salted caramel" }),
            "spec.flavor: invalid label value \"salted caramel\": use at most 63 ",
        ),
        (
            &long,
            json!({ "deploymentName": "scoops" }),
            "metadata.name: invalid label value \"aaa",
        ),
    ];
    for (name, spec, expected) in mistakes {
        fixture.wait_until_idle().await;
        fixture.proxy().clear();
        let icecream = fixture.create_icecream(name, spec).await?;
        let message = fixture.wait_for_warning(&icecream, "ErrInvalid").await?;
        let start = format!("Icecream {}/{name}: {expected}", case.namespace());
        assert!(message.starts_with(&start), "{message}");
        let requests = fixture.requests_in_a_minute().await;
        assert!(requests <= MAX_REQUESTS_INVALID, "{name}: {requests} requests");
        assert_eq!(fixture.writes(), [""; 0], "{name}");
    }

    // Existing objects stay, and a corrected spec works.
    fixture
        .create_icecream("example", json!({ "deploymentName": "kept" }))
        .await?;
    fixture.wait_for_pods("example", &[]).await?;
    let kept = fixture.get::<Deployment>("kept").await?;
    fixture.wait_until_idle().await;
    fixture.proxy().clear();
    let wrong = json!({ "spec": { "deploymentName": "not a name", "flavor": "neither!" } });
    let icecream = fixture.patch::<Icecream>("example", wrong).await?;
    fixture.wait_for_warning(&icecream, "ErrInvalid").await?;
    fixture.wait_until_idle().await;
    assert_eq!(fixture.writes(), [""; 0]);
    assert_eq!(fixture.get::<Deployment>("kept").await?, kept);
    fixture
        .create_pod("one", flavor_label("mint"), "north", 1)
        .await?;
    let right = json!({ "spec": { "deploymentName": "kept", "flavor": "mint" } });
    fixture.patch::<Icecream>("example", right).await?;
    fixture.wait_for_pods("example", &["one"]).await?;
    assert_eq!(fixture.get::<Deployment>("kept").await?.uid(), kept.uid());
    fixture.stop().await
}

pub(crate) async fn foreign_deployment_is_untouched_until_its_name_is_free(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    let theirs: Deployment = serde_json::from_value(json!({
        "metadata": { "name": "scoops", "labels": { "icecream": "example" } },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "icecream": "example" } },
            "template": {
                "metadata": { "labels": { "icecream": "example" } },
                "spec": { "containers": [{ "name": "nginx", "image": "theirs" }] },
            },
        },
    }))?;
    let theirs = fixture.create(theirs).await?;
    let spec = json!({ "deploymentName": "scoops", "replicas": 1 });
    let icecream = fixture.create_icecream("example", spec).await?;
    let message = fixture.wait_for_warning(&icecream, "ErrResourceExists").await?;
    assert_eq!(
        message,
        "Resource \"scoops\" already exists and is not managed by Icecream"
    );
    let requests = fixture.requests_in_a_minute().await;
    assert!(requests <= MAX_REQUESTS_RETRIED, "{requests} requests");
    assert!(fixture.reconciles().1 > 0, "it fails");
    assert_eq!(fixture.writes(), [""; 0]);
    assert_eq!(fixture.get::<Deployment>("scoops").await?, theirs, "unchanged");

    // The backoff is many seconds by now: the deletion triggers the reconcile.
    let freed = Instant::now();
    fixture.delete::<Deployment>("scoops").await?;
    let own = fixture
        .wait_for::<Deployment>("scoops", |deployment| deployment.uid() != theirs.uid())
        .await?;
    assert!(freed.elapsed() < Duration::from_secs(5), "{:?}", freed.elapsed());
    assert_eq!(own.owner_references()[0].name, "example");
    fixture.wait_for_pods("example", &[]).await?;
    fixture.stop().await
}

/// The first one keeps it; the other gets the name when the first releases it.
pub(crate) async fn two_icecreams_do_not_share_a_deployment(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    let spec = json!({ "deploymentName": "scoops" });
    let first = fixture.create_icecream("first", spec.clone()).await?;
    fixture.wait_for_pods("first", &[]).await?;
    let second = fixture.create_icecream("second", spec).await?;
    fixture.wait_for_warning(&second, "ErrResourceExists").await?;
    let owner = async || {
        anyhow::Ok(
            fixture.get::<Deployment>("scoops").await?.owner_references()[0]
                .uid
                .clone(),
        )
    };
    assert_eq!(Some(owner().await?), first.uid());
    fixture
        .patch::<Icecream>("first", json!({ "spec": { "deploymentName": "moved" } }))
        .await?;
    fixture.wait_for_pods("second", &[]).await?;
    assert_eq!(Some(owner().await?), second.uid());
    fixture.stop().await
}

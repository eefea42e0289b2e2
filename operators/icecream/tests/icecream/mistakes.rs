//! What can be wrong, and that it is told, harms nobody and is not asked about again and again.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use windlass::{k8s_openapi::api::apps::v1::Deployment, prelude::*};
use windlass_icecream::Icecream;
use windlass_suite::Context as Case;

use crate::stand::{Stand, of_flavor};

/// No retry mends a spec: nothing is sent, but for an event that says the same once more.
const QUIET: usize = 3;

/// What is retried after 5 ms, and each time after twice as long, is retried 13 times in a minute; each is told.
const PATIENT: usize = 14;

pub(crate) async fn the_server_refuses_replicas_out_of_range(case: Case) -> anyhow::Result<()> {
    let stand = Stand::closed(&case).await?;
    for replicas in [0, 11, -1] {
        let spec = json!({ "deploymentName": "scoops", "replicas": replicas });
        let refused = stand.icecream("example", spec).await.expect_err("out of range");
        assert!(refused.to_string().contains("spec.replicas"), "{refused}");
    }
    for (name, replicas) in [("one", json!(1)), ("ten", json!(10)), ("none", json!(null))] {
        let spec = json!({ "deploymentName": "scoops", "replicas": replicas });
        stand.icecream(name, spec).await?;
    }
    Ok(())
}

pub(crate) async fn what_cannot_be_a_name_or_label_is_told_with_the_rule_and_changes_nothing(
    case: Case,
) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
    let long = "a".repeat(64);
    let mistakes = [
        (
            "empty",
            json!({ "deploymentName": "" }),
            "spec.deploymentName: `` is no name: use ",
        ),
        ("missing", json!({}), "spec.deploymentName: `` is no name: use "),
        (
            "upper",
            json!({ "deploymentName": "Scoops" }),
            "spec.deploymentName: `Scoops` is no name: use ",
        ),
        (
            "path",
            json!({ "deploymentName": "x/status" }),
            "spec.deploymentName: `x/status` is no name: use ",
        ),
        (
            "spaced",
            json!({ "deploymentName": "scoops", "flavor": "salted caramel" }),
            "spec.flavor: `salted caramel` is no label value: use at most 63 ",
        ),
        (
            &long,
            json!({ "deploymentName": "scoops" }),
            "metadata.name: `aaa",
        ),
    ];
    for (name, spec, expected) in mistakes {
        stand.settle().await;
        stand.wire().forget();
        let icecream = stand.icecream(name, spec).await?;
        let told = stand.warned(&icecream, "ErrInvalid").await?;
        let start = format!("Icecream {}/{name}: {expected}", case.namespace());
        assert!(told.starts_with(&start), "{told}");
        let requests = stand.requests_in_a_minute().await;
        assert!(requests <= QUIET, "{name}: {requests} requests");
        assert_eq!(stand.writes(), [""; 0], "{name}");
    }

    // What was there stays, and what is mended works.
    stand
        .icecream("example", json!({ "deploymentName": "kept" }))
        .await?;
    stand.tells("example", &[]).await?;
    let kept = stand.get::<Deployment>("kept").await?;
    stand.settle().await;
    stand.wire().forget();
    let wrong = json!({ "spec": { "deploymentName": "not a name", "flavor": "neither!" } });
    let icecream = stand.patch::<Icecream>("example", wrong).await?;
    stand.warned(&icecream, "ErrInvalid").await?;
    stand.settle().await;
    assert_eq!(stand.writes(), [""; 0]);
    assert_eq!(stand.get::<Deployment>("kept").await?, kept);
    stand.pod("one", of_flavor("mint"), "north", 1).await?;
    let right = json!({ "spec": { "deploymentName": "kept", "flavor": "mint" } });
    stand.patch::<Icecream>("example", right).await?;
    stand.tells("example", &["one"]).await?;
    assert_eq!(stand.get::<Deployment>("kept").await?.uid(), kept.uid());
    stand.close().await
}

pub(crate) async fn a_deployment_of_somebody_else_is_not_touched_and_its_name_taken_when_it_is_free(
    case: Case,
) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
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
    let theirs = stand.create(theirs).await?;
    let spec = json!({ "deploymentName": "scoops", "replicas": 1 });
    let icecream = stand.icecream("example", spec).await?;
    let told = stand.warned(&icecream, "ErrResourceExists").await?;
    assert_eq!(
        told,
        "Resource \"scoops\" already exists and is not managed by Icecream"
    );
    let requests = stand.requests_in_a_minute().await;
    assert!(requests <= PATIENT, "{requests} requests");
    assert!(stand.looks().1 > 0, "it fails");
    assert_eq!(stand.writes(), [""; 0]);
    assert_eq!(
        stand.get::<Deployment>("scoops").await?,
        theirs,
        "to the last byte"
    );

    // The backoff is at many seconds by now: it is the deletion that wakes it.
    let freed = Instant::now();
    stand.delete::<Deployment>("scoops").await?;
    let own = stand
        .wait_for::<Deployment>("scoops", |deployment| deployment.uid() != theirs.uid())
        .await?;
    assert!(freed.elapsed() < Duration::from_secs(5), "{:?}", freed.elapsed());
    assert_eq!(own.owner_references()[0].name, "example");
    stand.tells("example", &[]).await?;
    stand.close().await
}

/// Who was first keeps it; the other gets it when the first lets it go.
pub(crate) async fn two_icecreams_do_not_share_a_deployment(case: Case) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
    let spec = json!({ "deploymentName": "scoops" });
    let first = stand.icecream("first", spec.clone()).await?;
    stand.tells("first", &[]).await?;
    let second = stand.icecream("second", spec).await?;
    stand.warned(&second, "ErrResourceExists").await?;
    let owner = async || {
        anyhow::Ok(
            stand.get::<Deployment>("scoops").await?.owner_references()[0]
                .uid
                .clone(),
        )
    };
    assert_eq!(Some(owner().await?), first.uid());
    stand
        .patch::<Icecream>("first", json!({ "spec": { "deploymentName": "moved" } }))
        .await?;
    stand.tells("second", &[]).await?;
    assert_eq!(Some(owner().await?), second.uid());
    stand.close().await
}

//! Deployments: created, resized, rolled out and back.

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;
use windlass_suite::Context;

use crate::stage::{Stage, web};

pub(crate) async fn a_deployment_is_created_and_scaled(ctx: Context) -> Result<()> {
    let mut stage = Stage::new(ctx).await?;
    stage.step("create");
    stage.create::<Deployment>(web(&json!({ "replicas": 2 }))).await?;
    stage.settle().await?;
    stage.step("scale to 3");
    stage.scale(3).await?;
    stage.settle().await?;
    stage.step("scale to 1");
    stage.scale(1).await?;
    stage.settle().await?;
    stage.step("scale to 0");
    stage.scale(0).await?;
    stage.settle().await?;
    stage.conclude("a_deployment_is_created_and_scaled").await
}

pub(crate) async fn a_template_is_rolled_out_and_undone(ctx: Context) -> Result<()> {
    let mut stage = Stage::new(ctx).await?;
    stage.step("create");
    stage.create::<Deployment>(web(&json!({ "replicas": 2 }))).await?;
    stage.settle().await?;
    stage.step("another image");
    stage.set_image("two").await?;
    stage.settle().await?;
    stage.step("the image before");
    stage.set_image("one").await?;
    stage.settle().await?;
    stage.step("a third image");
    stage.set_image("three").await?;
    stage.settle().await?;
    stage.conclude("a_template_is_rolled_out_and_undone").await
}

pub(crate) async fn a_rollout_takes_from_the_old_what_may_be_missing(ctx: Context) -> Result<()> {
    let mut stage = Stage::new(ctx).await?;
    stage.step("create");
    let strategy = json!({ "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "50%" } });
    let spec = json!({ "replicas": 4, "strategy": strategy });
    stage.create::<Deployment>(web(&spec)).await?;
    stage.settle().await?;
    stage.step("another image");
    stage.set_image("two").await?;
    stage.settle().await?;
    stage
        .conclude_decisions("a_rollout_takes_from_the_old_what_may_be_missing")
        .await
}

pub(crate) async fn a_size_that_changes_during_a_rollout_is_shared_out(ctx: Context) -> Result<()> {
    let mut stage = Stage::new(ctx).await?;
    stage.step("create");
    let strategy = json!({ "rollingUpdate": { "maxSurge": 2, "maxUnavailable": 1 } });
    let spec = json!({ "replicas": 4, "strategy": strategy });
    stage.create::<Deployment>(web(&spec)).await?;
    stage.settle().await?;
    stage.step("another image, and nobody starts its pods");
    stage.set_image("two").await?;
    stage.quiet().await?;
    stage.step("scale to 8");
    stage.scale(8).await?;
    stage.quiet().await?;
    stage.step("scale to 3");
    stage.scale(3).await?;
    stage.quiet().await?;
    stage.step("pods are started");
    stage.settle().await?;
    stage
        .conclude_decisions("a_size_that_changes_during_a_rollout_is_shared_out")
        .await
}

pub(crate) async fn a_paused_deployment_scales_but_does_not_roll(ctx: Context) -> Result<()> {
    let mut stage = Stage::new(ctx).await?;
    stage.step("create");
    stage.create::<Deployment>(web(&json!({ "replicas": 1 }))).await?;
    stage.settle().await?;
    stage.step("pause");
    let pause = |paused: bool| json!({ "spec": { "paused": paused } });
    stage.patch::<Deployment>("web", pause(true)).await?;
    stage.settle().await?;
    stage.step("another image");
    stage.set_image("two").await?;
    stage.settle().await?;
    stage.step("scale to 2");
    stage.scale(2).await?;
    stage.settle().await?;
    stage.step("resume");
    stage.patch::<Deployment>("web", pause(false)).await?;
    stage.settle().await?;
    stage
        .conclude("a_paused_deployment_scales_but_does_not_roll")
        .await
}

pub(crate) async fn recreate_waits_for_the_old_pods_to_go(ctx: Context) -> Result<()> {
    let mut stage = Stage::new(ctx).await?;
    stage.step("create");
    let spec = json!({ "replicas": 2, "strategy": { "type": "Recreate" } });
    stage.create::<Deployment>(web(&spec)).await?;
    stage.settle().await?;
    stage.step("another image");
    stage.set_image("two").await?;
    stage.settle().await?;
    stage.conclude("recreate_waits_for_the_old_pods_to_go").await
}

pub(crate) async fn a_rollout_that_stands_still_is_called_so(ctx: Context) -> Result<()> {
    let mut stage = Stage::new(ctx).await?;
    stage.step("create, and nobody starts its pods");
    let spec = json!({ "replicas": 1, "progressDeadlineSeconds": 2 });
    stage.create::<Deployment>(web(&spec)).await?;
    let timed_out = |deployment: Option<&Deployment>| {
        let status = deployment.and_then(|deployment| deployment.status.as_ref());
        let conditions = status
            .and_then(|status| status.conditions.as_deref())
            .unwrap_or_default();
        let reasons = conditions
            .iter()
            .filter_map(|condition| condition.reason.as_deref());
        reasons
            .into_iter()
            .any(|reason| reason == "ProgressDeadlineExceeded")
    };
    stage.until::<Deployment>("web", timed_out).await?;
    stage.quiet().await?;
    stage.step("its pod is started");
    stage.settle().await?;
    stage.conclude("a_rollout_that_stands_still_is_called_so").await
}

pub(crate) async fn old_revisions_beyond_the_limit_go(ctx: Context) -> Result<()> {
    let mut stage = Stage::new(ctx).await?;
    stage.step("create");
    let spec = json!({ "replicas": 1, "revisionHistoryLimit": 1 });
    stage.create::<Deployment>(web(&spec)).await?;
    stage.settle().await?;
    for image in ["two", "three", "four"] {
        stage.step(&format!("image {image}"));
        stage.set_image(image).await?;
        stage.settle().await?;
    }
    stage.conclude("old_revisions_beyond_the_limit_go").await
}

pub(crate) async fn a_pod_that_is_refused_is_told_of(ctx: Context) -> Result<()> {
    let mut stage = Stage::new(ctx).await?;
    stage.step("create for an account that is not there");
    let mut deployment = web(&json!({ "replicas": 2 }));
    deployment["spec"]["template"]["spec"]["serviceAccountName"] = "nobody".into();
    stage.create::<Deployment>(deployment).await?;
    stage.quiet().await?;
    stage.step("an account that is there");
    let account = json!({ "serviceAccountName": "default", "serviceAccount": "default" });
    let change = json!({ "spec": { "template": { "spec": account } } });
    stage.patch::<Deployment>("web", change).await?;
    stage.settle().await?;
    stage.conclude_decisions("a_pod_that_is_refused_is_told_of").await
}

pub(crate) async fn a_pod_must_stay_ready_to_count_as_available(ctx: Context) -> Result<()> {
    let mut stage = Stage::new(ctx).await?;
    stage.step("create");
    let spec = json!({ "replicas": 1, "minReadySeconds": 3 });
    stage.create::<Deployment>(web(&spec)).await?;
    stage.settle().await?;
    stage.step("time goes by");
    let available = |deployment: Option<&Deployment>| {
        let status = deployment.and_then(|deployment| deployment.status.as_ref());
        status.is_some_and(|status| status.available_replicas == Some(1))
    };
    stage.until::<Deployment>("web", available).await?;
    stage.settle().await?;
    stage.step("no wait any more");
    let change = json!({ "spec": { "minReadySeconds": 0 } });
    stage.patch::<Deployment>("web", change).await?;
    stage.settle().await?;
    stage
        .conclude("a_pod_must_stay_ready_to_count_as_available")
        .await
}

pub(crate) async fn annotations_are_passed_on(ctx: Context) -> Result<()> {
    let mut stage = Stage::new(ctx).await?;
    stage.step("create");
    stage.create::<Deployment>(web(&json!({ "replicas": 1 }))).await?;
    stage.settle().await?;
    stage.step("annotate");
    let change = json!({ "metadata": { "annotations": { "kubernetes.io/change-cause": "because" } } });
    stage.patch::<Deployment>("web", change).await?;
    stage.settle().await?;
    stage.step("restart");
    let now = json!({ "metadata": { "annotations": { "kubectl.kubernetes.io/restartedAt": "now" } } });
    stage
        .patch::<Deployment>("web", json!({ "spec": { "template": now } }))
        .await?;
    stage.settle().await?;
    stage.conclude("annotations_are_passed_on").await
}

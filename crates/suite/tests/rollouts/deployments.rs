//! Deployments: creation, scaling, rollouts and rollbacks.

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;
use windlass_suite::Context;

use crate::rollouts::test_run::{TestRun, web};

pub(crate) async fn a_deployment_is_created_and_scaled(ctx: Context) -> Result<()> {
    let mut run = TestRun::new(ctx).await?;
    run.step("create");
    run.create::<Deployment>(web(&json!({ "replicas": 2 }))).await?;
    run.settle().await?;
    run.step("scale to 3");
    run.scale(3).await?;
    run.settle().await?;
    run.step("scale to 1");
    run.scale(1).await?;
    run.settle().await?;
    run.step("scale to 0");
    run.scale(0).await?;
    run.settle().await?;
    run.compare_states("a_deployment_is_created_and_scaled").await
}

pub(crate) async fn a_template_is_rolled_out_and_undone(ctx: Context) -> Result<()> {
    let mut run = TestRun::new(ctx).await?;
    run.step("create");
    run.create::<Deployment>(web(&json!({ "replicas": 2 }))).await?;
    run.settle().await?;
    run.step("another image");
    run.set_image("two").await?;
    run.settle().await?;
    run.step("the image before");
    run.set_image("one").await?;
    run.settle().await?;
    run.step("a third image");
    run.set_image("three").await?;
    run.settle().await?;
    run.compare_states("a_template_is_rolled_out_and_undone").await
}

pub(crate) async fn a_rollout_takes_from_the_old_what_may_be_missing(ctx: Context) -> Result<()> {
    let mut run = TestRun::new(ctx).await?;
    run.step("create");
    let strategy = json!({ "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "50%" } });
    let spec = json!({ "replicas": 4, "strategy": strategy });
    run.create::<Deployment>(web(&spec)).await?;
    run.settle().await?;
    run.step("another image");
    run.set_image("two").await?;
    run.settle().await?;
    run.compare_decisions("a_rollout_takes_from_the_old_what_may_be_missing")
        .await
}

pub(crate) async fn a_size_that_changes_during_a_rollout_is_shared_out(ctx: Context) -> Result<()> {
    let mut run = TestRun::new(ctx).await?;
    run.step("create");
    let strategy = json!({ "rollingUpdate": { "maxSurge": 2, "maxUnavailable": 1 } });
    let spec = json!({ "replicas": 4, "strategy": strategy });
    run.create::<Deployment>(web(&spec)).await?;
    run.settle().await?;
    run.step("another image, and nobody starts its pods");
    run.set_image("two").await?;
    run.wait_until_idle().await?;
    run.step("scale to 8");
    run.scale(8).await?;
    run.wait_until_idle().await?;
    run.step("scale to 3");
    run.scale(3).await?;
    run.wait_until_idle().await?;
    run.step("pods are started");
    run.settle().await?;
    run.compare_decisions("a_size_that_changes_during_a_rollout_is_shared_out")
        .await
}

pub(crate) async fn a_paused_deployment_scales_but_does_not_roll(ctx: Context) -> Result<()> {
    let mut run = TestRun::new(ctx).await?;
    run.step("create");
    run.create::<Deployment>(web(&json!({ "replicas": 1 }))).await?;
    run.settle().await?;
    run.step("pause");
    let pause = |paused: bool| json!({ "spec": { "paused": paused } });
    run.patch::<Deployment>("web", pause(true)).await?;
    run.settle().await?;
    run.step("another image");
    run.set_image("two").await?;
    run.settle().await?;
    run.step("scale to 2");
    run.scale(2).await?;
    run.settle().await?;
    run.step("resume");
    run.patch::<Deployment>("web", pause(false)).await?;
    run.settle().await?;
    run.compare_states("a_paused_deployment_scales_but_does_not_roll")
        .await
}

pub(crate) async fn recreate_waits_for_the_old_pods_to_go(ctx: Context) -> Result<()> {
    let mut run = TestRun::new(ctx).await?;
    run.step("create");
    let spec = json!({ "replicas": 2, "strategy": { "type": "Recreate" } });
    run.create::<Deployment>(web(&spec)).await?;
    run.settle().await?;
    run.step("another image");
    run.set_image("two").await?;
    run.settle().await?;
    run.compare_states("recreate_waits_for_the_old_pods_to_go").await
}

pub(crate) async fn a_rollout_that_stands_still_is_called_so(ctx: Context) -> Result<()> {
    let mut run = TestRun::new(ctx).await?;
    run.step("create, and nobody starts its pods");
    let spec = json!({ "replicas": 1, "progressDeadlineSeconds": 2 });
    run.create::<Deployment>(web(&spec)).await?;
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
    run.wait_until::<Deployment>("web", timed_out).await?;
    run.wait_until_idle().await?;
    run.step("its pod is started");
    run.settle().await?;
    run.compare_states("a_rollout_that_stands_still_is_called_so")
        .await
}

pub(crate) async fn old_revisions_beyond_the_limit_go(ctx: Context) -> Result<()> {
    let mut run = TestRun::new(ctx).await?;
    run.step("create");
    let spec = json!({ "replicas": 1, "revisionHistoryLimit": 1 });
    run.create::<Deployment>(web(&spec)).await?;
    run.settle().await?;
    for image in ["two", "three", "four"] {
        run.step(&format!("image {image}"));
        run.set_image(image).await?;
        run.settle().await?;
    }
    run.compare_states("old_revisions_beyond_the_limit_go").await
}

pub(crate) async fn a_pod_that_is_refused_is_told_of(ctx: Context) -> Result<()> {
    let mut run = TestRun::new(ctx).await?;
    run.step("create for an account that is not there");
    let mut deployment = web(&json!({ "replicas": 2 }));
    deployment["spec"]["template"]["spec"]["serviceAccountName"] = "nobody".into();
    run.create::<Deployment>(deployment).await?;
    run.wait_until_idle().await?;
    run.step("an account that is there");
    let account = json!({ "serviceAccountName": "default", "serviceAccount": "default" });
    let change = json!({ "spec": { "template": { "spec": account } } });
    run.patch::<Deployment>("web", change).await?;
    run.settle().await?;
    run.compare_decisions("a_pod_that_is_refused_is_told_of").await
}

pub(crate) async fn a_pod_must_stay_ready_to_count_as_available(ctx: Context) -> Result<()> {
    let mut run = TestRun::new(ctx).await?;
    run.step("create");
    let spec = json!({ "replicas": 1, "minReadySeconds": 3 });
    run.create::<Deployment>(web(&spec)).await?;
    run.settle().await?;
    run.step("time goes by");
    let available = |deployment: Option<&Deployment>| {
        let status = deployment.and_then(|deployment| deployment.status.as_ref());
        status.is_some_and(|status| status.available_replicas == Some(1))
    };
    run.wait_until::<Deployment>("web", available).await?;
    run.settle().await?;
    run.step("no wait any more");
    let change = json!({ "spec": { "minReadySeconds": 0 } });
    run.patch::<Deployment>("web", change).await?;
    run.settle().await?;
    run.compare_states("a_pod_must_stay_ready_to_count_as_available")
        .await
}

pub(crate) async fn annotations_are_passed_on(ctx: Context) -> Result<()> {
    let mut run = TestRun::new(ctx).await?;
    run.step("create");
    run.create::<Deployment>(web(&json!({ "replicas": 1 }))).await?;
    run.settle().await?;
    run.step("annotate");
    let change = json!({ "metadata": { "annotations": { "kubernetes.io/change-cause": "because" } } });
    run.patch::<Deployment>("web", change).await?;
    run.settle().await?;
    run.step("restart");
    let now = json!({ "metadata": { "annotations": { "kubectl.kubernetes.io/restartedAt": "now" } } });
    run.patch::<Deployment>("web", json!({ "spec": { "template": now } }))
        .await?;
    run.settle().await?;
    run.compare_states("annotations_are_passed_on").await
}

//! ReplicaSets, and adoption and release of objects.

use anyhow::{Context as _, Result};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
};
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};
use windlass_suite::Context;

use crate::rollouts::test_run::{TestRun, template, web};

fn set(replicas: i32) -> Value {
    let mut set = web(&json!({ "replicas": replicas }));
    set["metadata"]["name"] = "set".into();
    set
}

fn pod(name: &str, labels: &Value) -> Value {
    let mut pod = template("one");
    pod["metadata"] = json!({ "name": name, "labels": labels });
    pod
}

pub(crate) async fn pods_are_adopted_and_released(ctx: Context) -> Result<()> {
    let mut run = TestRun::new(ctx).await?;
    run.step("pods that nobody controls");
    run.create::<Pod>(pod("before", &json!({ "app": "web" }))).await?;
    run.create::<Pod>(pod("other", &json!({ "app": "other" })))
        .await?;
    run.settle().await?;
    run.step("a ReplicaSet that selects one of them");
    run.create::<ReplicaSet>(set(2)).await?;
    run.settle().await?;
    run.step("it does not any more");
    let strange = json!({ "metadata": { "labels": { "app": "strange" } } });
    run.patch::<Pod>("before", strange).await?;
    run.settle().await?;
    run.step("another one begins to fit, and is too much");
    let fits = json!({ "metadata": { "labels": { "app": "web" } } });
    run.patch::<Pod>("other", fits).await?;
    run.settle().await?;
    run.compare_states("pods_are_adopted_and_released").await
}

pub(crate) async fn deployments_adopt_and_release_replica_sets(ctx: Context) -> Result<()> {
    let mut run = TestRun::new(ctx).await?;
    run.step("a ReplicaSet that nobody controls");
    run.create::<ReplicaSet>({
        let mut set = set(1);
        set["metadata"]["labels"] = json!({ "app": "web" });
        set
    })
    .await?;
    run.settle().await?;
    run.step("a Deployment that selects it, with the same template");
    run.create::<Deployment>(web(&json!({ "replicas": 2 }))).await?;
    run.settle().await?;
    run.step("it does not any more");
    let strange = json!({ "metadata": { "labels": { "app": "strange" } } });
    run.patch::<ReplicaSet>("set", strange).await?;
    run.settle().await?;
    run.compare_states("deployments_adopt_and_release_replica_sets")
        .await
}

pub(crate) async fn a_pod_that_ends_or_goes_is_replaced(ctx: Context) -> Result<()> {
    let mut run = TestRun::new(ctx).await?;
    run.step("create");
    run.create::<ReplicaSet>(set(1)).await?;
    run.settle().await?;
    let pods = run.ctx.api::<Pod>();
    run.step("its pod fails");
    let only = pods.list(&ListParams::default()).await?.items;
    let first = only.first().context("a pod")?.name_any();
    run.kubelet.set(&first, "Failed", false).await?;
    run.settle().await?;
    run.step("its pod is deleted");
    let active = ListParams::default().fields("status.phase=Running");
    let second = pods
        .list(&active)
        .await?
        .items
        .first()
        .context("a pod")?
        .name_any();
    pods.delete(&second, &DeleteParams::default()).await?;
    run.settle().await?;
    run.compare_states("a_pod_that_ends_or_goes_is_replaced").await
}

//! ReplicaSets on their own, and who controls what.

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

use crate::stage::{Stage, template, web};

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
    let mut stage = Stage::new(ctx).await?;
    stage.step("pods that nobody controls");
    stage
        .create::<Pod>(pod("before", &json!({ "app": "web" })))
        .await?;
    stage
        .create::<Pod>(pod("other", &json!({ "app": "other" })))
        .await?;
    stage.settle().await?;
    stage.step("a ReplicaSet that selects one of them");
    stage.create::<ReplicaSet>(set(2)).await?;
    stage.settle().await?;
    stage.step("it does not any more");
    let strange = json!({ "metadata": { "labels": { "app": "strange" } } });
    stage.patch::<Pod>("before", strange).await?;
    stage.settle().await?;
    stage.step("another one begins to fit, and is too much");
    let fits = json!({ "metadata": { "labels": { "app": "web" } } });
    stage.patch::<Pod>("other", fits).await?;
    stage.settle().await?;
    stage.conclude("pods_are_adopted_and_released").await
}

pub(crate) async fn deployments_adopt_and_release_replica_sets(ctx: Context) -> Result<()> {
    let mut stage = Stage::new(ctx).await?;
    stage.step("a ReplicaSet that nobody controls");
    stage
        .create::<ReplicaSet>({
            let mut set = set(1);
            set["metadata"]["labels"] = json!({ "app": "web" });
            set
        })
        .await?;
    stage.settle().await?;
    stage.step("a Deployment that selects it, with the same template");
    stage.create::<Deployment>(web(&json!({ "replicas": 2 }))).await?;
    stage.settle().await?;
    stage.step("it does not any more");
    let strange = json!({ "metadata": { "labels": { "app": "strange" } } });
    stage.patch::<ReplicaSet>("set", strange).await?;
    stage.settle().await?;
    stage.conclude("deployments_adopt_and_release_replica_sets").await
}

pub(crate) async fn a_pod_that_ends_or_goes_is_replaced(ctx: Context) -> Result<()> {
    let mut stage = Stage::new(ctx).await?;
    stage.step("create");
    stage.create::<ReplicaSet>(set(1)).await?;
    stage.settle().await?;
    let pods = stage.ctx.api::<Pod>();
    stage.step("its pod fails");
    let only = pods.list(&ListParams::default()).await?.items;
    let first = only.first().context("a pod")?.name_any();
    stage.kubelet.set(&first, "Failed", false).await?;
    stage.settle().await?;
    stage.step("its pod is deleted");
    let active = ListParams::default().fields("status.phase=Running");
    let second = pods
        .list(&active)
        .await?
        .items
        .first()
        .context("a pod")?
        .name_any();
    pods.delete(&second, &DeleteParams::default()).await?;
    stage.settle().await?;
    stage.conclude("a_pod_that_ends_or_goes_is_replaced").await
}

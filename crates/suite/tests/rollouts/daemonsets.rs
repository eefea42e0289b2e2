//! DaemonSets: where their pods are, and how their template changes.

use anyhow::{Context as _, Result};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Node, Pod},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use windlass_suite::Context;

use crate::stage::{Stage, template};

/// The DaemonSet `agent`, on the case's own nodes: others are played on by other cases.
fn agent(stage: &Stage, strategy: &Value) -> Value {
    let mut template = template("one");
    template["spec"]["nodeSelector"] = json!({ "case": stage.ctx.namespace() });
    json!({
        "metadata": { "name": "agent" },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": template,
            "updateStrategy": strategy,
        },
    })
}

fn rolling(limits: &Value) -> Value {
    json!({ "type": "RollingUpdate", "rollingUpdate": limits })
}

/// Two nodes for the case, besides the one that it has.
async fn nodes(stage: &mut Stage) -> Result<[String; 2]> {
    let names = ["a", "b"].map(|letter| format!("node-{}-{letter}", stage.ctx.namespace()));
    for name in &names {
        stage.add_node(name).await?;
    }
    Ok(names)
}

async fn set_image(stage: &Stage, image: &str) -> Result<()> {
    let container = json!({ "name": "web", "image": image });
    let change = json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
    stage.patch::<DaemonSet>("agent", change).await.map(drop)
}

pub(crate) async fn daemons_follow_nodes(ctx: Context) -> Result<()> {
    let mut stage = Stage::new(ctx).await?;
    let [first, second] = nodes(&mut stage).await?;
    let nodes = Api::<Node>::all(stage.ctx.client());
    stage.step("create");
    let agent = agent(&stage, &rolling(&json!({})));
    stage.create::<DaemonSet>(agent).await?;
    stage.settle().await?;
    let change = |change: Value| {
        let (nodes, first) = (nodes.clone(), first.clone());
        async move {
            nodes
                .patch(&first, &PatchParams::default(), &Patch::Strategic(&change))
                .await
        }
    };
    let taint = |effect: &str| json!({ "spec": { "taints": [{ "key": "t", "effect": effect }] } });
    stage.step("a taint keeps new ones off a node");
    change(taint("NoSchedule")).await?;
    stage.settle().await?;
    stage.step("a node is not selected any more");
    let label = |value: Value| json!({ "metadata": { "labels": { "case": value } } });
    change(label(Value::Null)).await?;
    stage.settle().await?;
    stage.step("it is again, but tainted");
    change(label(stage.ctx.namespace().into())).await?;
    stage.settle().await?;
    stage.step("the taint goes");
    change(json!({ "spec": { "taints": null } })).await?;
    stage.settle().await?;
    stage.step("cordoned");
    let cordoned = json!({ "spec": { "unschedulable": true } });
    nodes
        .patch(&second, &PatchParams::default(), &Patch::Merge(&cordoned))
        .await?;
    stage.settle().await?;
    stage.conclude("daemons_follow_nodes").await
}

pub(crate) async fn a_template_is_rolled_out_and_undone(ctx: Context) -> Result<()> {
    let mut stage = Stage::new(ctx).await?;
    nodes(&mut stage).await?;
    stage.step("create");
    let agent = agent(&stage, &rolling(&json!({ "maxUnavailable": 1 })));
    stage.create::<DaemonSet>(agent).await?;
    stage.settle().await?;
    stage.step("another image");
    set_image(&stage, "two").await?;
    stage.settle().await?;
    stage.step("the image before");
    set_image(&stage, "one").await?;
    stage.settle().await?;
    stage.step("a third, and one revision is kept");
    let limit = json!({ "spec": { "revisionHistoryLimit": 1 } });
    stage.patch::<DaemonSet>("agent", limit).await?;
    set_image(&stage, "three").await?;
    stage.settle().await?;
    stage
        .conclude_decisions("a_daemon_template_is_rolled_out_and_undone")
        .await
}

pub(crate) async fn new_daemons_may_come_before_old_ones_go(ctx: Context) -> Result<()> {
    let mut stage = Stage::new(ctx).await?;
    nodes(&mut stage).await?;
    stage.step("create");
    let agent = agent(&stage, &rolling(&json!({ "maxSurge": 1, "maxUnavailable": 0 })));
    stage.create::<DaemonSet>(agent).await?;
    stage.settle().await?;
    stage.step("another image");
    set_image(&stage, "two").await?;
    stage.settle().await?;
    stage
        .conclude_decisions("new_daemons_may_come_before_old_ones_go")
        .await
}

pub(crate) async fn daemons_are_replaced_when_they_go(ctx: Context) -> Result<()> {
    let mut stage = Stage::new(ctx).await?;
    let name = format!("node-{}-a", stage.ctx.namespace());
    stage.add_node(&name).await?;
    stage.step("create");
    let agent = agent(&stage, &json!({ "type": "OnDelete" }));
    stage.create::<DaemonSet>(agent).await?;
    stage.settle().await?;
    stage.step("another image, and nothing happens");
    set_image(&stage, "two").await?;
    stage.settle().await?;
    let pods = stage.ctx.api::<Pod>();
    stage.step("its pod is deleted");
    let only = pods.list(&ListParams::default()).await?.items;
    pods.delete(
        &only.first().context("a pod")?.name_any(),
        &DeleteParams::default(),
    )
    .await?;
    stage.settle().await?;
    stage.step("its pod fails");
    let only = pods.list(&ListParams::default()).await?.items;
    stage
        .kubelet
        .set(&only.first().context("a pod")?.name_any(), "Failed", false)
        .await?;
    stage.settle().await?;
    stage
        .conclude_decisions("daemons_are_replaced_when_they_go")
        .await
}

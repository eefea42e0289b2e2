//! DaemonSets: placement and rolling updates.

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

use crate::rollouts::test_run::{TestRun, template};

/// The DaemonSet `agent`, limited to the case's own nodes, since other cases have nodes too.
fn agent(run: &TestRun, strategy: &Value) -> Value {
    let mut template = template("one");
    template["spec"]["nodeSelector"] = json!({ "case": run.ctx.namespace() });
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

/// Adds two nodes to the one that the case has.
async fn nodes(run: &mut TestRun) -> Result<[String; 2]> {
    let names = ["a", "b"].map(|letter| format!("node-{}-{letter}", run.ctx.namespace()));
    for name in &names {
        run.add_node(name).await?;
    }
    Ok(names)
}

async fn set_image(run: &TestRun, image: &str) -> Result<()> {
    let container = json!({ "name": "web", "image": image });
    let change = json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
    run.patch::<DaemonSet>("agent", change).await.map(drop)
}

pub(crate) async fn daemons_follow_nodes(ctx: Context) -> Result<()> {
    let mut run = TestRun::new(ctx).await?;
    let [first, second] = nodes(&mut run).await?;
    let nodes = Api::<Node>::all(run.ctx.client());
    run.step("create");
    let agent = agent(&run, &rolling(&json!({})));
    run.create::<DaemonSet>(agent).await?;
    run.settle().await?;
    let change = |change: Value| {
        let (nodes, first) = (nodes.clone(), first.clone());
        async move {
            nodes
                .patch(&first, &PatchParams::default(), &Patch::Strategic(&change))
                .await
        }
    };
    let taint = |effect: &str| json!({ "spec": { "taints": [{ "key": "t", "effect": effect }] } });
    run.step("a taint keeps new ones off a node");
    change(taint("NoSchedule")).await?;
    run.settle().await?;
    run.step("a node is not selected any more");
    let label = |value: Value| json!({ "metadata": { "labels": { "case": value } } });
    change(label(Value::Null)).await?;
    run.settle().await?;
    run.step("it is again, but tainted");
    change(label(run.ctx.namespace().into())).await?;
    run.settle().await?;
    run.step("the taint goes");
    change(json!({ "spec": { "taints": null } })).await?;
    run.settle().await?;
    run.step("cordoned");
    let cordoned = json!({ "spec": { "unschedulable": true } });
    nodes
        .patch(&second, &PatchParams::default(), &Patch::Merge(&cordoned))
        .await?;
    run.settle().await?;
    run.compare_states("daemons_follow_nodes").await
}

pub(crate) async fn a_template_is_rolled_out_and_undone(ctx: Context) -> Result<()> {
    let mut run = TestRun::new(ctx).await?;
    nodes(&mut run).await?;
    run.step("create");
    let agent = agent(&run, &rolling(&json!({ "maxUnavailable": 1 })));
    run.create::<DaemonSet>(agent).await?;
    run.settle().await?;
    run.step("another image");
    set_image(&run, "two").await?;
    run.settle().await?;
    run.step("the image before");
    set_image(&run, "one").await?;
    run.settle().await?;
    run.step("a third, and one revision is kept");
    let limit = json!({ "spec": { "revisionHistoryLimit": 1 } });
    run.patch::<DaemonSet>("agent", limit).await?;
    set_image(&run, "three").await?;
    run.settle().await?;
    run.compare_decisions("a_daemon_template_is_rolled_out_and_undone")
        .await
}

pub(crate) async fn new_daemons_may_come_before_old_ones_go(ctx: Context) -> Result<()> {
    let mut run = TestRun::new(ctx).await?;
    nodes(&mut run).await?;
    run.step("create");
    let agent = agent(&run, &rolling(&json!({ "maxSurge": 1, "maxUnavailable": 0 })));
    run.create::<DaemonSet>(agent).await?;
    run.settle().await?;
    run.step("another image");
    set_image(&run, "two").await?;
    run.settle().await?;
    run.compare_decisions("new_daemons_may_come_before_old_ones_go")
        .await
}

pub(crate) async fn daemons_are_replaced_when_they_go(ctx: Context) -> Result<()> {
    let mut run = TestRun::new(ctx).await?;
    let name = format!("node-{}-a", run.ctx.namespace());
    run.add_node(&name).await?;
    run.step("create");
    let agent = agent(&run, &json!({ "type": "OnDelete" }));
    run.create::<DaemonSet>(agent).await?;
    run.settle().await?;
    run.step("another image, and nothing happens");
    set_image(&run, "two").await?;
    run.settle().await?;
    let pods = run.ctx.api::<Pod>();
    run.step("its pod is deleted");
    let only = pods.list(&ListParams::default()).await?.items;
    pods.delete(
        &only.first().context("a pod")?.name_any(),
        &DeleteParams::default(),
    )
    .await?;
    run.settle().await?;
    run.step("its pod fails");
    let only = pods.list(&ListParams::default()).await?.items;
    run.kubelet
        .set(&only.first().context("a pod")?.name_any(), "Failed", false)
        .await?;
    run.settle().await?;
    run.compare_decisions("daemons_are_replaced_when_they_go").await
}

//! A kubelet that does one thing when it is told to, so that what follows has an order.

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{from_value, json};
use windlass_suite::Context;

pub(crate) struct Kubelet {
    pods: Api<Pod>,
    pub(crate) node: String,
    client: kube::Client,
}

/// What there is to do.
pub(crate) enum Chore {
    Assign(Pod),
    Run(Pod),
    Remove(Pod),
}

impl Kubelet {
    /// With a node of its own; it goes with the namespace.
    pub(crate) async fn new(ctx: &Context) -> Result<Self> {
        let node = format!("node-{}", ctx.namespace());
        let kubelet = Self {
            pods: ctx.api(),
            node: node.clone(),
            client: ctx.client(),
        };
        kubelet.add_node(&node, json!({})).await?;
        Ok(kubelet)
    }

    pub(crate) async fn add_node(&self, name: &str, labels: serde_json::Value) -> Result<()> {
        let nodes = Api::<Node>::all(self.client.clone());
        let node = from_value(json!({ "metadata": { "name": name, "labels": labels } }))?;
        nodes.create(&PostParams::default(), &node).await?;
        let ready = json!({ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
            "lastHeartbeatTime": now(), "lastTransitionTime": now() });
        let status = json!({ "status": { "conditions": [ready] } });
        let patch = Patch::Merge(&status);
        nodes.patch_status(name, &PatchParams::default(), &patch).await?;
        // Nobody renews the node's lease: the taints that it begins with are taken off by hand.
        let untainted = json!({ "spec": { "taints": null } });
        nodes
            .patch(name, &PatchParams::default(), &Patch::Merge(&untainted))
            .await?;
        Ok(())
    }

    /// The next thing to do: first pods are started, in the order of their names, then removed.
    pub(crate) async fn next(&self) -> Result<Option<Chore>> {
        let pods = self.pods.list(&ListParams::default()).await?.items;
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        let is_assigned = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let waits = |pod: &&Pod| {
            pod.metadata.deletion_timestamp.is_none() && phase(pod).as_deref() == Some("Pending")
        };
        if let Some(pod) = pods.iter().find(waits) {
            let pod = pod.clone();
            return Ok(Some(if is_assigned(&pod) {
                Chore::Run(pod)
            } else {
                Chore::Assign(pod)
            }));
        }
        let leaving = pods
            .into_iter()
            .find(|pod| pod.metadata.deletion_timestamp.is_some());
        Ok(leaving.map(Chore::Remove))
    }

    pub(crate) async fn act(&self, chore: &Chore) -> Result<()> {
        match chore {
            Chore::Assign(pod) => {
                let binding = json!({
                    "apiVersion": "v1", "kind": "Binding",
                    "metadata": { "name": pod.name_any() },
                    "target": { "apiVersion": "v1", "kind": "Node", "name": meant_for(pod).unwrap_or(&self.node) },
                });
                let params = PostParams::default();
                let _: serde_json::Value = self
                    .pods
                    .create_subresource("binding", &pod.name_any(), &params, &binding)
                    .await?;
            }
            Chore::Run(pod) => self.set(&pod.name_any(), "Running", true).await?,
            Chore::Remove(pod) => {
                let at_once = DeleteParams::default().grace_period(0);
                self.pods.delete(&pod.name_any(), &at_once).await?;
            }
        }
        Ok(())
    }

    /// Says how a pod is.
    pub(crate) async fn set(&self, pod: &str, phase: &str, ready: bool) -> Result<()> {
        let status = if ready { "True" } else { "False" };
        let condition = |type_| json!({ "type": type_, "status": status, "lastTransitionTime": now() });
        let conditions = ["Initialized", "Ready", "ContainersReady"].map(condition);
        let status = json!({ "status": { "phase": phase, "conditions": conditions } });
        let patch = Patch::Strategic(&status);
        self.pods
            .patch_status(pod, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }
}

/// The node that a DaemonSet's pod names.
fn meant_for(pod: &Pod) -> Option<&str> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let field = required
        .node_selector_terms
        .first()?
        .match_fields
        .as_ref()?
        .first()?;
    field.values.as_ref()?.first().map(String::as_str)
}

fn now() -> String {
    let seconds = k8s_openapi::jiff::Timestamp::now().as_second();
    let now = k8s_openapi::jiff::Timestamp::from_second(seconds).unwrap_or_default();
    now.to_string()
}

//! A kubelet that the test drives one action at a time, so that the effects have an order.

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

pub(crate) enum KubeletAction {
    Assign(Pod),
    Run(Pod),
    Remove(Pod),
}

impl Kubelet {
    /// Creates a kubelet with its own node.
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
        // There is no heartbeat, so the initial taints are removed here.
        let untainted = json!({ "spec": { "taints": null } });
        nodes
            .patch(name, &PatchParams::default(), &Patch::Merge(&untainted))
            .await?;
        Ok(())
    }

    /// Returns the next action: first starts of pods, in name order, then removals.
    pub(crate) async fn next(&self) -> Result<Option<KubeletAction>> {
        let pods = self.pods.list(&ListParams::default()).await?.items;
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        let is_assigned = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let waits = |pod: &&Pod| {
            pod.metadata.deletion_timestamp.is_none() && phase(pod).as_deref() == Some("Pending")
        };
        if let Some(pod) = pods.iter().find(waits) {
            let pod = pod.clone();
            return Ok(Some(if is_assigned(&pod) {
                KubeletAction::Run(pod)
            } else {
                KubeletAction::Assign(pod)
            }));
        }
        let leaving = pods
            .into_iter()
            .find(|pod| pod.metadata.deletion_timestamp.is_some());
        Ok(leaving.map(KubeletAction::Remove))
    }

    pub(crate) async fn act(&self, chore: &KubeletAction) -> Result<()> {
        match chore {
            KubeletAction::Assign(pod) => {
                let binding = json!({
                    "apiVersion": "v1", "kind": "Binding",
                    "metadata": { "name": pod.name_any() },
                    "target": { "apiVersion": "v1", "kind": "Node", "name": pinned_node(pod).unwrap_or(&self.node) },
                });
                let params = PostParams::default();
                let _: serde_json::Value = self
                    .pods
                    .create_subresource("binding", &pod.name_any(), &params, &binding)
                    .await?;
            }
            KubeletAction::Run(pod) => self.set(&pod.name_any(), "Running", true).await?,
            KubeletAction::Remove(pod) => {
                let at_once = DeleteParams::default().grace_period(0);
                self.pods.delete(&pod.name_any(), &at_once).await?;
            }
        }
        Ok(())
    }

    /// Sets phase and conditions of a pod.
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

/// Returns the node that a DaemonSet's pod is pinned to.
fn pinned_node(pod: &Pod) -> Option<&str> {
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

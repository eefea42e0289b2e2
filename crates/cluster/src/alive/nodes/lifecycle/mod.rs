//! The node controller and those that go with it: they say of nodes what their silence means, and move their pods.
//!
//! ```text
//!   Lease renewals ──► Heard (memory) ─┐
//!   Node ──► reconcile ◄── overdue ────┴─► conditions Unknown ─► taints ─► its pods are not ready
//!                                                                  └─► eviction, when no toleration is left
//!   no Node ──► orphans: pods whose node is gone
//! ```

mod eviction;
mod health;
mod orphans;
mod taints;

use std::time::Duration;

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, NodeCondition, Pod},
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use windlass_cache::{IndexBy, Lister, Query};
use windlass_runtime::{Action, Context, Controller, Error, Manager, ObjectKey, Reconciler, Request, Watch};

use self::health::Heard;
use super::heartbeat;
use crate::alive::settings::Settings;

/// Who the server sees.
const COMPONENT: &str = "kube-controller-manager";

/// Who the events come from.
const SOURCE: &str = "node-controller";

pub(super) fn add(manager: Manager, settings: &Settings) -> Manager {
    let heard = Heard::default();
    let nodes = NodeController {
        settings: settings.clone(),
        heard: heard.clone(),
    };
    // A renewal concerns nobody but whoever is thought to be silent: a thousand idle nodes cost no reconcile.
    let leases = Watch::<Lease>::new().mapped(move |lease| {
        let of_node = lease.metadata.namespace.as_deref() == Some(heartbeat::NAMESPACE);
        let name = lease.metadata.name.as_deref().filter(|_| of_node);
        name.filter(|name| heard.renewed(name))
            .map(ObjectKey::cluster)
            .into_iter()
            .collect()
    });
    let controller = Controller::<Node>::new("node-lifecycle-controller")
        .component(COMPONENT)
        .watch(leases)
        .reads::<Pod>()
        .reconcile(nodes);
    let manager = manager.controller(controller);
    orphans::add(eviction::add(manager, settings), settings)
}

struct NodeController {
    settings: Settings,
    heard: Heard,
}

impl Reconciler for NodeController {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let name = request.key.name();
        let Some(node) = ctx.lister::<Node>()?.get(&request.key) else {
            self.heard.forget(name);
            return Ok(Action::done());
        };
        if !self.heard.knows(name) {
            let text = format!("Node {name} event: Registered Node {name} in Controller");
            ctx.recorder()
                .source(SOURCE)
                .normal(&node, "RegisteredNode", text);
        }
        let ready = ready(&node);
        let said = ready
            .and_then(|ready| ready.last_heartbeat_time.as_ref())
            .map(|time| time.0.to_string());
        let silence = self.heard.says(name, said.as_deref());
        let patience = self.settings.patience();
        if silence >= patience && ready.is_none_or(|ready| ready.status != "Unknown") {
            self.declare_silent(&node, &ctx).await?;
            return Ok(Action::requeue_after(Duration::ZERO));
        }
        if silence >= patience {
            self.heard.is_silent(name);
        }
        if let Some(taints) = taints::wanted(&node, self.settings.clock.now()) {
            let version = &node.metadata.resource_version;
            let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}});
            ctx.writer().merge(&*node, &patch).await?;
        }
        if ready.is_some_and(|ready| ready.status != "True") {
            self.mark_pods(name, &ctx).await?;
        }
        if silence >= patience {
            return Ok(Action::done());
        }
        Ok(Action::requeue_after(patience.saturating_sub(silence)))
    }
}

impl NodeController {
    /// Nobody knows how the node is any more.
    async fn declare_silent(&self, node: &Node, ctx: &Context) -> Result<(), Error> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let now = self.settings.clock.now().to_string();
        let known = node
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        let known: Vec<_> = known.collect();
        let conditions: Vec<_> = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"]
            .iter()
            .map(|kind| {
                let before = known.iter().find(|condition| condition.type_ == *kind);
                let (reason, message) = match before {
                    Some(_) => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
                    None => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
                };
                let heartbeat = before.and_then(|before| before.last_heartbeat_time.clone());
                json!({
                    "type": kind,
                    "status": "Unknown",
                    "reason": reason,
                    "message": message,
                    "lastHeartbeatTime": heartbeat.or_else(|| node.metadata.creation_timestamp.clone()),
                    "lastTransitionTime": now,
                })
            })
            .collect();
        let patch = json!({"metadata": {"uid": node.metadata.uid}, "status": {"conditions": conditions}});
        let nodes = Api::<Node>::all(ctx.client().clone());
        super::unless_gone(
            nodes
                .patch_status(name, &params(), &Patch::Strategic(patch))
                .await,
        )?;
        self.heard.is_silent(name);
        if ready(node).is_some_and(|ready| ready.status == "True") {
            let text = format!("Node {name} status is now: NodeNotReady");
            ctx.recorder().source(SOURCE).normal(node, "NodeNotReady", text);
        }
        Ok(())
    }

    /// Says of the node's pods that nobody should rely on them.
    async fn mark_pods(&self, node: &str, ctx: &Context) -> Result<(), Error> {
        for pod in pods_on(ctx.lister::<Pod>()?, node) {
            let conditions = pod
                .status
                .iter()
                .flat_map(|status| status.conditions.iter().flatten());
            if !conditions
                .into_iter()
                .any(|c| c.type_ == "Ready" && c.status == "True")
            {
                continue;
            }
            let now = self.settings.clock.now().to_string();
            let ready = json!([{"type": "Ready", "status": "False", "lastTransitionTime": now}]);
            set_status(&pod, &json!({"conditions": ready}), ctx).await?;
            let events = ctx.recorder().source(SOURCE);
            events.warning(&pod, "NodeNotReady", "Node is not ready");
        }
        Ok(())
    }
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(COMPONENT.to_owned()),
        ..PatchParams::default()
    }
}

/// Patches the status of a pod, if it is still there.
async fn set_status(pod: &Pod, status: &Value, ctx: &Context) -> Result<(), Error> {
    let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
    let pods = Api::<Pod>::namespaced(ctx.client().clone(), namespace.unwrap_or_default());
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
    let patched = pods
        .patch_status(name.unwrap_or_default(), &params(), &Patch::Strategic(patch))
        .await;
    super::unless_gone(patched)
}

fn ready(node: &Node) -> Option<&NodeCondition> {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    conditions?.iter().find(|condition| condition.type_ == "Ready")
}

/// The pods that are on a node, found by index.
fn pods_on(pods: &Lister<Pod>, node: &str) -> Vec<std::sync::Arc<Pod>> {
    let path = "spec.nodeName".parse().expect("a path");
    let index = pods.cache().index(IndexBy::field(path));
    pods.list(&Query::all().indexed(&index, node))
}

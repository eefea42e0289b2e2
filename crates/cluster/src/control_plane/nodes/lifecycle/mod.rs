//! The node lifecycle controller, taint eviction and the pod garbage collector.
//!
//! ```text
//!   Lease renewals ──► NodeHeartbeats (in memory) ─┐
//!   Node ──► reconcile ◄── overdue ────────────────┴─► conditions Unknown ─► taints ─► pods not ready
//!                                                                              └─► eviction: pods that do not tolerate them
//!   no Node ──► orphans: deletes the pods of deleted nodes
//! ```

mod eviction;
mod heartbeats;
mod pod_garbage_collector;
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
use windlass_api::conditions;
use windlass_cache::{Indexer, Lister, Query};
use windlass_runtime::{
    Action, Clock, Context, Controller, Error, Manager, ObjectKey, Reconciler, Request, Watch,
};

use self::heartbeats::NodeHeartbeats;
use super::heartbeat;
use crate::control_plane::settings::Settings;

/// Field manager of the writes.
const COMPONENT: &str = "kube-controller-manager";

/// Source of the events.
const SOURCE: &str = "node-controller";

pub(super) fn add(manager: Manager, settings: &Settings) -> Manager {
    let heartbeats = NodeHeartbeats::default();
    let nodes = NodeController {
        settings: settings.clone(),
        heartbeats: heartbeats.clone(),
    };
    // A renewal matters only for a node that is marked as unreachable: a thousand idle nodes cause no reconcile.
    let leases = Watch::<Lease>::new().mapped(move |lease| {
        let of_node = lease.metadata.namespace.as_deref() == Some(heartbeat::LEASE_NAMESPACE);
        let name = lease.metadata.name.as_deref().filter(|_| of_node);
        name.filter(|name| heartbeats.record_renewal(name))
            .map(ObjectKey::cluster_scoped)
            .into_iter()
            .collect()
    });
    let controller = Controller::<Node>::new("node-lifecycle-controller")
        .field_manager(COMPONENT)
        .watch(leases)
        .reads::<Pod>()
        .reconcile(nodes);
    let manager = manager.controller(controller);
    pod_garbage_collector::add(eviction::add(manager, settings), settings)
}

struct NodeController {
    settings: Settings,
    heartbeats: NodeHeartbeats,
}

impl Reconciler for NodeController {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let name = request.key.name();
        let Some(node) = ctx.lister::<Node>()?.get(&request.key) else {
            self.heartbeats.remove(name);
            return Ok(Action::done());
        };
        if !self.heartbeats.contains(name) {
            let text = format!("Node {name} event: Registered Node {name} in Controller");
            ctx.recorder()
                .source(SOURCE)
                .normal(&node, "RegisteredNode", text);
        }
        let ready = ready_condition(&node);
        let reported = ready
            .and_then(|ready| ready.last_heartbeat_time.as_ref())
            .map(|time| time.0.to_string());
        let silence = self.heartbeats.record_status(name, reported.as_deref());
        let grace_period = self.settings.node_monitor_grace_period();
        if silence >= grace_period && ready.is_none_or(|ready| ready.status != "Unknown") {
            self.mark_unknown(&node, &ctx).await?;
            return Ok(Action::requeue_after(Duration::ZERO));
        }
        if silence >= grace_period {
            self.heartbeats.mark_unreachable(name);
        }
        if let Some(taints) = taints::desired(&node, Clock::system().now()) {
            let version = &node.metadata.resource_version;
            let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}});
            ctx.writer().merge_patch(&*node, &patch).await?;
        }
        if ready.is_some_and(|ready| ready.status != "True") {
            self.mark_pods_not_ready(name, &ctx).await?;
        }
        if silence >= grace_period {
            return Ok(Action::done());
        }
        Ok(Action::requeue_after(grace_period.saturating_sub(silence)))
    }
}

impl NodeController {
    /// Sets the node's conditions to Unknown.
    async fn mark_unknown(&self, node: &Node, ctx: &Context) -> Result<(), Error> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let now = Clock::system().now().to_string();
        let conditions: Vec<_> = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"]
            .iter()
            .map(|kind| {
                let before = conditions::find(node, kind);
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
        super::ignore_gone(
            nodes
                .patch_status(name, &params(), &Patch::Strategic(patch))
                .await,
        )?;
        self.heartbeats.mark_unreachable(name);
        if ready_condition(node).is_some_and(|ready| ready.status == "True") {
            let text = format!("Node {name} status is now: NodeNotReady");
            ctx.recorder().source(SOURCE).normal(node, "NodeNotReady", text);
        }
        Ok(())
    }

    /// Sets the Ready condition of the node's pods to false.
    async fn mark_pods_not_ready(&self, node: &str, ctx: &Context) -> Result<(), Error> {
        for pod in pods_on(ctx.lister::<Pod>()?, node) {
            if !conditions::is_true(&*pod, "Ready") {
                continue;
            }
            let now = Clock::system().now().to_string();
            let ready = json!([{"type": "Ready", "status": "False", "lastTransitionTime": now}]);
            patch_pod_status(&pod, &json!({"conditions": ready}), ctx).await?;
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

/// Patches the status of a pod, if it still exists.
async fn patch_pod_status(pod: &Pod, status: &Value, ctx: &Context) -> Result<(), Error> {
    let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
    let pods = Api::<Pod>::namespaced(ctx.client().clone(), namespace.unwrap_or_default());
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
    let patched = pods
        .patch_status(name.unwrap_or_default(), &params(), &Patch::Strategic(patch))
        .await;
    super::ignore_gone(patched)
}

fn ready_condition(node: &Node) -> Option<&NodeCondition> {
    conditions::find(node, "Ready")
}

/// Returns the pods on a node, from an index.
fn pods_on(pods: &Lister<Pod>, node: &str) -> Vec<std::sync::Arc<Pod>> {
    let path = "spec.nodeName".parse().expect("a path");
    let index = pods.cache().index(Indexer::field(path));
    pods.list(&Query::all().indexed(&index, node))
}

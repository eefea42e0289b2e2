//! Heartbeats: every kubelet renews the Lease of its node, and from time to time its status.
//!
//! One task serves all machines. Without machines, not even a timer runs.

use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Node},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use windlass_runtime::{Clock, Error, Manager, TaskContext};

use super::{machines::Machines, node::Readiness};
use crate::control_plane::settings::Settings;

/// The namespace of node leases.
pub(super) const LEASE_NAMESPACE: &str = "kube-node-lease";

/// `leaseDurationSeconds` as kubelets write it; the cluster's speed does not change it.
const LEASE_DURATION_SECONDS: i32 = 40;

/// Every 30th heartbeat, that is every five minutes, a kubelet also reports its unchanged node status.
const HEARTBEATS_PER_STATUS_REPORT: u32 = 30;

pub(super) fn add(manager: Manager, settings: &Settings, machines: &Machines) -> Manager {
    let (settings, machines) = (settings.clone(), machines.clone());
    manager.task("kubelet-heartbeats", move |ctx| {
        send_heartbeats(ctx, settings.clone(), machines.clone())
    })
}

async fn send_heartbeats(ctx: TaskContext, settings: Settings, machines: Machines) -> Result<(), Error> {
    let hearts = async {
        for count in 1_u32.. {
            machines.wait_until(|state| !state.machines.is_empty()).await;
            tokio::time::sleep(settings.heartbeat_interval()).await;
            for name in machines.sending_heartbeats() {
                // As in kubelets, the next heartbeat is the retry.
                if let Err(error) = renew(ctx.client(), &name, Clock::system().precise_now()).await {
                    tracing::debug!(%name, %error, "cannot renew the lease of a node");
                }
                if count.is_multiple_of(HEARTBEATS_PER_STATUS_REPORT) {
                    drop(report_status(ctx.client(), &name, &machines).await);
                }
            }
        }
    };
    tokio::select! {
        () = hearts => {}
        () = ctx.stopping() => {}
    }
    Ok(())
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some("kubelet".to_owned()),
        ..PatchParams::default()
    }
}

/// Renews the lease of a node, or creates it.
pub(super) async fn renew(client: &Client, name: &str, now: Timestamp) -> Result<(), kube::Error> {
    let leases = Api::<Lease>::namespaced(client.clone(), LEASE_NAMESPACE);
    let renewal = json!({"spec": {"renewTime": micros(now)}});
    match leases.patch(name, &params(), &Patch::Merge(renewal)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => return other.map(drop),
    }
    // The node owns it, so it is garbage collected with the node.
    let node = Api::<Node>::all(client.clone()).get(name).await?;
    let lease = json!({
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [{
            "apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid,
        }]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_DURATION_SECONDS, "renewTime": micros(now)},
    });
    let lease: Lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
    let params = PostParams {
        field_manager: Some("kubelet".to_owned()),
        ..PostParams::default()
    };
    leases.create(&params, &lease).await.map(drop)
}

/// Reports the node's status again.
async fn report_status(client: &Client, name: &str, machines: &Machines) -> Result<(), kube::Error> {
    let nodes = Api::<Node>::all(client.clone());
    let known = nodes.get(name).await?;
    let known = serde_json::to_value(&known.status).map_err(kube::Error::SerdeError)?;
    let status = {
        let state = machines.lock();
        let Some(machine) = state.machines.get(name) else {
            return Ok(());
        };
        super::node::build_status(machine, Readiness::Ready, Clock::system().now(), Some(&known))
    };
    let patch: Value = json!({"status": status});
    nodes
        .patch_status(name, &params(), &Patch::Strategic(patch))
        .await
        .map(drop)
}

/// `metav1.MicroTime`.
fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

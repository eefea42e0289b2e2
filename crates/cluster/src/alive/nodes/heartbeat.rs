//! Heartbeats: every kubelet renews a lease, so that it can be told from one that is silent.
//!
//! One task does it for all machines and sleeps in between; without machines there is not even a timer.

use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Node},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_runtime::{Error, Manager, TaskContext};

use super::{machines::Machines, node::Readiness};
use crate::alive::settings::Settings;

/// Where the leases of nodes are.
pub(super) const NAMESPACE: &str = "kube-node-lease";

/// For how long a heartbeat counts, in seconds: what kubelets write, whatever the speed.
const DURATION: i32 = 40;

/// Every so many heartbeats a kubelet also says how its node is, even if nothing changed: every five minutes.
const FULL_EVERY: u32 = 30;

/// The time to the microsecond, as leases have it. It runs with tokio's clock.
#[derive(Clone, Copy)]
pub(super) struct Pulse {
    epoch: Timestamp,
    started: Instant,
}

impl Pulse {
    pub(super) fn start() -> Self {
        Self {
            epoch: Timestamp::now(),
            started: Instant::now(),
        }
    }

    pub(super) fn now(self) -> Timestamp {
        self.epoch
            .checked_add(self.started.elapsed())
            .unwrap_or(Timestamp::MAX)
    }
}

pub(super) fn add(manager: Manager, settings: &Settings, machines: &Machines, pulse: Pulse) -> Manager {
    let (settings, machines) = (settings.clone(), machines.clone());
    manager.task("kubelet-heartbeats", move |ctx| {
        beat(ctx, settings.clone(), machines.clone(), pulse)
    })
}

async fn beat(ctx: TaskContext, settings: Settings, machines: Machines, pulse: Pulse) -> Result<(), Error> {
    let hearts = async {
        for count in 1_u32.. {
            machines.until(|state| !state.machines.is_empty()).await;
            tokio::time::sleep(settings.heartbeat()).await;
            for name in machines.beating() {
                // A server that says no is asked again at the next beat, as kubelets do.
                if let Err(error) = renew(ctx.client(), &name, pulse.now()).await {
                    tracing::debug!(%name, %error, "a heartbeat was not taken");
                }
                if count.is_multiple_of(FULL_EVERY) {
                    drop(report(ctx.client(), &name, &settings, &machines).await);
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

/// Renews the lease of a node, or makes it.
pub(super) async fn renew(client: &Client, name: &str, now: Timestamp) -> Result<(), kube::Error> {
    let leases = Api::<Lease>::namespaced(client.clone(), NAMESPACE);
    let renewal = json!({"spec": {"renewTime": micros(now)}});
    match leases.patch(name, &params(), &Patch::Merge(renewal)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => return other.map(drop),
    }
    // It belongs to its node, and goes with it.
    let node = Api::<Node>::all(client.clone()).get(name).await?;
    let lease = json!({
        "metadata": {"name": name, "namespace": NAMESPACE, "ownerReferences": [{
            "apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid,
        }]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": DURATION, "renewTime": micros(now)},
    });
    let lease: Lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
    let params = PostParams {
        field_manager: Some("kubelet".to_owned()),
        ..PostParams::default()
    };
    leases.create(&params, &lease).await.map(drop)
}

/// Says again how the node is.
async fn report(
    client: &Client,
    name: &str,
    settings: &Settings,
    machines: &Machines,
) -> Result<(), kube::Error> {
    let nodes = Api::<Node>::all(client.clone());
    let known = nodes.get(name).await?;
    let known = serde_json::to_value(&known.status).map_err(kube::Error::SerdeError)?;
    let status = {
        let state = machines.lock();
        let Some(machine) = state.machines.get(name) else {
            return Ok(());
        };
        super::node::status(machine, Readiness::Ready, settings.clock.now(), Some(&known))
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

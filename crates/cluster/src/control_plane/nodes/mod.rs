//! Nodes: simulated machines and their kubelets, the scheduler, and the node controllers.
//!
//! ```text
//!   Machines (in memory, the ground truth) ◄── tests: reboot, hang, disconnect
//!      │   ▲
//!      │   └─ reboot_request ◄── annotation of the Node
//!      ├─ register, heartbeat ──► Node, Lease ──► lifecycle ──► conditions, taints, evictions
//!      │                            └──► schedule ──► binding
//!      └─ kubelet ◄── Pod ◄───────────────────────────┘
//! ```
//!
//! They interact through the API only, like the real ones; only the kubelets access the machines.

mod faults;
mod heartbeat;
mod identity;
mod kubelet;
mod lifecycle;
mod machines;
mod node;
mod node_spec;
mod reboot_request;
mod register;
pub(in crate::control_plane) mod schedule;
mod wake_queue;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Preconditions};
use windlass_api::status::StatusClass;
use windlass_apiserver::Logs;
use windlass_runtime::{Context, Error, Manager};

pub use self::node_spec::NodeSpec;
pub(crate) use self::{faults::Fault, machines::Machines};
use crate::control_plane::settings::Settings;

/// Adds the node controllers, the scheduler and the kubelets.
pub(crate) fn add(manager: Manager, settings: &Settings, machines: &Machines, logs: &Logs) -> Manager {
    let manager = lifecycle::add(manager, settings);
    let manager = schedule::add(manager, machines);
    let manager = register::add(manager, settings, machines);
    let manager = heartbeat::add(manager, settings, machines);
    kubelet::add(manager, settings, machines, logs)
}

/// Deletes the pod without a grace period, unless another pod has its name by now.
async fn delete_immediately(pod: &Pod, ctx: &Context) -> Result<(), Error> {
    let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
    let pods = Api::<Pod>::namespaced(ctx.client().clone(), namespace.unwrap_or_default());
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: pod.metadata.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    ignore_gone(pods.delete(name.unwrap_or_default(), &params).await)
}

/// Ignores the error if the object does not exist or was replaced by one with another UID.
fn ignore_gone<T>(answer: Result<T, kube::Error>) -> Result<(), Error> {
    match answer {
        Ok(_) => Ok(()),
        Err(error) => match StatusClass::of_error(&error) {
            Some(StatusClass::NotFound | StatusClass::UidMismatch) => Ok(()),
            _ => Err(error.into()),
        },
    }
}

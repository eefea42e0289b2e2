//! Nodes: machines, the kubelets on them, the scheduler that gives them pods, and the controllers that watch over them.
//!
//! ```text
//!   Machines (memory: what is true) ◄── tests: reboot, hang, cut off
//!      │   ▲
//!      │   └─ asked ◄── an annotation of the Node: others' reboots
//!      ├─ register, heartbeat ──► Node, Lease ──► lifecycle ──► conditions, taints, evictions
//!      │                            └──► schedule ──► binding
//!      └─ kubelet ◄── Pod ◄───────────────────────────┘
//! ```
//!
//! They meet in the API alone, as the real ones do; only the kubelets know the machines.

mod amount;
mod asked;
mod faults;
mod heartbeat;
mod identity;
mod kubelet;
mod lifecycle;
mod machines;
mod node;
mod register;
pub(in crate::alive) mod schedule;
mod spec;
mod wakes;

use windlass_apiserver::Logs;
use windlass_runtime::{Error, Manager};

pub use self::spec::NodeSpec;
pub(crate) use self::{faults::Fault, machines::Machines};
use crate::alive::settings::Settings;

/// Adds the scheduler, the node controllers and the kubelets of the machines.
pub(crate) fn add(manager: Manager, settings: &Settings, machines: &Machines, logs: &Logs) -> Manager {
    let manager = lifecycle::add(manager, settings);
    let manager = schedule::add(manager, settings, machines);
    let pulse = heartbeat::Pulse::start();
    let manager = register::add(manager, settings, machines, pulse);
    let manager = heartbeat::add(manager, settings, machines, pulse);
    kubelet::add(manager, settings, machines, logs)
}

/// What is gone, or is another one by now, needs no word any more.
fn unless_gone<T>(answer: Result<T, kube::Error>) -> Result<(), Error> {
    match answer {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || is_another(&status) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The object under this name is not the one that was meant.
fn is_another(status: &kube::core::Status) -> bool {
    status.is_conflict() && status.message.to_lowercase().contains("uid")
}

//! Annotations of simulated nodes, for programs outside of the cluster's process.
//!
//! Inside the process, use [`Nodes`](crate::Nodes). Another process, such as a simulated node agent, recognizes a
//! simulated node by [`MACHINE_ANNOTATION`] and reboots it with [`REBOOT_ANNOTATION`]:
//!
//! ```text
//! kubectl annotate node node-1 simulation.windlass.dev/reboot=$(
//!   kubectl get node node-1 -o jsonpath='{.status.nodeInfo.bootID}')
//! ```

/// The annotation that marks a simulated node. Its kubelet sets it on registration. The value is the machine's ID.
pub const MACHINE_ANNOTATION: &str = "simulation.windlass.dev/machine";

/// The annotation that requests a reboot of a simulated node. The value is the current boot ID; the node's kubelet
/// removes the annotation before it reboots.
///
/// A repeated or late request names another boot, so it reboots nothing and causes a `StaleRebootRequest` event. A machine
/// that hangs or is disconnected does not react before it is restored.
pub const REBOOT_ANNOTATION: &str = "simulation.windlass.dev/reboot";

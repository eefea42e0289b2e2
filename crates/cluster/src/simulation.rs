//! What simulated nodes show and take through the API, for programs that are not in the cluster's process.
//!
//! Inside of it [`Nodes`](crate::Nodes) does more. A program elsewhere that stands in for the agents on machines knows a
//! simulated node by [`MACHINE`], and ends its machine's boot with [`REBOOT`]:
//!
//! ```text
//! kubectl annotate node node-1 simulation.windlass.dev/reboot=$(
//!   kubectl get node node-1 -o jsonpath='{.status.nodeInfo.bootID}')
//! ```

/// The annotation by which a simulated node is known; its kubelet registers with it. The value is the machine's ID.
pub const MACHINE: &str = "simulation.windlass.dev/machine";

/// The annotation that asks a simulated node to reboot. Its value is the boot ID of the boot that is to end; the node's
/// kubelet takes the annotation off before it reboots.
///
/// So a request that comes twice, or after the boot has ended anyway, reboots nothing; a `RebootNotMeant` event says so.
/// A machine that hangs or is cut off does not react before it is restored.
pub const REBOOT: &str = "simulation.windlass.dev/reboot";

//! The order in which nodes are rebooted.

use crate::{api::OrderSpec, state_machine::NodeView};

/// Labels of control-plane nodes; the second is the deprecated one.
const CONTROL_PLANE_LABELS: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Priority class of a node. Nodes of a higher rank wait until no node of a lower rank has to be rebooted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Any other node.
    Worker,
    /// A control-plane node.
    ControlPlane,
    /// The node that this process runs on: draining it moves the controller.
    Own,
}

impl Rank {
    /// Returns the rank of a node for a process that runs on the node `own`.
    pub fn of(node: &NodeView, spec: &OrderSpec, own: Option<&str>) -> Self {
        let is_control_plane = || {
            CONTROL_PLANE_LABELS
                .iter()
                .any(|label| node.labels.contains_key(*label))
        };
        if own == Some(node.name.as_str()) {
            Self::Own
        } else if spec.control_plane_last && is_control_plane() {
            Self::ControlPlane
        } else {
            Self::Worker
        }
    }
}

/// Sorts nodes into the order in which they get slots: by rank, zone and name.
pub fn sort(nodes: &mut [&NodeView], spec: &OrderSpec, own: Option<&str>) {
    let zone = |node: &NodeView| {
        let zone = node.labels.get(ZONE_LABEL).filter(|_| spec.by_zone);
        zone.cloned().unwrap_or_default()
    };
    nodes.sort_by_cached_key(|node| (Rank::of(node, spec, own), zone(node), node.name.clone()));
}

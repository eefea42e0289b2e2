//! Which node comes first.

use crate::{api::OrderSpec, machine::NodeView};

/// Labels of nodes of the control plane; the second is what they were called before.
const CONTROL_PLANE: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];

const ZONE: &str = "topology.kubernetes.io/zone";

/// A node of a higher rank waits until none of a lower one is to be rebooted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Any node.
    Worker,
    /// What others depend on.
    ControlPlane,
    /// The node that this process runs on: it has to move when it is drained.
    Own,
}

impl Rank {
    /// The rank of a node, for a process on the node `own`.
    pub fn of(node: &NodeView, spec: &OrderSpec, own: Option<&str>) -> Self {
        let is_control_plane = || CONTROL_PLANE.iter().any(|label| node.labels.contains_key(*label));
        if own == Some(node.name.as_str()) {
            Self::Own
        } else if spec.control_plane_last && is_control_plane() {
            Self::ControlPlane
        } else {
            Self::Worker
        }
    }
}

/// Sorts nodes into the order in which they get slots: by rank, by zone, by name.
pub fn sort(nodes: &mut [&NodeView], spec: &OrderSpec, own: Option<&str>) {
    let zone = |node: &NodeView| {
        let zone = node.labels.get(ZONE).filter(|_| spec.by_zone);
        zone.cloned().unwrap_or_default()
    };
    nodes.sort_by_cached_key(|node| (Rank::of(node, spec, own), zone(node), node.name.clone()));
}

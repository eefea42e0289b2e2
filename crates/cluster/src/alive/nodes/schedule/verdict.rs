//! Why a pod fits nowhere, in the words of the real scheduler.

use std::{collections::HashMap, fmt};

/// What speaks against one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reason {
    Unschedulable,
    Taint,
    Affinity,
    /// Another node was asked for by name.
    NotNamed,
    Ports,
    TooManyPods,
    Insufficient {
        resource: String,
        /// Not even an empty node has so much.
        never: bool,
    },
}

impl Reason {
    /// Whether the removal of other pods could help.
    fn passes(&self) -> bool {
        match self {
            Self::Ports | Self::TooManyPods => true,
            Self::Insufficient { never, .. } => !never,
            Self::Unschedulable | Self::Taint | Self::Affinity | Self::NotNamed => false,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Unschedulable => "node(s) were unschedulable".to_owned(),
            Self::Taint => "node(s) had untolerated taint(s)".to_owned(),
            Self::Affinity => "node(s) didn't match Pod's node affinity/selector".to_owned(),
            Self::NotNamed => "node(s) didn't satisfy plugin(s) [NodeAffinity]".to_owned(),
            Self::Ports => "node(s) didn't have free ports for the requested pod ports".to_owned(),
            Self::TooManyPods => "Too many pods".to_owned(),
            Self::Insufficient { resource, .. } => format!("Insufficient {resource}"),
        }
    }
}

/// The reasons of all nodes.
#[derive(Debug)]
pub(super) struct Verdict {
    nodes: usize,
    /// How many nodes were looked at.
    asked: usize,
    /// How many could take the pod if others made room.
    crowded: usize,
    reasons: HashMap<String, usize>,
    never_preempts: bool,
}

impl Verdict {
    pub(super) fn new(nodes: usize, never_preempts: bool) -> Self {
        Self {
            nodes,
            asked: 0,
            crowded: 0,
            reasons: HashMap::new(),
            never_preempts,
        }
    }

    /// What speaks against one more node.
    pub(super) fn add(&mut self, reasons: &[Reason]) {
        self.asked += 1;
        self.crowded += usize::from(reasons.iter().all(Reason::passes));
        for reason in reasons {
            *self.reasons.entry(reason.text()).or_default() += 1;
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.nodes;
        if nodes == 0 {
            return f.write_str("no nodes available to schedule pods");
        }
        let mut reasons: Vec<_> = self
            .reasons
            .iter()
            .map(|(text, count)| format!("{count} {text}"))
            .collect();
        if self.asked < nodes {
            reasons.push(format!("{} {}", nodes - self.asked, Reason::NotNamed.text()));
        }
        reasons.sort();
        write!(f, "0/{nodes} nodes are available: {}.", reasons.join(", "))?;
        if self.never_preempts {
            return f.write_str(
                " no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never.",
            );
        }
        let mut hopes = Vec::new();
        if self.crowded > 0 {
            hopes.push(format!(
                "{} No preemption victims found for incoming pod",
                self.crowded
            ));
        }
        if nodes > self.crowded {
            hopes.push(format!(
                "{} Preemption is not helpful for scheduling",
                nodes - self.crowded
            ));
        }
        hopes.sort();
        write!(
            f,
            " no new claims to deallocate, preemption: 0/{nodes} nodes are available: {}.",
            hopes.join(", ")
        )
    }
}

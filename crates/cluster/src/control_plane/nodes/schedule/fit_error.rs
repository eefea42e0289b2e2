//! Formats why a pod is unschedulable, with kube-scheduler's messages.

use std::{collections::HashMap, fmt};

/// Why a pod does not fit one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reason {
    Unschedulable,
    Taint,
    Affinity,
    /// The pod requires another node by name.
    OtherNodeRequired,
    Ports,
    TooManyPods,
    Insufficient {
        resource: String,
        /// The request exceeds even the empty node.
        exceeds_node: bool,
    },
}

impl Reason {
    /// Whether preempting other pods could help.
    fn can_preempt(&self) -> bool {
        match self {
            Self::Ports | Self::TooManyPods => true,
            Self::Insufficient { exceeds_node, .. } => !exceeds_node,
            Self::Unschedulable | Self::Taint | Self::Affinity | Self::OtherNodeRequired => false,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Unschedulable => "node(s) were unschedulable".to_owned(),
            Self::Taint => "node(s) had untolerated taint(s)".to_owned(),
            Self::Affinity => "node(s) didn't match Pod's node affinity/selector".to_owned(),
            Self::OtherNodeRequired => "node(s) didn't satisfy plugin(s) [NodeAffinity]".to_owned(),
            Self::Ports => "node(s) didn't have free ports for the requested pod ports".to_owned(),
            Self::TooManyPods => "Too many pods".to_owned(),
            Self::Insufficient { resource, .. } => format!("Insufficient {resource}"),
        }
    }
}

/// Why a pod fits none of the nodes; kube-scheduler calls it `FitError`.
#[derive(Debug)]
pub(super) struct FitError {
    nodes: usize,
    /// How many nodes were evaluated.
    evaluated: usize,
    /// How many nodes the pod would fit after preemption.
    preemptible: usize,
    reasons: HashMap<String, usize>,
    never_preempts: bool,
    /// Why no node was evaluated at all.
    rejection: Option<String>,
}

impl FitError {
    pub(super) fn new(nodes: usize, never_preempts: bool) -> Self {
        Self {
            nodes,
            evaluated: 0,
            preemptible: 0,
            reasons: HashMap::new(),
            never_preempts,
            rejection: None,
        }
    }

    /// The error of a pod that no node was evaluated for.
    pub(super) fn rejected(nodes: usize, reason: String) -> Self {
        Self {
            rejection: Some(reason),
            ..Self::new(nodes, false)
        }
    }

    /// Adds the reasons of one node.
    pub(super) fn add(&mut self, reasons: &[Reason]) {
        self.evaluated += 1;
        self.preemptible += usize::from(reasons.iter().all(Reason::can_preempt));
        for reason in reasons {
            *self.reasons.entry(reason.text()).or_default() += 1;
        }
    }
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.nodes;
        if nodes == 0 {
            return f.write_str("no nodes available to schedule pods");
        }
        if let Some(reason) = &self.rejection {
            // The last words are those of kube-scheduler's preemption, which finds no node.
            return write!(f, "0/{nodes} nodes are available: {reason}. not found");
        }
        let mut reasons: Vec<_> = self
            .reasons
            .iter()
            .map(|(text, count)| format!("{count} {text}"))
            .collect();
        if self.evaluated < nodes {
            reasons.push(format!(
                "{} {}",
                nodes - self.evaluated,
                Reason::OtherNodeRequired.text()
            ));
        }
        reasons.sort();
        write!(f, "0/{nodes} nodes are available: {}.", reasons.join(", "))?;
        if self.never_preempts {
            return f.write_str(
                " no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never.",
            );
        }
        let mut hopes = Vec::new();
        if self.preemptible > 0 {
            hopes.push(format!(
                "{} No preemption victims found for incoming pod",
                self.preemptible
            ));
        }
        if nodes > self.preemptible {
            hopes.push(format!(
                "{} Preemption is not helpful for scheduling",
                nodes - self.preemptible
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

//! The controller's part: from one phase to the next.

use jiff::Timestamp;

use super::NodeView;
use crate::{
    api::RebootPolicySpec,
    state::{Order, State},
};

/// What the machine is told besides the node.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The time.
    pub now: Timestamp,
    /// The policy's name.
    pub policy: &'a str,
    /// What it says.
    pub spec: &'a RebootPolicySpec,
    /// The epoch of the node's slot in its ledger, if it has one.
    pub slot: Option<u64>,
    /// Why nothing new may begin, if it may not.
    pub halt: Option<Halt>,
}

/// Why nothing new may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// Somebody paused it.
    Paused,
    /// It only plans.
    DryRun,
    /// No window is open.
    WindowClosed,
    /// Too many nodes have failed.
    BudgetSpent,
}

impl Halt {
    /// For people.
    pub fn message(self) -> &'static str {
        match self {
            Self::Paused => "the policy is paused",
            Self::DryRun => "the policy only plans (dryRun)",
            Self::WindowClosed => "the maintenance window has closed",
            Self::BudgetSpent => "too many nodes have failed",
        }
    }
}

/// What the controller does next about a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing until something changes.
    Rest,
    /// Nothing until then, or until something changes.
    Until(Timestamp),
    /// Write this.
    Write(Change),
    /// Write this if the ledger, read anew, still has its slot; else look again.
    Confirm(Change),
    /// Evict what is left on the node; [`drained`] if nothing is.
    Drain {
        /// Delete what cannot be evicted.
        force: bool,
    },
    /// See whether the node is good again; [`verified`] if it is.
    Verify,
}

/// One write to a node, conditional on the version that was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The state afterwards; `None` takes it off.
    pub state: Option<State>,
    /// Whether it takes new pods afterwards, with the mark that says who decided; `None` leaves it.
    pub cordon: Option<Cordon>,
    /// Arms it with this.
    pub arm: Option<Order>,
    /// Takes `P/reboot-now` off.
    pub disarm: bool,
    /// Takes `P/reboot-in-progress` off.
    pub forget_progress: bool,
    /// Takes the request off.
    pub done: bool,
    /// What people are told.
    pub said: Said,
}

/// What becomes of a node's schedulability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cordon {
    /// Unschedulable, and marked as ours.
    Set,
    /// Schedulable, and no mark.
    Lift,
    /// As it is, and no mark: it is somebody else's.
    Leave,
}

/// An event about the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// One word.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// Whether something is wrong.
    pub warning: bool,
}

/// What the controller does next about a node.
pub fn step(node: &NodeView, facts: &Facts<'_>) -> Step {
    let _ = (node, facts);
    Step::Rest
}

/// Nothing is left on the node.
pub fn drained(node: &NodeView, facts: &Facts<'_>, message: String) -> Option<Change> {
    let _ = (node, facts, message);
    None
}

/// The node is good again.
pub fn verified(node: &NodeView, facts: &Facts<'_>) -> Option<Change> {
    let _ = (node, facts);
    None
}

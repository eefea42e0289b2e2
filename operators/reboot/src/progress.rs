//! What a policy is waiting for, in words: one reason, and a message with everything that is waited for.
//!
//! ```text
//!   nodes, grants, windows, time ──► ProgressReason: the condition `Progressing`
//!                                └─► message: `kubectl get rebootpolicies -o wide`
//! ```
//!
//! These are texts for users. Nothing decides by them. They contain deadlines and no durations, so that they change
//! only when something happens.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;

use crate::{
    alerts::AlertBlock,
    slots::{Rollout, WaitReason},
    state::{Phase, State},
    state_machine::{HaltReason, NodeView},
    window::Windows,
};

/// Maximum number of nodes that a message names for each reason.
const MAX_NODES: usize = 5;

/// Longest text about one node, in characters.
const MAX_TEXT_CHARS: usize = 500;

/// Why a policy makes progress, or why not: the reason of its condition `Progressing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressReason {
    /// No reboot is requested.
    Idle,
    /// Nodes have failed, fewer than the budget, and no other node requests a reboot.
    NodesFailed,
    /// Nodes are being rebooted.
    Rebooting,
    /// Nodes are being rebooted, and pods cannot leave one of them.
    DrainBlocked,
    /// All nodes that request a reboot rest after aborted attempts.
    Resting,
    /// Nodes request a reboot, and the limits or the order of the policy give them no slot.
    NoSlot,
    /// No maintenance window is open.
    WindowClosed,
    /// Alerts are firing, and the policy waits for them to end.
    AlertsFiring,
    /// Whether alerts are firing is not known.
    AlertsUnknown,
    /// The policy is paused.
    Paused,
    /// The policy is a dry run.
    DryRun,
    /// Too many nodes have failed.
    FailureBudgetExhausted,
    /// The policy's spec is invalid.
    InvalidSpec,
}

impl ProgressReason {
    /// All reasons.
    pub const ALL: [Self; 13] = [
        Self::Idle,
        Self::NodesFailed,
        Self::Rebooting,
        Self::DrainBlocked,
        Self::Resting,
        Self::NoSlot,
        Self::WindowClosed,
        Self::AlertsFiring,
        Self::AlertsUnknown,
        Self::Paused,
        Self::DryRun,
        Self::FailureBudgetExhausted,
        Self::InvalidSpec,
    ];

    /// Returns whether nodes are being rebooted and nothing stops the next ones.
    pub fn is_progressing(self) -> bool {
        matches!(self, Self::Rebooting | Self::DrainBlocked)
    }
}

impl fmt::Display for ProgressReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What is known about a policy.
pub(crate) struct ProgressInput<'a> {
    /// Its nodes and grants.
    pub(crate) roll: &'a Rollout<'a>,
    /// Why no reboot may start.
    pub(crate) halt: Option<HaltReason>,
    /// The error in its spec.
    pub(crate) invalid: Option<&'a str>,
    /// Its windows, if they are valid.
    pub(crate) windows: Option<&'a Windows>,
    /// Why alerts block the next reboot.
    pub(crate) alerts: Option<&'a AlertBlock>,
    /// Whether pods block a drain.
    pub(crate) is_drain_blocked: bool,
    /// By node, what its phase waits for, as far as it is known.
    pub(crate) waits: &'a BTreeMap<&'a str, String>,
}

impl ProgressInput<'_> {
    /// Returns the reason.
    pub(crate) fn reason(&self) -> ProgressReason {
        match self.halt {
            Some(HaltReason::InvalidSpec) => return ProgressReason::InvalidSpec,
            Some(HaltReason::Paused) => return ProgressReason::Paused,
            Some(HaltReason::DryRun) => return ProgressReason::DryRun,
            Some(HaltReason::FailureBudgetExhausted) => return ProgressReason::FailureBudgetExhausted,
            Some(HaltReason::WindowClosed) | None => {}
        }
        let nodes = || self.roll.nodes.values().copied();
        let asks = || nodes().filter(|node| node.request.is_some() && !self.has_slot(node));
        if nodes().any(|node| self.is_rebooting(node)) {
            if self.is_drain_blocked {
                ProgressReason::DrainBlocked
            } else {
                ProgressReason::Rebooting
            }
        } else if asks().next().is_none() && nodes().any(|node| node.phase() == Some(Phase::Failed)) {
            ProgressReason::NodesFailed
        } else if asks().next().is_none() {
            ProgressReason::Idle
        } else if self.halt.is_some() {
            ProgressReason::WindowClosed
        } else if let Some(alerts) = self.alerts {
            alerts.reason
        } else if asks().all(|node| self.roll.rests_until(node).is_some()) {
            ProgressReason::Resting
        } else {
            ProgressReason::NoSlot
        }
    }

    /// Returns everything that is waited for.
    pub(crate) fn message(&self) -> String {
        let mut parts = Vec::new();
        let reason = self.reason();
        match (self.invalid, self.halt) {
            (Some(error), _) => parts.push(error.to_owned()),
            // No reboot waits for it.
            (None, Some(HaltReason::WindowClosed))
                if [ProgressReason::Idle, ProgressReason::NodesFailed].contains(&reason) => {}
            (None, Some(HaltReason::WindowClosed)) => parts.push(self.closed_window()),
            (None, Some(halt)) => parts.push(halt.message().to_owned()),
            (None, None) => {}
        }
        parts.extend(self.alerts.map(|alerts| alerts.message.clone()));
        parts.extend(self.failed_nodes());
        parts.extend(self.rebooting_nodes());
        parts.extend(self.waiting_nodes());
        if parts.is_empty() {
            parts.push("no reboot is requested".to_owned());
            if self.halt == Some(HaltReason::WindowClosed) {
                parts.push(self.closed_window());
            }
        }
        parts.join("; ")
    }

    /// Describes the windows: for the column `Window`.
    pub(crate) fn window(&self) -> Option<String> {
        let (windows, now) = (self.windows?, self.roll.now);
        if !windows.open_at(now) {
            return Some(match windows.next_opening(now) {
                Some(opens) => format!("closed until {}", to_the_second(opens)),
                None => "never opens".to_owned(),
            });
        }
        Some(match windows.closes_after(now) {
            Some(closes) => format!("open until {}", to_the_second(closes)),
            None => "always open".to_owned(),
        })
    }

    fn closed_window(&self) -> String {
        let opens = self
            .windows
            .and_then(|windows| windows.next_opening(self.roll.now));
        match opens {
            Some(opens) => format!(
                "no maintenance window is open: the next one opens at {}",
                to_the_second(opens)
            ),
            None => {
                "no maintenance window is open, and none will open: check windows and exclusions".to_owned()
            }
        }
    }

    fn has_slot(&self, node: &NodeView) -> bool {
        node.is_active() || self.roll.slot(node).is_some()
    }

    fn is_rebooting(&self, node: &NodeView) -> bool {
        self.has_slot(node) && node.phase() != Some(Phase::Failed)
    }

    fn failed_nodes(&self) -> Option<String> {
        let failed = self.roll.nodes.values().filter_map(|node| {
            let state = node.state().filter(|state| state.phase == Phase::Failed)?;
            let why = state.reason.as_deref().unwrap_or("see its events");
            Some(format!("{} ({})", node.name, clip(why)))
        });
        let failed = join(failed.collect(), ", ");
        failed.map(|failed| format!("failed: {failed}"))
    }

    fn rebooting_nodes(&self) -> Option<String> {
        let rebooting = self.roll.nodes.values().filter(|node| self.is_rebooting(node));
        let texts = rebooting.map(|node| {
            let known = self.waits.get(node.name.as_str()).cloned();
            // A node passes through the first phases at once: one text for all saves writes of the status.
            let starts = |phase| matches!(phase, Phase::Granted | Phase::Cordoned) && known.is_none();
            let wait = match &node.state {
                Some(Ok(state)) if state.phase.is_active() && !starts(state.phase) => {
                    let wait = known.unwrap_or_else(|| phase_message(node, state));
                    format!("{} ({})", state.phase, clip(&wait))
                }
                Some(Err(_)) => "invalid state annotation: see its events".to_owned(),
                _ => "has a slot, and is about to start".to_owned(),
            };
            format!("{}: {wait}", node.name)
        });
        join(texts.collect(), ", ")
    }

    /// The nodes that have no slot, by reason. While the policy is halted, only those that rest: the halt is the
    /// reason of all others.
    fn waiting_nodes(&self) -> Vec<String> {
        let Ok(waits) = self.roll.waits() else {
            return Vec::new(); // the spec is invalid
        };
        let (mut resting, mut full, mut order) = (Vec::new(), Vec::new(), Vec::new());
        let mut topologies = BTreeMap::<String, Vec<String>>::new();
        for (node, why) in waits {
            match why {
                WaitReason::Backoff(until) => resting.push(describe_rest(node, until)),
                WaitReason::MaxUnavailable => full.push(node.name.clone()),
                WaitReason::Topology(value) => topologies.entry(value).or_default().push(node.name.clone()),
                WaitReason::Order => order.push(node.name.clone()),
            }
        }
        let mut parts: Vec<_> = join(resting, ", ").into_iter().collect();
        if self.halt.is_some() {
            return parts;
        }
        parts.extend(join(full, ", ").map(|nodes| format!("waiting for a slot: {nodes} ({})", self.limit())));
        let key = self
            .roll
            .spec
            .per_topology
            .as_ref()
            .map_or("", |one| one.key.as_str());
        for (value, nodes) in topologies.into_iter().take(MAX_NODES) {
            let nodes = join(nodes, ", ").unwrap_or_default();
            parts.push(format!(
                "waiting for a slot: {nodes} (no further node with {key}={value} may be unavailable)"
            ));
        }
        parts.extend(
            join(order, ", ").map(|nodes| format!("waiting for the nodes before them (spec.order): {nodes}")),
        );
        parts
    }

    /// Why no further node may be unavailable.
    fn limit(&self) -> String {
        let max = self.roll.max_unavailable().unwrap_or(0);
        if max == 0 {
            return "maxUnavailable is 0".to_owned();
        }
        let down = self.roll.unavailable();
        let named = down.iter().map(|name| {
            let node = self.roll.nodes.get(name);
            let why = match node
                .and_then(|node| node.phase())
                .filter(|phase| phase.is_active())
            {
                Some(phase) => phase.name(),
                None if node.is_some_and(|node| !node.is_ready) => "not Ready",
                None => "has a slot",
            };
            format!("{name} {why}")
        });
        let named = join(named.collect(), ", ").unwrap_or_default();
        format!("{} of at most {max} nodes are unavailable: {named}", down.len())
    }
}

fn describe_rest(node: &NodeView, until: Timestamp) -> String {
    let state = node.state();
    let why = state
        .and_then(|state| state.reason.as_deref())
        .unwrap_or_default();
    let aborts = match state.map_or(0, |state| state.aborts) {
        0 | 1 => String::new(),
        aborts => format!(" after {aborts} aborted attempts"),
    };
    format!(
        "{} rests until {}{aborts} ({})",
        node.name,
        to_the_second(until),
        clip(why)
    )
}

/// Returns what a node in this phase waits for, if nothing more is known.
pub(crate) fn phase_message(node: &NodeView, state: &State) -> String {
    let until = state.deadline.map(to_the_second);
    let until = until.map_or_else(String::new, |end| format!(" until {end}"));
    match state.phase {
        Phase::Granted => "about to be cordoned".to_owned(),
        Phase::Cordoned => format!("about to be drained{until}"),
        Phase::Draining => format!("evicting its pods{until}"),
        Phase::Drained => "about to be armed".to_owned(),
        Phase::Armed if node.progress.is_none() => {
            format!("waiting for the agent to start the reboot{until}")
        }
        Phase::Armed => format!("the agent has started the reboot; waiting for a new boot ID{until}"),
        Phase::Rebooted => format!("waiting for the kubelet to report the new boot{until}"),
        Phase::Soaking => format!("soaking: has to stay Ready{until}"),
        Phase::Failed | Phase::Aborted => state.reason.clone().unwrap_or_default(),
    }
}

/// Drops fractions of seconds.
pub(crate) fn to_the_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Joins the first few texts. `None` if there are none.
fn join(mut texts: Vec<String>, separator: &str) -> Option<String> {
    let more = texts.len().saturating_sub(MAX_NODES);
    texts.truncate(MAX_NODES);
    let some = texts.join(separator);
    match (some.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(some),
        (false, more) => Some(format!("{some} and {more} more")),
    }
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;

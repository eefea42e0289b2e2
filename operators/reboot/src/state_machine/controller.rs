//! The controller's part: from one phase to the next.

use std::time::Duration;

use jiff::Timestamp;

use super::{CordonChange, HaltReason, NodeChange, NodeEvent, NodeView};
use crate::{
    go_duration::GoDuration,
    state::{Phase, RebootCommand, State},
};

/// What a policy defines for a node that has a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebootRules {
    /// How long the hook before the drain may take; `None`: there is none.
    pub before_hook: Option<Duration>,
    /// How to drain the node; `None`: not at all.
    pub drain: Option<DrainRule>,
    /// How long the node may take to report a new boot ID.
    pub reboot_timeout: Duration,
    /// How long it may then take to become healthy.
    pub health_check_timeout: Duration,
    /// How long it has to stay healthy.
    pub soak: Duration,
    /// How long to wait after the first aborted attempt.
    pub backoff: Duration,
}

/// Longest backoff, unless the policy's own is longer. Someone may fix the cause at any time, so it is looked at
/// again every hour.
const MAX_BACKOFF: Duration = Duration::from_hours(1);

impl RebootRules {
    /// Returns how long to wait after this many aborted attempts: twice as long after each.
    pub fn backoff_after(&self, aborts: u32) -> Duration {
        let factor = 2_u32.saturating_pow(aborts.saturating_sub(1));
        let longest = MAX_BACKOFF.max(self.backoff);
        self.backoff.saturating_mul(factor).min(longest)
    }
}

/// How a node is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainRule {
    /// How long draining may take.
    pub timeout: Duration,
    /// Whether remaining pods are deleted after the timeout; otherwise the reboot is aborted.
    pub force: bool,
}

/// The input of a step besides the node.
#[derive(Clone, Copy, Debug)]
pub struct StepInput<'a> {
    /// The current time.
    pub now: Timestamp,
    /// The policy's name.
    pub policy: &'a str,
    /// The policy's rules.
    pub rules: &'a RebootRules,
    /// The epoch of the node's slot in the policy's status, if it has one.
    pub slot: Option<u64>,
    /// Why no reboot may start, if so.
    pub halt: Option<HaltReason>,
}

/// The controller's next action for a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Wait until something changes.
    Wait,
    /// Wait until this time, or until something changes.
    WaitUntil(Timestamp),
    /// Write this.
    Write(NodeChange),
    /// Write this if a live read of the policy still shows the slot; otherwise decide again.
    WriteIfSlotHeld(NodeChange),
    /// Run the hook before the drain; [`prepared`] if it has succeeded, [`hook_failed`] if it has failed.
    Prepare,
    /// Evict the remaining pods; [`drained`] if there are none.
    Drain {
        /// Delete pods that cannot be evicted.
        force: bool,
    },
    /// Check whether the node is healthy; [`verified`] if it is.
    Verify,
    /// The time to become healthy is over: find out what was missing, and write [`expired`].
    Expire,
}

/// Returns the controller's next action for a node.
pub fn step(node: &NodeView, input: &StepInput<'_>) -> Step {
    let state = match &node.state {
        None => return step_inactive(node, input, None),
        Some(Err(_)) => return Step::Wait,
        Some(Ok(state)) => state,
    };
    let at = ActiveNode { node, input, state };
    match state.phase {
        Phase::Aborted => step_inactive(node, input, Some(state)),
        Phase::Granted => at.granted(),
        Phase::Cordoned => at.cordoned(),
        Phase::Draining => at.draining(),
        Phase::Drained => at.drained(),
        Phase::Armed => at.armed(),
        Phase::Rebooted => at.rebooted(),
        Phase::Soaking => at.soaking(),
        Phase::Failed => at.failed(),
    }
}

/// The step for a node without a state, or after an aborted attempt.
fn step_inactive(node: &NodeView, input: &StepInput<'_>, before: Option<&State>) -> Step {
    if node.request.is_none() {
        let left = node.command.is_some() || node.progress.is_some();
        return if before.is_some() || node.cordoned || left {
            Step::Write(cancelled(node))
        } else {
            Step::Wait
        };
    }
    // The slot of the aborted attempt does not allow another one: it is about to be taken back.
    let Some(epoch) = input
        .slot
        .filter(|slot| before.is_none_or(|before| before.epoch != *slot))
    else {
        return match before.and_then(|before| before.deadline) {
            Some(rest) if input.now < rest => Step::WaitUntil(rest),
            _ => Step::Wait,
        };
    };
    let attempt = before.map_or(1, |before| before.attempt.saturating_add(1));
    let message = format!("granted a slot of policy {} (attempt {attempt})", input.policy);
    let granted = State {
        phase: Phase::Granted,
        policy: input.policy.to_owned(),
        epoch,
        attempt,
        aborts: before.map_or(0, |before| before.aborts),
        since: input.now,
        deadline: None,
        boot_id_before: None,
        healthy_deadline: None,
        cordoned: node.cordoned,
        reason: node.request.clone().filter(|reason| !reason.is_empty()),
        unknown_fields: before
            .map(|before| before.unknown_fields.clone())
            .unwrap_or_default(),
    };
    Step::Write(NodeChange {
        disarm: node.command.is_some(),
        remove_progress: node.progress.is_some(),
        ..NodeChange::to_state(granted, NodeEvent::normal("RebootGranted", message))
    })
}

/// The change after the hook before the drain has succeeded.
pub fn prepared(node: &NodeView, input: &StepInput<'_>) -> Option<NodeChange> {
    let state = node.state().filter(|state| state.phase == Phase::Cordoned)?;
    Some(ActiveNode { node, input, state }.begin_drain())
}

/// The change after a hook has failed: before the drain the attempt ends, after the reboot the node has failed.
pub fn hook_failed(node: &NodeView, input: &StepInput<'_>, why: &str) -> Option<NodeChange> {
    let state = node.state()?;
    let at = ActiveNode { node, input, state };
    match state.phase {
        Phase::Cordoned => {
            Some(at.abort_with_growing_backoff(&format!("its hook before the drain failed: {why}")))
        }
        Phase::Rebooted => Some(at.fail(&format!(
            "it rebooted, but its hook after the reboot failed: {why}"
        ))),
        _ => None,
    }
}

/// The change after the last pod has left; `message` describes what was done.
pub fn drained(node: &NodeView, input: &StepInput<'_>, message: &str) -> Option<NodeChange> {
    let state = node.state().filter(|state| state.phase == Phase::Draining)?;
    Some(ActiveNode { node, input, state }.to_phase(
        Phase::Drained,
        None,
        NodeEvent::normal("Drained", message),
    ))
}

/// The change after the node has become healthy.
pub fn verified(node: &NodeView, input: &StepInput<'_>) -> Option<NodeChange> {
    let state = node.state().filter(|state| state.phase == Phase::Rebooted)?;
    let at = ActiveNode { node, input, state };
    Some(if input.rules.soak.is_zero() {
        at.finish()
    } else {
        let message = format!(
            "healthy again; has to stay healthy for {}",
            GoDuration::from(input.rules.soak)
        );
        at.to_phase(
            Phase::Soaking,
            Some(input.rules.soak),
            NodeEvent::normal("Soaking", message),
        )
    })
}

/// The change after the time to become healthy is over; `missing` says what the node did not do in time.
pub fn expired(node: &NodeView, input: &StepInput<'_>, missing: &str) -> Option<NodeChange> {
    let state = node.state().filter(|state| state.phase == Phase::Rebooted)?;
    Some(ActiveNode { node, input, state }.fail(&format!("it rebooted, but {missing}")))
}

/// A node that has a slot.
struct ActiveNode<'a> {
    node: &'a NodeView,
    input: &'a StepInput<'a>,
    state: &'a State,
}

impl ActiveNode<'_> {
    fn granted(&self) -> Step {
        if let Some(change) = self.abort_if_needed() {
            return Step::Write(change);
        }
        let theirs = self.node.unschedulable && !self.node.cordoned;
        let (cordon, message) = if theirs {
            (
                CordonChange::Leave,
                "was already unschedulable, and stays so after the reboot",
            )
        } else {
            (CordonChange::Set, "cordoned")
        };
        let timeout = self.input.rules.before_hook;
        let mut change = self.to_phase(Phase::Cordoned, timeout, NodeEvent::normal("Cordoned", message));
        change.cordon = Some(cordon);
        if let Some(state) = &mut change.state {
            state.cordoned = !theirs;
        }
        Step::WriteIfSlotHeld(change)
    }

    fn cordoned(&self) -> Step {
        if let Some(change) = self.abort_cordoned_if_needed() {
            return Step::Write(change);
        }
        let Some(timeout) = self.input.rules.before_hook else {
            return Step::Write(self.begin_drain());
        };
        // Without a deadline, the hook was added to the policy since the node was cordoned.
        let deadline = self.state.deadline;
        let deadline = deadline.unwrap_or_else(|| add_duration(self.state.since, timeout));
        if self.input.now >= deadline {
            return Step::Write(self.abort_with_growing_backoff(&format!(
                "its hook before the drain did not finish within {}",
                GoDuration::from(timeout)
            )));
        }
        Step::Prepare
    }

    fn begin_drain(&self) -> NodeChange {
        match self.input.rules.drain {
            Some(DrainRule { timeout, .. }) => {
                let event = NodeEvent::normal(
                    "Draining",
                    format!("evicting its pods, for at most {}", GoDuration::from(timeout)),
                );
                self.to_phase(Phase::Draining, Some(timeout), event)
            }
            None => self.to_phase(
                Phase::Drained,
                None,
                NodeEvent::normal("DrainSkipped", "pods are not evicted: drain.enabled is false"),
            ),
        }
    }

    fn draining(&self) -> Step {
        if let Some(change) = self.abort_cordoned_if_needed() {
            return Step::Write(change);
        }
        let Some(rule) = self.input.rules.drain else {
            let event = NodeEvent::normal(
                "DrainSkipped",
                "remaining pods are not evicted: drain.enabled is false",
            );
            return Step::Write(self.to_phase(Phase::Drained, None, event));
        };
        if !self.is_past_deadline() {
            return Step::Drain { force: false };
        }
        if !rule.force {
            return Step::Write(self.abort_with_growing_backoff(&format!(
                "draining did not finish within {}",
                GoDuration::from(rule.timeout)
            )));
        }
        // Deleted pods get the same time again. Pods that remain after that are left behind, as `Force` asks for.
        let last_deadline = self
            .state
            .deadline
            .map(|deadline| add_duration(deadline, rule.timeout));
        if last_deadline.is_some_and(|last_deadline| self.input.now >= last_deadline) {
            let event = NodeEvent::warning(
                "DrainForced",
                "continuing with pods left on the node: drain.onTimeout is Force",
            );
            return Step::Write(self.to_phase(Phase::Drained, None, event));
        }
        Step::Drain { force: true }
    }

    fn drained(&self) -> Step {
        if let Some(change) = self.abort_cordoned_if_needed() {
            return Step::Write(change);
        }
        let boot_id = &self.node.boot_id;
        if boot_id.is_empty() {
            return Step::Write(self.abort_with_growing_backoff(
                "its kubelet reports no boot ID, so a reboot could not be verified",
            ));
        }
        let timeout = self.input.rules.reboot_timeout;
        let message = format!(
            "its agent may reboot it within {}; current boot ID {boot_id}",
            GoDuration::from(timeout)
        );
        let mut change = self.to_phase(
            Phase::Armed,
            Some(timeout),
            NodeEvent::normal("RebootArmed", message),
        );
        if let Some(state) = &mut change.state {
            state.boot_id_before = Some(boot_id.clone());
        }
        change.arm = Some(RebootCommand {
            boot_id: boot_id.clone(),
            epoch: self.state.epoch,
            not_before: None,
            not_after: None,
        });
        change.remove_progress = self.node.progress.is_some();
        Step::WriteIfSlotHeld(change)
    }

    fn armed(&self) -> Step {
        if let Some(after) = self.new_boot_id() {
            return Step::Write(self.proved(&format!("rebooted: new boot ID {after}")));
        }
        let progress = self.node.progress.as_ref();
        let failed = progress.and_then(|progress| progress.as_ref().ok()?.failure_reason.as_deref());
        if let Some(failed) = failed {
            return Step::Write(self.fail(&format!("its agent gave up: {failed}")));
        }
        let begun = progress.is_some();
        if !begun && let Some(change) = self.abort_cordoned_if_needed() {
            return Step::Write(change);
        }
        if self.is_past_deadline() {
            let why = if begun {
                "its agent requested the reboot, but no new boot ID was reported in time"
            } else {
                "its agent did not start the reboot in time: check that it runs on the node"
            };
            return Step::Write(self.fail(why));
        }
        self.wait_until_deadline()
    }

    /// The change after a new boot ID was reported.
    fn proved(&self, message: &str) -> NodeChange {
        let RebootRules {
            health_check_timeout,
            soak,
            ..
        } = self.input.rules;
        let mut change = self.to_phase(
            Phase::Rebooted,
            Some(*health_check_timeout),
            NodeEvent::normal("Rebooted", message),
        );
        change.disarm = self.node.command.is_some();
        if let Some(state) = &mut change.state {
            state.healthy_deadline = Some(add_duration(
                self.input.now,
                health_check_timeout.saturating_add(*soak),
            ));
        }
        change
    }

    /// A node that reports a new boot ID after its deadline has rebooted all the same: it continues, and is not
    /// rebooted again. A node that failed after the proof waits for an administrator.
    fn failed(&self) -> Step {
        let is_unproved = self.state.healthy_deadline.is_none();
        match self.new_boot_id().filter(|_| is_unproved) {
            Some(after) => Step::Write(self.proved(&format!(
                "rebooted after its deadline: new boot ID {after}; it is no longer failed"
            ))),
            None => Step::Wait,
        }
    }

    fn rebooted(&self) -> Step {
        if let Some(change) = self.release_cordon_if_uncordoned() {
            return Step::Write(change);
        }
        if self.is_past_deadline() {
            return Step::Expire;
        }
        // The agent may know about the new boot before the kubelet does; until then the conditions are those of the
        // old boot.
        if self.state.boot_id_before.as_ref() == Some(&self.node.boot_id) {
            return self.wait_until_deadline();
        }
        Step::Verify
    }

    fn soaking(&self) -> Step {
        if let Some(change) = self.release_cordon_if_uncordoned() {
            return Step::Write(change);
        }
        if !self.node.is_ready {
            // A node whose readiness flaps until the deadline has failed too.
            if self
                .state
                .healthy_deadline
                .is_some_and(|deadline| self.input.now >= deadline)
            {
                return Step::Write(self.fail("it rebooted, but does not stay healthy"));
            }
            let event = NodeEvent::warning(
                "SoakInterrupted",
                "no longer Ready; it has to become healthy again",
            );
            return Step::Write(self.to_phase(
                Phase::Rebooted,
                Some(self.input.rules.health_check_timeout),
                event,
            ));
        }
        if self.is_past_deadline() {
            return Step::Write(self.finish());
        }
        self.wait_until_deadline()
    }

    /// The new boot ID, reported by the kubelet or by the agent.
    fn new_boot_id(&self) -> Option<&str> {
        let before = self.state.boot_id_before.as_deref()?;
        let progress = self
            .node
            .progress
            .as_ref()
            .and_then(|progress| progress.as_ref().ok());
        let proved = progress
            .filter(|progress| progress.epoch == self.state.epoch)
            .and_then(|progress| progress.new_boot_id.as_deref());
        [Some(self.node.boot_id.as_str()), proved]
            .into_iter()
            .flatten()
            .find(|boot| !boot.is_empty() && *boot != before)
    }

    /// The change that ends the attempt before the node is cordoned: the request or the slot is gone, or the policy
    /// is halted.
    fn abort_if_needed(&self) -> Option<NodeChange> {
        if self.node.request.is_none() {
            return Some(cancelled(self.node));
        }
        let why = self.halt_message()?;
        // A drain or a hook that never ends within a window will not end within the next one either.
        let is_slow = match self.state.phase {
            Phase::Draining => true,
            Phase::Cordoned => self.input.rules.before_hook.is_some(),
            _ => false,
        };
        let is_cut_off = is_slow && self.input.halt == Some(HaltReason::WindowClosed);
        Some(if is_cut_off {
            self.abort_with_growing_backoff(why)
        } else {
            self.abort(why)
        })
    }

    /// The same for a cordoned node, which may also have been uncordoned.
    fn abort_cordoned_if_needed(&self) -> Option<NodeChange> {
        self.abort_if_needed()
            .or_else(|| self.uncordoned_message().map(|why| self.abort(why)))
    }

    fn halt_message(&self) -> Option<&'static str> {
        if self.input.slot != Some(self.state.epoch) {
            return Some("its slot is no longer in the policy's status");
        }
        self.input.halt.map(HaltReason::message)
    }

    fn uncordoned_message(&self) -> Option<&'static str> {
        (!self.node.unschedulable).then_some("it was uncordoned by another client")
    }

    /// Drops the cordon mark if the node was uncordoned after it was armed: from then on the cordon is the
    /// administrator's.
    fn release_cordon_if_uncordoned(&self) -> Option<NodeChange> {
        if self.node.unschedulable || !self.node.cordoned {
            return None;
        }
        let mut state = self.state.clone();
        state.cordoned = false;
        let event = NodeEvent::normal(
            "ExternallyUncordoned",
            "uncordoned by another client; the controller leaves it so",
        );
        Some(NodeChange {
            cordon: Some(CordonChange::Leave),
            ..NodeChange::to_state(state, event)
        })
    }

    fn is_past_deadline(&self) -> bool {
        self.state
            .deadline
            .is_some_and(|deadline| self.input.now >= deadline)
    }

    fn wait_until_deadline(&self) -> Step {
        self.state.deadline.map_or(Step::Wait, Step::WaitUntil)
    }

    /// The change to another phase, which times out after `within`.
    fn to_phase(&self, phase: Phase, within: Option<Duration>, event: NodeEvent) -> NodeChange {
        let state = State {
            phase,
            since: self.input.now,
            deadline: within.map(|within| add_duration(self.input.now, within)),
            reason: None,
            ..self.state.clone()
        };
        NodeChange::to_state(state, event)
    }

    /// Ends the attempt for a reason that the next one will meet again, unless someone removes it.
    fn abort_with_growing_backoff(&self, why: &str) -> NodeChange {
        let aborts = self.state.aborts.saturating_add(1);
        let mut change = self.abort(why);
        if let Some(state) = &mut change.state {
            state.aborts = aborts;
            let rest = self.input.rules.backoff_after(aborts);
            state.deadline = Some(add_duration(self.input.now, rest));
        }
        change
    }

    fn abort(&self, why: &str) -> NodeChange {
        let rest = self.input.rules.backoff;
        let event = NodeEvent::warning("RebootAborted", format!("reboot aborted: {why}"));
        let mut change = self.to_phase(Phase::Aborted, Some(rest), event);
        change.cordon = self.node.cordoned.then(|| uncordon(self.node));
        change.disarm = self.node.command.is_some();
        if let Some(state) = &mut change.state {
            state.reason = Some(why.to_owned());
            state.cordoned = false;
        }
        change
    }

    fn fail(&self, why: &str) -> NodeChange {
        let event = NodeEvent::warning(
            "RebootFailed",
            format!("{why}; it keeps its slot until the state annotation is removed"),
        );
        let mut change = self.to_phase(Phase::Failed, None, event);
        change.disarm = self.node.command.is_some();
        if let Some(state) = &mut change.state {
            state.reason = Some(why.to_owned());
        }
        change
    }

    fn finish(&self) -> NodeChange {
        NodeChange {
            state: None,
            cordon: self.node.cordoned.then(|| uncordon(self.node)),
            arm: None,
            disarm: self.node.command.is_some(),
            remove_progress: self.node.progress.is_some(),
            remove_request: true,
            event: NodeEvent::normal("RebootCompleted", "rebooted and healthy again"),
        }
    }
}

/// The change after the request was removed: removes all annotations of the controller.
fn cancelled(node: &NodeView) -> NodeChange {
    NodeChange {
        state: None,
        cordon: node.cordoned.then(|| uncordon(node)),
        arm: None,
        disarm: node.command.is_some(),
        remove_progress: node.progress.is_some(),
        remove_request: false,
        event: NodeEvent::normal("RebootCancelled", "the reboot is no longer requested"),
    }
}

/// Uncordons a node that the controller cordoned; if it was uncordoned already, only the mark is removed.
fn uncordon(node: &NodeView) -> CordonChange {
    if node.unschedulable {
        CordonChange::Lift
    } else {
        CordonChange::Leave
    }
}

fn add_duration(from: Timestamp, by: Duration) -> Timestamp {
    from.checked_add(by).unwrap_or(Timestamp::MAX)
}

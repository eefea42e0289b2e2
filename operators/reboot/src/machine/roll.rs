//! The controller's part: from one phase to the next.

use std::time::Duration;

use jiff::Timestamp;

use super::{Change, Cordon, Halt, NodeView, Said};
use crate::{
    span::Span,
    state::{Order, Phase, State},
};

/// What a policy says about a node that has a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How it is drained; `None`: not at all.
    pub drain: Option<DrainRule>,
    /// How long until it reports another boot.
    pub reboot: Duration,
    /// How long until it is good again after that.
    pub after: Duration,
    /// How long it has to stay good.
    pub soak: Duration,
    /// How long it rests after it was let go.
    pub backoff: Duration,
}

/// How a node is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainRule {
    /// How long pods have to go.
    pub timeout: Duration,
    /// What happens then: pods are deleted, and it goes on; or it is let go.
    pub force: bool,
}

/// What the machine is told besides the node.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The time.
    pub now: Timestamp,
    /// The policy's name.
    pub policy: &'a str,
    /// What it says.
    pub rules: &'a Rules,
    /// The epoch of the node's slot in its ledger, if it has one.
    pub slot: Option<u64>,
    /// Why nothing new may begin, if it may not.
    pub halt: Option<Halt>,
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

/// What the controller does next about a node.
pub fn step(node: &NodeView, facts: &Facts<'_>) -> Step {
    let state = match &node.state {
        None => return unstarted(node, facts, None),
        Some(Err(_)) => return Step::Rest,
        Some(Ok(state)) => state,
    };
    let at = At { node, facts, state };
    match state.phase {
        Phase::Aborted => unstarted(node, facts, Some(state)),
        Phase::Granted => at.granted(),
        Phase::Cordoned => at.cordoned(),
        Phase::Draining => at.draining(),
        Phase::Drained => at.drained(),
        Phase::Armed => at.armed(),
        Phase::Rebooted => at.rebooted(),
        Phase::Soaking => at.soaking(),
        Phase::Failed => Step::Rest,
    }
}

/// Without a state, or after it was let go.
fn unstarted(node: &NodeView, facts: &Facts<'_>, before: Option<&State>) -> Step {
    if node.needed.is_none() {
        let left = node.order.is_some() || node.progress.is_some();
        return if before.is_some() || node.cordoned || left {
            Step::Write(cancelled(node))
        } else {
            Step::Rest
        };
    }
    // The slot of the attempt that was let go is no leave to try again: it is on its way out of the ledger.
    let Some(epoch) = facts
        .slot
        .filter(|slot| before.is_none_or(|before| before.epoch != *slot))
    else {
        return match before.and_then(|before| before.deadline) {
            Some(rest) if facts.now < rest => Step::Until(rest),
            _ => Step::Rest,
        };
    };
    let attempt = before.map_or(1, |before| before.attempt.saturating_add(1));
    let message = format!("has a slot of policy {} (attempt {attempt})", facts.policy);
    let granted = State {
        phase: Phase::Granted,
        policy: facts.policy.to_owned(),
        epoch,
        attempt,
        since: facts.now,
        deadline: None,
        boot_id_before: None,
        good_by: None,
        cordoned: node.cordoned,
        reason: node.needed.clone().filter(|reason| !reason.is_empty()),
        more: before.map(|before| before.more.clone()).unwrap_or_default(),
    };
    Step::Write(Change {
        disarm: node.order.is_some(),
        forget_progress: node.progress.is_some(),
        ..Change::to(granted, Said::normal("RebootGranted", message))
    })
}

/// Nothing is left on the node; `message` says what was done.
pub fn drained(node: &NodeView, facts: &Facts<'_>, message: &str) -> Option<Change> {
    let state = node.state().filter(|state| state.phase == Phase::Draining)?;
    Some(At { node, facts, state }.to(Phase::Drained, None, Said::normal("Drained", message)))
}

/// The node is good again.
pub fn verified(node: &NodeView, facts: &Facts<'_>) -> Option<Change> {
    let state = node.state().filter(|state| state.phase == Phase::Rebooted)?;
    let at = At { node, facts, state };
    Some(if facts.rules.soak.is_zero() {
        at.finish()
    } else {
        let message = format!(
            "good again, and has to stay so for {}",
            Span::from(facts.rules.soak)
        );
        at.to(
            Phase::Soaking,
            Some(facts.rules.soak),
            Said::normal("Soaking", message),
        )
    })
}

/// A node that is on its way.
struct At<'a> {
    node: &'a NodeView,
    facts: &'a Facts<'a>,
    state: &'a State,
}

impl At<'_> {
    fn granted(&self) -> Step {
        if let Some(change) = self.undo() {
            return Step::Write(change);
        }
        let theirs = self.node.unschedulable && !self.node.cordoned;
        let (cordon, message) = if theirs {
            (
                Cordon::Leave,
                "had been made unschedulable by somebody else, and stays so",
            )
        } else {
            (Cordon::Set, "made unschedulable")
        };
        let mut change = self.to(Phase::Cordoned, None, Said::normal("Cordoned", message));
        change.cordon = Some(cordon);
        if let Some(state) = &mut change.state {
            state.cordoned = !theirs;
        }
        Step::Confirm(change)
    }

    fn cordoned(&self) -> Step {
        if let Some(change) = self.undo_cordoned() {
            return Step::Write(change);
        }
        Step::Write(match self.facts.rules.drain {
            Some(DrainRule { timeout, .. }) => {
                let said = Said::normal(
                    "Draining",
                    format!("evicting its pods, within {}", Span::from(timeout)),
                );
                self.to(Phase::Draining, Some(timeout), said)
            }
            None => self.to(
                Phase::Drained,
                None,
                Said::normal("DrainSkipped", "its pods stay, as the policy says"),
            ),
        })
    }

    fn draining(&self) -> Step {
        if let Some(change) = self.undo_cordoned() {
            return Step::Write(change);
        }
        let Some(rule) = self.facts.rules.drain else {
            let said = Said::normal(
                "DrainSkipped",
                "what is left of its pods stays, as the policy says",
            );
            return Step::Write(self.to(Phase::Drained, None, said));
        };
        if !self.is_over() {
            return Step::Drain { force: false };
        }
        if !rule.force {
            return Step::Write(self.abort(&format!(
                "its pods did not go within {}",
                Span::from(rule.timeout)
            )));
        }
        // As long again for pods to go that are deleted; what then still is there is left behind, since that is what was
        // asked for.
        let patience = self.state.deadline.map(|deadline| later(deadline, rule.timeout));
        if patience.is_some_and(|patience| self.facts.now >= patience) {
            let said = Said::warning(
                "DrainForced",
                "going on although pods are left on it, as drain.onTimeout says",
            );
            return Step::Write(self.to(Phase::Drained, None, said));
        }
        Step::Drain { force: true }
    }

    fn drained(&self) -> Step {
        if let Some(change) = self.undo_cordoned() {
            return Step::Write(change);
        }
        let boot_id = &self.node.boot_id;
        if boot_id.is_empty() {
            return Step::Write(
                self.abort("its kubelet reports no boot ID, so a reboot could not be proved"),
            );
        }
        let timeout = self.facts.rules.reboot;
        let message = format!(
            "its agent may reboot it, within {}; boot ID {boot_id}",
            Span::from(timeout)
        );
        let mut change = self.to(Phase::Armed, Some(timeout), Said::normal("RebootArmed", message));
        if let Some(state) = &mut change.state {
            state.boot_id_before = Some(boot_id.clone());
        }
        change.arm = Some(Order {
            boot_id: boot_id.clone(),
            epoch: self.state.epoch,
            not_before: None,
            not_after: None,
        });
        change.forget_progress = self.node.progress.is_some();
        Step::Confirm(change)
    }

    fn armed(&self) -> Step {
        if let Some(after) = self.proof() {
            let message = format!("rebooted: boot ID {after}");
            let Rules { after, soak, .. } = self.facts.rules;
            let mut change = self.to(Phase::Rebooted, Some(*after), Said::normal("Rebooted", message));
            change.disarm = true;
            if let Some(state) = &mut change.state {
                state.good_by = Some(later(self.facts.now, after.saturating_add(*soak)));
            }
            return Step::Write(change);
        }
        let progress = self.node.progress.as_ref();
        let failed = progress.and_then(|progress| progress.as_ref().ok()?.failed.as_deref());
        if let Some(failed) = failed {
            return Step::Write(self.fail(&format!("its agent gave up: {failed}")));
        }
        let begun = progress.is_some();
        if !begun && let Some(change) = self.undo_cordoned() {
            return Step::Write(change);
        }
        if self.is_over() {
            let why = if begun {
                "its agent has asked it to reboot, and no other boot ID was seen in time"
            } else {
                "its agent did nothing in time: see whether one runs there"
            };
            return Step::Write(self.fail(why));
        }
        self.until_over()
    }

    fn rebooted(&self) -> Step {
        if let Some(change) = self.handed_over() {
            return Step::Write(change);
        }
        if self.is_over() {
            return Step::Write(self.fail("it has rebooted, and did not become good in time"));
        }
        // What the agent has proved the kubelet may not know yet; its conditions are then those of the boot before.
        if self.state.boot_id_before.as_ref() == Some(&self.node.boot_id) {
            return self.until_over();
        }
        Step::Verify
    }

    fn soaking(&self) -> Step {
        if let Some(change) = self.handed_over() {
            return Step::Write(change);
        }
        if !self.node.ready {
            // One that comes and goes is no better than one that does not come.
            if self
                .state
                .good_by
                .is_some_and(|good_by| self.facts.now >= good_by)
            {
                return Step::Write(self.fail("it has rebooted, and does not stay good"));
            }
            let said = Said::warning("SoakEnded", "not Ready any more; it has to become good again");
            return Step::Write(self.to(Phase::Rebooted, Some(self.facts.rules.after), said));
        }
        if self.is_over() {
            return Step::Write(self.finish());
        }
        self.until_over()
    }

    /// Another boot than the one before it was armed, by whoever knows of it.
    fn proof(&self) -> Option<&str> {
        let before = self.state.boot_id_before.as_deref()?;
        let progress = self
            .node
            .progress
            .as_ref()
            .and_then(|progress| progress.as_ref().ok());
        let proved = progress
            .filter(|progress| progress.epoch == self.state.epoch)
            .and_then(|progress| progress.proved.as_deref());
        [Some(self.node.boot_id.as_str()), proved]
            .into_iter()
            .flatten()
            .find(|boot| !boot.is_empty() && *boot != before)
    }

    /// What takes it back before it is cordoned: nobody wants it any more, nothing may begin, or it has no slot.
    fn undo(&self) -> Option<Change> {
        if self.node.needed.is_none() {
            return Some(cancelled(self.node));
        }
        self.halted().map(|why| self.abort(why))
    }

    /// The same after that: somebody may also have uncordoned it.
    fn undo_cordoned(&self) -> Option<Change> {
        self.undo()
            .or_else(|| self.uncordoned().map(|why| self.abort(why)))
    }

    fn halted(&self) -> Option<&'static str> {
        if self.facts.slot != Some(self.state.epoch) {
            return Some("its slot is gone from the policy's status");
        }
        self.facts.halt.map(Halt::message)
    }

    fn uncordoned(&self) -> Option<&'static str> {
        (!self.node.unschedulable).then_some("somebody made it schedulable again")
    }

    /// Somebody made it schedulable after it was armed: from now on that is theirs.
    fn handed_over(&self) -> Option<Change> {
        if self.node.unschedulable || !self.node.cordoned {
            return None;
        }
        let mut state = self.state.clone();
        state.cordoned = false;
        let said = Said::normal(
            "CordonLifted",
            "somebody made it schedulable again; that is left to them",
        );
        Some(Change {
            cordon: Some(Cordon::Leave),
            ..Change::to(state, said)
        })
    }

    fn is_over(&self) -> bool {
        self.state
            .deadline
            .is_some_and(|deadline| self.facts.now >= deadline)
    }

    fn until_over(&self) -> Step {
        self.state.deadline.map_or(Step::Rest, Step::Until)
    }

    /// The next phase, which lasts so long at most.
    fn to(&self, phase: Phase, within: Option<Duration>, said: Said) -> Change {
        let state = State {
            phase,
            since: self.facts.now,
            deadline: within.map(|within| later(self.facts.now, within)),
            reason: None,
            ..self.state.clone()
        };
        Change::to(state, said)
    }

    fn abort(&self, why: &str) -> Change {
        let rest = self.facts.rules.backoff;
        let said = Said::warning("RebootAborted", format!("not rebooted now: {why}"));
        let mut change = self.to(Phase::Aborted, Some(rest), said);
        change.cordon = self.node.cordoned.then(|| lift(self.node));
        change.disarm = self.node.order.is_some();
        if let Some(state) = &mut change.state {
            state.reason = Some(why.to_owned());
            state.cordoned = false;
        }
        change
    }

    fn fail(&self, why: &str) -> Change {
        let said = Said::warning(
            "RebootFailed",
            format!("{why}; it keeps its slot until somebody looks and takes the state annotation off"),
        );
        let mut change = self.to(Phase::Failed, None, said);
        change.disarm = self.node.order.is_some();
        if let Some(state) = &mut change.state {
            state.reason = Some(why.to_owned());
        }
        change
    }

    fn finish(&self) -> Change {
        Change {
            state: None,
            cordon: self.node.cordoned.then(|| lift(self.node)),
            arm: None,
            disarm: self.node.order.is_some(),
            forget_progress: self.node.progress.is_some(),
            done: true,
            said: Said::normal("RebootDone", "rebooted and good again"),
        }
    }
}

/// Nobody asks for it any more: everything of ours goes.
fn cancelled(node: &NodeView) -> Change {
    Change {
        state: None,
        cordon: node.cordoned.then(|| lift(node)),
        arm: None,
        disarm: node.order.is_some(),
        forget_progress: node.progress.is_some(),
        done: false,
        said: Said::normal("RebootCancelled", "nobody asks for its reboot any more"),
    }
}

/// What we made unschedulable becomes schedulable; if somebody was faster, only the mark goes.
fn lift(node: &NodeView) -> Cordon {
    if node.unschedulable {
        Cordon::Lift
    } else {
        Cordon::Leave
    }
}

fn later(from: Timestamp, by: Duration) -> Timestamp {
    from.checked_add(by).unwrap_or(Timestamp::MAX)
}

//! The agent's part: when it asks its machine to reboot, and how it knows that it did.
//!
//! ```text
//!   armed for my boot ── Claim (a write that fails if anything changed) ──► reboot
//!        ▲                                                                    │ the process is here again:
//!        └── the same boot after a while: once more, five times in all ◄──────┤
//!                                                                             └── another boot: Prove
//! ```
//!
//! A restarted agent is no proof: only another boot ID is.

use std::time::Duration;

use jiff::Timestamp;

use super::NodeView;
use crate::state::{Phase, Progress, State};

/// How often a machine is asked to reboot.
pub const ATTEMPTS: u32 = 5;

/// How long it may take to go down after it was asked; each time twice as long.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What an agent does next.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentStep {
    /// Nothing until its node changes.
    Rest,
    /// Nothing until then, or until its node changes.
    Until(Timestamp),
    /// Write this to `P/reboot-in-progress`, if the node still is the version that was looked at; then reboot. If it is not, or
    /// the write fails, do not reboot, and look again.
    Claim(Progress),
    /// Write this to `P/reboot-in-progress`: the machine has rebooted.
    Prove(Progress),
    /// Write this to `P/reboot-in-progress`: it does not reboot, whatever is done.
    GiveUp(Progress),
}

/// What the agent of this node does next, that runs in the boot `own`.
pub fn step(node: &NodeView, own: &str, now: Timestamp) -> AgentStep {
    let progress = node.progress.as_ref().and_then(|progress| progress.as_ref().ok());
    if let Some(progress) = progress
        && progress.boot_id != own
        && progress.proved.is_none()
    {
        return AgentStep::Prove(Progress {
            proved: Some(own.to_owned()),
            failed: None,
            ..progress.clone()
        });
    }
    let Some(Ok(order)) = &node.order else {
        return AgentStep::Rest; // not armed, or not any more
    };
    if order.boot_id != own {
        return AgentStep::Rest; // that boot is over
    }
    // An order is good for as long as the state that it came with: one whose state was taken off, or went on, is a leftover,
    // and nobody knows whether the node is still drained.
    let stands = |state: &State| state.phase == Phase::Armed && state.epoch == order.epoch;
    if !node.state().is_some_and(stands) {
        return AgentStep::Rest;
    }
    if let Some(opens) = order.not_before.filter(|opens| now < *opens) {
        return AgentStep::Until(opens);
    }
    let closed = order.not_after.is_some_and(|closes| closes <= now);
    let same = |progress: &&Progress| progress.boot_id == own && progress.epoch == order.epoch;
    let attempt = match progress.filter(same) {
        None if closed => return AgentStep::Rest, // the controller takes it back when it gets to it
        None => 1,
        Some(before) if before.failed.is_some() => return AgentStep::Rest,
        Some(before) => {
            let wait = PATIENCE * 2_u32.saturating_pow(before.attempt.saturating_sub(1).min(ATTEMPTS));
            let until = before.at.checked_add(wait).unwrap_or(Timestamp::MAX);
            if now < until {
                return AgentStep::Until(until);
            }
            if closed {
                return AgentStep::GiveUp(Progress {
                    failed: Some("it was asked to reboot, and did not before the window closed".to_owned()),
                    ..before.clone()
                });
            }
            if before.attempt >= ATTEMPTS {
                return AgentStep::GiveUp(Progress {
                    failed: Some(format!("it was asked to reboot {ATTEMPTS} times, and did not")),
                    ..before.clone()
                });
            }
            before.attempt + 1
        }
    };
    AgentStep::Claim(Progress {
        boot_id: own.to_owned(),
        epoch: order.epoch,
        attempt,
        at: now,
        proved: None,
        checked: None,
        failed: None,
        more: progress.map(|progress| progress.more.clone()).unwrap_or_default(),
    })
}

/// What an agent with a check of its own writes to `P/reboot-in-progress` when that has passed, as long as nobody has written
/// that yet: in the boot after the reboot, and not before that is proved.
pub fn unchecked(node: &NodeView, own: &str) -> Option<Progress> {
    let progress = node.progress.as_ref()?.as_ref().ok()?;
    let is_due = progress.proved.as_deref() == Some(own) && progress.checked.as_deref() != Some(own);
    is_due.then(|| Progress {
        checked: Some(own.to_owned()),
        ..progress.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Order, Unreadable};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + seconds).expect("a time")
    }

    /// A node that is armed by this grant, for this boot.
    fn armed(epoch: u64, boot_id: &str) -> NodeView {
        let state = State {
            phase: Phase::Armed,
            policy: "default".to_owned(),
            epoch,
            attempt: 1,
            since: at(0),
            deadline: None,
            boot_id_before: Some(boot_id.to_owned()),
            good_by: None,
            cordoned: true,
            reason: None,
            more: [].into(),
        };
        let order = Order {
            boot_id: boot_id.to_owned(),
            epoch,
            not_before: None,
            not_after: None,
        };
        NodeView {
            state: Some(Ok(state)),
            order: Some(Ok(order)),
            ..NodeView::default()
        }
    }

    fn progress(epoch: u64, boot_id: &str, attempt: u32, seconds: i64) -> Progress {
        Progress {
            boot_id: boot_id.to_owned(),
            epoch,
            attempt,
            at: at(seconds),
            proved: None,
            checked: None,
            failed: None,
            more: [].into(),
        }
    }

    #[test]
    fn an_agent_acts_only_on_an_order_for_its_own_boot_that_its_state_stands_behind() {
        let good = armed(7, "a");
        assert_eq!(step(&good, "a", at(5)), AgentStep::Claim(progress(7, "a", 1, 5)));
        let with = |change: &dyn Fn(&mut NodeView)| {
            let mut node = good.clone();
            change(&mut node);
            node
        };
        let unreadable = || Unreadable {
            name: "state".to_owned(),
            why: "newer".to_owned(),
        };
        let in_phase = |phase: Phase, epoch: u64| {
            with(&move |node| {
                if let Some(Ok(state)) = &mut node.state {
                    (state.phase, state.epoch) = (phase, epoch);
                }
            })
        };
        for (what, node) in [
            ("nothing is asked for", NodeView::default()),
            ("another boot", armed(7, "b")),
            ("disarmed", with(&|node| node.order = None)),
            ("its state was taken off", with(&|node| node.state = None)),
            (
                "another version's state",
                with(&|node| node.state = Some(Err(unreadable()))),
            ),
            (
                "another version's order",
                with(&|node| node.order = Some(Err(unreadable()))),
            ),
            ("it has failed meanwhile", in_phase(Phase::Failed, 7)),
            ("it is drained for the next grant", in_phase(Phase::Draining, 8)),
            ("an order of another grant", in_phase(Phase::Armed, 8)),
        ] {
            assert_eq!(step(&node, "a", at(5)), AgentStep::Rest, "{what}");
        }
    }

    #[test]
    fn the_same_boot_is_tried_again_with_growing_pauses_and_then_no_more() {
        let mut node = armed(7, "a");
        let (mut now, mut tries) = (0, Vec::new());
        let failed = loop {
            match step(&node, "a", at(now)) {
                AgentStep::Claim(claim) => {
                    tries.push(now);
                    assert_eq!(claim.attempt as usize, tries.len());
                    node.progress = Some(Ok(claim));
                }
                AgentStep::Until(then) => now = then.as_second() - at(0).as_second(),
                AgentStep::GiveUp(last) => break last,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(tries, [0, 30, 90, 210, 450]);
        assert_eq!(now, 930);
        assert!(
            failed
                .failed
                .as_deref()
                .is_some_and(|why| why.contains("5 times"))
        );
        node.progress = Some(Ok(failed));
        assert_eq!(step(&node, "a", at(10_000)), AgentStep::Rest);
    }

    #[test]
    fn outside_of_the_window_by_its_own_clock_nothing_is_begun_nor_tried_again() {
        let mut node = armed(7, "a");
        if let Some(Ok(order)) = &mut node.order {
            (order.not_before, order.not_after) = (Some(at(100)), Some(at(200)));
        }
        assert_eq!(step(&node, "a", at(99)), AgentStep::Until(at(100)));
        for now in [100, 199] {
            assert_eq!(
                step(&node, "a", at(now)),
                AgentStep::Claim(progress(7, "a", 1, now))
            );
        }
        assert_eq!(step(&node, "a", at(200)), AgentStep::Rest);
        // It has begun, and the machine did not do it.
        node.progress = Some(Ok(progress(7, "a", 1, 180)));
        assert_eq!(step(&node, "a", at(205)), AgentStep::Until(at(210)));
        let AgentStep::GiveUp(last) = step(&node, "a", at(210)) else {
            panic!("it goes on");
        };
        assert!(last.failed.is_some_and(|why| why.contains("the window closed")));
        // What was proved is proved whatever the time.
        assert!(matches!(step(&node, "b", at(300)), AgentStep::Prove(_)));
    }

    #[test]
    fn another_boot_is_proved_once_and_a_new_order_begins_anew() {
        let mut node = armed(7, "a");
        node.progress = Some(Ok(progress(7, "a", 2, 30)));
        let proof = Progress {
            proved: Some("b".to_owned()),
            ..progress(7, "a", 2, 30)
        };
        assert_eq!(step(&node, "b", at(99)), AgentStep::Prove(proof.clone()));
        node.progress = Some(Ok(proof.clone()));
        assert_eq!(step(&node, "b", at(99)), AgentStep::Rest);
        for leftover in [proof, progress(7, "b", 5, 0)] {
            let mut next = armed(8, "b");
            next.progress = Some(Ok(leftover));
            assert_eq!(
                step(&next, "b", at(99)),
                AgentStep::Claim(progress(8, "b", 1, 99))
            );
        }
    }

    #[test]
    fn a_check_is_due_once_in_the_boot_that_was_proved() {
        let mut node = armed(7, "a");
        assert_eq!(unchecked(&node, "b"), None, "nothing was begun");
        node.progress = Some(Ok(progress(7, "a", 1, 0)));
        assert_eq!(unchecked(&node, "b"), None, "nothing was proved");
        let proof = Progress {
            proved: Some("b".to_owned()),
            ..progress(7, "a", 1, 0)
        };
        node.progress = Some(Ok(proof.clone()));
        assert_eq!(unchecked(&node, "c"), None, "it is another boot by now");
        let passed = unchecked(&node, "b").expect("it is due");
        assert_eq!(passed.checked.as_deref(), Some("b"));
        node.progress = Some(Ok(passed));
        assert_eq!(unchecked(&node, "b"), None, "it has passed");
    }
}

//! The agent's part: when it requests a reboot of its node, and how it verifies that one took place.
//!
//! ```text
//!   armed for this boot ── Claim (conditional write) ──► reboot
//!        ▲                                                 │ the agent runs again:
//!        └── same boot after a while: retry, 5 times ◄─────┤
//!                                                          └── another boot ID: Prove
//! ```
//!
//! A restarted agent proves nothing: only a changed boot ID does.

use std::time::Duration;

use jiff::Timestamp;

use super::NodeView;
use crate::state::{Phase, Progress, State};

/// How many times a reboot is requested.
pub const MAX_ATTEMPTS: u32 = 5;

/// How long the node may take to go down after the first request; the time doubles with each retry.
pub const FIRST_RETRY_DELAY: Duration = Duration::from_secs(30);

/// The agent's next action.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentStep {
    /// Wait until the node changes.
    Wait,
    /// Wait until this time, or until the node changes.
    WaitUntil(Timestamp),
    /// Write this to `P/reboot-in-progress`, conditional on the node's resource version, then reboot. If the write
    /// fails, do not reboot and decide again.
    Claim(Progress),
    /// Write this to `P/reboot-in-progress`: the node has rebooted.
    Prove(Progress),
    /// Write this to `P/reboot-in-progress`: the node does not reboot, and no more attempts are made.
    GiveUp(Progress),
}

/// Returns the next action of a node's agent that runs in the boot `own`.
pub fn step(node: &NodeView, own: &str, now: Timestamp) -> AgentStep {
    let progress = node.progress.as_ref().and_then(|progress| progress.as_ref().ok());
    if let Some(progress) = progress
        && progress.boot_id != own
        && progress.new_boot_id.is_none()
    {
        return AgentStep::Prove(Progress {
            new_boot_id: Some(own.to_owned()),
            failure_reason: None,
            ..progress.clone()
        });
    }
    let Some(Ok(command)) = &node.command else {
        return AgentStep::Wait; // not armed
    };
    if command.boot_id != own {
        return AgentStep::Wait; // a command for an earlier boot
    }
    // A command is valid only together with the state that was written with it. If that state was removed or has
    // moved on, the node may no longer be drained.
    let stands = |state: &State| state.phase == Phase::Armed && state.epoch == command.epoch;
    if !node.state().is_some_and(stands) {
        return AgentStep::Wait;
    }
    if let Some(opens) = command.not_before.filter(|opens| now < *opens) {
        return AgentStep::WaitUntil(opens);
    }
    let closed = command.not_after.is_some_and(|closes| closes <= now);
    let same = |progress: &&Progress| progress.boot_id == own && progress.epoch == command.epoch;
    let attempt = match progress.filter(same) {
        None if closed => return AgentStep::Wait, // the controller will withdraw the command
        None => 1,
        Some(before) if before.failure_reason.is_some() => return AgentStep::Wait,
        Some(before) => {
            let wait =
                FIRST_RETRY_DELAY * 2_u32.saturating_pow(before.attempt.saturating_sub(1).min(MAX_ATTEMPTS));
            let until = before.attempted_at.checked_add(wait).unwrap_or(Timestamp::MAX);
            if now < until {
                return AgentStep::WaitUntil(until);
            }
            if closed {
                return AgentStep::GiveUp(Progress {
                    failure_reason: Some(
                        "the reboot was requested, but did not happen before the window closed".to_owned(),
                    ),
                    ..before.clone()
                });
            }
            if before.attempt >= MAX_ATTEMPTS {
                return AgentStep::GiveUp(Progress {
                    failure_reason: Some(format!(
                        "the reboot was requested {MAX_ATTEMPTS} times, but did not happen"
                    )),
                    ..before.clone()
                });
            }
            before.attempt + 1
        }
    };
    AgentStep::Claim(Progress {
        boot_id: own.to_owned(),
        epoch: command.epoch,
        attempt,
        attempted_at: now,
        new_boot_id: None,
        checked_boot_id: None,
        failure_reason: None,
        more: progress.map(|progress| progress.more.clone()).unwrap_or_default(),
    })
}

/// Returns what an agent with a health check writes to `P/reboot-in-progress` when the check passes, or `None` if no
/// check is due. A check is due once, in the boot after the verified reboot.
pub fn pending_check(node: &NodeView, own: &str) -> Option<Progress> {
    let progress = node.progress.as_ref()?.as_ref().ok()?;
    let is_due =
        progress.new_boot_id.as_deref() == Some(own) && progress.checked_boot_id.as_deref() != Some(own);
    is_due.then(|| Progress {
        checked_boot_id: Some(own.to_owned()),
        ..progress.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{InvalidAnnotation, RebootCommand};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + seconds).expect("a valid time")
    }

    /// A node that is armed by this grant, for this boot.
    fn armed(epoch: u64, boot_id: &str) -> NodeView {
        let state = State {
            phase: Phase::Armed,
            policy: "default".to_owned(),
            epoch,
            attempt: 1,
            aborts: 0,
            since: at(0),
            deadline: None,
            boot_id_before: Some(boot_id.to_owned()),
            healthy_deadline: None,
            cordoned: true,
            reason: None,
            unknown_fields: [].into(),
        };
        let command = RebootCommand {
            boot_id: boot_id.to_owned(),
            epoch,
            not_before: None,
            not_after: None,
        };
        NodeView {
            state: Some(Ok(state)),
            command: Some(Ok(command)),
            ..NodeView::default()
        }
    }

    fn progress(epoch: u64, boot_id: &str, attempt: u32, seconds: i64) -> Progress {
        Progress {
            boot_id: boot_id.to_owned(),
            epoch,
            attempt,
            attempted_at: at(seconds),
            new_boot_id: None,
            checked_boot_id: None,
            failure_reason: None,
            more: [].into(),
        }
    }

    #[test]
    fn agent_claims_only_a_command_for_its_boot_with_a_matching_state() {
        let good = armed(7, "a");
        assert_eq!(step(&good, "a", at(5)), AgentStep::Claim(progress(7, "a", 1, 5)));
        let with = |change: &dyn Fn(&mut NodeView)| {
            let mut node = good.clone();
            change(&mut node);
            node
        };
        let unreadable = || InvalidAnnotation {
            key: "state".to_owned(),
            error: "newer".to_owned(),
        };
        let in_phase = |phase: Phase, epoch: u64| {
            with(&move |node| {
                if let Some(Ok(state)) = &mut node.state {
                    (state.phase, state.epoch) = (phase, epoch);
                }
            })
        };
        for (what, node) in [
            ("nothing requested", NodeView::default()),
            ("another boot", armed(7, "b")),
            ("disarmed", with(&|node| node.command = None)),
            ("its state was removed", with(&|node| node.state = None)),
            (
                "another version's state",
                with(&|node| node.state = Some(Err(unreadable()))),
            ),
            (
                "another version's command",
                with(&|node| node.command = Some(Err(unreadable()))),
            ),
            ("failed meanwhile", in_phase(Phase::Failed, 7)),
            ("draining for the next grant", in_phase(Phase::Draining, 8)),
            ("a command of another grant", in_phase(Phase::Armed, 8)),
        ] {
            assert_eq!(step(&node, "a", at(5)), AgentStep::Wait, "{what}");
        }
    }

    #[test]
    fn agent_retries_with_backoff_and_then_gives_up() {
        let mut node = armed(7, "a");
        let (mut now, mut tries) = (0, Vec::new());
        let failed = loop {
            match step(&node, "a", at(now)) {
                AgentStep::Claim(claim) => {
                    tries.push(now);
                    assert_eq!(claim.attempt as usize, tries.len());
                    node.progress = Some(Ok(claim));
                }
                AgentStep::WaitUntil(then) => now = then.as_second() - at(0).as_second(),
                AgentStep::GiveUp(last) => break last,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(tries, [0, 30, 90, 210, 450]);
        assert_eq!(now, 930);
        assert!(
            failed
                .failure_reason
                .as_deref()
                .is_some_and(|why| why.contains("5 times"))
        );
        node.progress = Some(Ok(failed));
        assert_eq!(step(&node, "a", at(10_000)), AgentStep::Wait);
    }

    #[test]
    fn agent_neither_starts_nor_retries_outside_the_window() {
        let mut node = armed(7, "a");
        if let Some(Ok(command)) = &mut node.command {
            (command.not_before, command.not_after) = (Some(at(100)), Some(at(200)));
        }
        assert_eq!(step(&node, "a", at(99)), AgentStep::WaitUntil(at(100)));
        for now in [100, 199] {
            assert_eq!(
                step(&node, "a", at(now)),
                AgentStep::Claim(progress(7, "a", 1, now))
            );
        }
        assert_eq!(step(&node, "a", at(200)), AgentStep::Wait);
        // The reboot was requested, but did not happen.
        node.progress = Some(Ok(progress(7, "a", 1, 180)));
        assert_eq!(step(&node, "a", at(205)), AgentStep::WaitUntil(at(210)));
        let AgentStep::GiveUp(last) = step(&node, "a", at(210)) else {
            panic!("expected the agent to give up");
        };
        assert!(
            last.failure_reason
                .is_some_and(|why| why.contains("the window closed"))
        );
        // A reboot is proved whatever the time.
        assert!(matches!(step(&node, "b", at(300)), AgentStep::Prove(_)));
    }

    #[test]
    fn new_boot_is_proved_once_and_a_new_command_starts_over() {
        let mut node = armed(7, "a");
        node.progress = Some(Ok(progress(7, "a", 2, 30)));
        let proof = Progress {
            new_boot_id: Some("b".to_owned()),
            ..progress(7, "a", 2, 30)
        };
        assert_eq!(step(&node, "b", at(99)), AgentStep::Prove(proof.clone()));
        node.progress = Some(Ok(proof.clone()));
        assert_eq!(step(&node, "b", at(99)), AgentStep::Wait);
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
    fn check_is_due_once_in_the_proved_boot() {
        let mut node = armed(7, "a");
        assert_eq!(pending_check(&node, "b"), None, "nothing was started");
        node.progress = Some(Ok(progress(7, "a", 1, 0)));
        assert_eq!(pending_check(&node, "b"), None, "nothing was proved");
        let proof = Progress {
            new_boot_id: Some("b".to_owned()),
            ..progress(7, "a", 1, 0)
        };
        node.progress = Some(Ok(proof.clone()));
        assert_eq!(pending_check(&node, "c"), None, "another boot");
        let passed = pending_check(&node, "b").expect("it is due");
        assert_eq!(passed.checked_boot_id.as_deref(), Some("b"));
        node.progress = Some(Ok(passed));
        assert_eq!(pending_check(&node, "b"), None, "it has passed");
    }
}

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
use crate::state::Progress;

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
    {
        return match &progress.proved {
            Some(_) => AgentStep::Rest,
            None => AgentStep::Prove(Progress {
                proved: Some(own.to_owned()),
                failed: None,
                ..progress.clone()
            }),
        };
    }
    let Some(Ok(order)) = &node.order else {
        return AgentStep::Rest; // not armed, or not any more
    };
    if order.boot_id != own {
        return AgentStep::Rest; // that boot is over
    }
    let attempt = match progress.filter(|progress| progress.epoch == order.epoch) {
        None => 1,
        Some(before) if before.failed.is_some() => return AgentStep::Rest,
        Some(before) => {
            let wait = PATIENCE * 2_u32.saturating_pow(before.attempt.saturating_sub(1).min(ATTEMPTS));
            let until = before.at.checked_add(wait).unwrap_or(Timestamp::MAX);
            if now < until {
                return AgentStep::Until(until);
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
        failed: None,
        more: progress.map(|progress| progress.more.clone()).unwrap_or_default(),
    })
}

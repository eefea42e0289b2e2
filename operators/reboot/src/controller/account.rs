//! What people see of a policy: counts, a word, conditions, and what changed.
//!
//! All of it follows from the nodes and the ledger, and nothing is decided by it.

use std::collections::{BTreeMap, BTreeSet};

use windlass::prelude::*;

use super::{Shared, halt, invalid, policies::failed};
use crate::{
    api::{BlockerStatus, PolicyPhase, RebootPolicy, RebootPolicyStatus},
    ledger::Roll,
    machine::{Halt, NodeView},
    members::Policies,
    state::Phase,
};

/// So many blockers are shown in a status.
const MOST_BLOCKERS: usize = 20;

/// So many names are in a message.
const NAMED: usize = 5;

/// What people see of it.
pub(super) fn account(
    shared: &Shared,
    policies: &Policies,
    policy: &RebootPolicy,
    roll: &Roll<'_>,
    overlaps: &BTreeSet<String>,
) -> RebootPolicyStatus {
    let mut status = policy.status.clone().unwrap_or_default();
    let generation = policy.metadata.generation;
    let has_slot = |node: &NodeView| node.is_active() || roll.slot(node).is_some();
    let nodes = || roll.nodes.values().copied();
    let count = |test: &dyn Fn(&NodeView) -> bool| {
        u32::try_from(nodes().filter(|node| test(node)).count()).unwrap_or(u32::MAX)
    };
    let is_failed = |node: &NodeView| node.phase() == Some(Phase::Failed);
    let failed = failed(roll);
    let halt = halt(policy, failed.len(), roll.now);
    status.observed_generation = generation;
    status.nodes = count(&|_| true);
    status.requested = count(&|node| node.needed.is_some() && !has_slot(node));
    status.rebooting = count(&|node| has_slot(node) && !is_failed(node));
    status.failed = count(&is_failed);
    status.unavailable = u32::try_from(roll.unavailable().len()).unwrap_or(u32::MAX);
    status.max_unavailable = roll
        .max()
        .ok()
        .and_then(|max| u32::try_from(max).ok())
        .unwrap_or(0);
    status.plan = match halt {
        Some(Halt::DryRun) => roll.plan().unwrap_or_default(),
        _ => Vec::new(),
    };
    let draining = nodes().filter(|node| node.phase() == Some(Phase::Draining));
    let blockers = draining.flat_map(|node| {
        let blockers = shared.figures.blockers_of(&node.name).into_iter();
        blockers.map(|blocker| BlockerStatus {
            node: node.name.clone(),
            pod: format!("{}/{}", blocker.namespace, blocker.pod),
            budget: blocker.budget,
            message: blocker.message,
        })
    });
    status.blockers = blockers.take(MOST_BLOCKERS).collect();
    status.phase = Some(match halt {
        Some(Halt::DryRun) => PolicyPhase::DryRun,
        Some(Halt::Paused | Halt::BudgetSpent | Halt::Invalid) => PolicyPhase::Paused,
        _ if status.rebooting > 0 => PolicyPhase::Rolling,
        _ if status.requested > 0 => PolicyPhase::Waiting,
        _ => PolicyPhase::Idle,
    });
    let wrong = wrong(policies, policy);
    status.message = wrong
        .clone()
        .or_else(|| halt.map(|halt| halt.message().to_owned()))
        .or_else(|| waits_for(&status));
    let findings = [
        readiness(wrong.as_deref()),
        pause(halt),
        degradation(&failed),
        overlap(overlaps),
    ];
    for finding in findings {
        status.conditions.set(finding.at(generation), &shared.clock);
    }
    status
}

/// What nodes wait for that may go.
fn waits_for(status: &RebootPolicyStatus) -> Option<String> {
    let slots = (status.requested > 0).then(|| format!("{} nodes wait for a slot", status.requested));
    let pods = status.blockers.first().map(|first| {
        let BlockerStatus { node, pod, .. } = first;
        match status.blockers.len() - 1 {
            0 => format!("pod {pod} keeps {node} from being drained"),
            more => format!("pod {pod} keeps {node} from being drained, and {more} more pods are in the way"),
        }
    });
    let waits: Vec<_> = pods.into_iter().chain(slots).collect();
    (!waits.is_empty()).then(|| waits.join("; "))
}

/// Tells of what changed for people.
pub(super) fn speak(
    ctx: &Context,
    policy: &RebootPolicy,
    before: &RebootPolicyStatus,
    now: &RebootPolicyStatus,
) {
    let is = |status: &RebootPolicyStatus, kind: &str| {
        let condition = status.conditions.of_type(kind);
        condition.map(|one| (one.status.clone(), one.reason.clone()))
    };
    for kind in ["Degraded", "Overlap", "Paused"] {
        let Some(condition) = now.conditions.of_type(kind) else {
            continue;
        };
        let (was, is) = (is(before, kind), is(now, kind));
        if was == is || (was.is_none() && condition.status == "False") {
            continue;
        }
        if condition.status == "True" {
            ctx.recorder()
                .warning(policy, &condition.reason, condition.message.as_str());
        } else {
            let message = format!("{kind} no longer");
            ctx.recorder().normal(policy, &condition.reason, message);
        }
    }
}

fn readiness(wrong: Option<&str>) -> Finding {
    match wrong {
        None => Finding::yes("Ready", "Followed"),
        Some(wrong) => Finding::no("Ready", "Invalid").message(wrong),
    }
}

fn pause(halt: Option<Halt>) -> Finding {
    match halt {
        Some(halt @ (Halt::Paused | Halt::DryRun | Halt::BudgetSpent | Halt::Invalid)) => {
            Finding::yes("Paused", format!("{halt:?}")).message(halt.message())
        }
        // Time alone ends it.
        Some(Halt::WindowClosed) => Finding::no("Paused", "WindowClosed"),
        None => Finding::no("Paused", "Running"),
    }
}

fn degradation(failed: &[String]) -> Finding {
    if failed.is_empty() {
        return Finding::no("Degraded", "NoneFailed");
    }
    let failed = some_of(failed.iter().map(String::as_str));
    Finding::yes("Degraded", "NodesFailed").message(format!(
        "look at these nodes, and take their state annotation off when they are good: {failed}"
    ))
}

fn overlap(others: &BTreeSet<String>) -> Finding {
    if others.is_empty() {
        return Finding::no("Overlap", "None");
    }
    let others = some_of(others.iter().map(String::as_str));
    Finding::yes("Overlap", "NodesShared").message(format!(
        "other policies select nodes of this one, and the first by name has them: {others}"
    ))
}

/// What only people can put right.
fn wrong(policies: &Policies, policy: &RebootPolicy) -> Option<String> {
    let selector = policies.invalid(&policy.name_any());
    let selector = selector.map(|error| format!("nodeSelector cannot be read: {error}"));
    selector.or_else(|| invalid(policy))
}

/// How many nodes are in each phase.
pub(super) fn by_phase(roll: &Roll<'_>) -> BTreeMap<&'static str, usize> {
    let mut phases: BTreeMap<_, _> = Phase::ALL.into_iter().map(|phase| (phase.name(), 0)).collect();
    for name in ["Idle", "Requested", "Unknown"] {
        phases.insert(name, 0);
    }
    for node in roll.nodes.values() {
        let phase = match &node.state {
            Some(Ok(state)) => state.phase.name(),
            Some(Err(_)) => "Unknown",
            None if node.needed.is_some() => "Requested",
            None => "Idle",
        };
        *phases.entry(phase).or_default() += 1;
    }
    phases
}

/// The first few of them.
fn some_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    let some = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => some,
        more => format!("{some} and {more} more"),
    }
}

//! Computes a policy's status: counts, phase and conditions.
//!
//! All of it is derived from the nodes and the grants; the controller never reads it to decide.

use std::collections::{BTreeMap, BTreeSet};

use windlass::prelude::*;

use super::{SharedState, halt_reason, policies::failed_nodes, validation_error};
use crate::{
    api::{BlockerStatus, PolicyPhase, RebootPolicy, RebootPolicyStatus},
    policy_set::PolicySet,
    slots::Rollout,
    state::Phase,
    state_machine::{HaltReason, NodeView},
};

/// Maximum number of blockers in a status.
const MAX_BLOCKERS: usize = 20;

/// Maximum number of names in a message.
const MAX_NAMES: usize = 5;

/// Computes the policy's status.
pub(super) fn compute_status(
    shared: &SharedState,
    policies: &PolicySet,
    policy: &RebootPolicy,
    roll: &Rollout<'_>,
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
    let failed = failed_nodes(roll);
    let halt = halt_reason(policy, failed.len(), roll.now);
    status.observed_generation = generation;
    status.nodes = count(&|_| true);
    status.requested = count(&|node| node.request.is_some() && !has_slot(node));
    status.rebooting = count(&|node| has_slot(node) && !is_failed(node));
    status.failed = count(&is_failed);
    status.unavailable = u32::try_from(roll.unavailable().len()).unwrap_or(u32::MAX);
    status.max_unavailable = roll
        .max_unavailable()
        .ok()
        .and_then(|max| u32::try_from(max).ok())
        .unwrap_or(0);
    status.plan = match halt {
        Some(HaltReason::DryRun) => roll.plan().unwrap_or_default(),
        _ => Vec::new(),
    };
    let draining = nodes().filter(|node| node.phase() == Some(Phase::Draining));
    let blockers = draining.flat_map(|node| {
        let blockers = shared.metrics.blockers_of(&node.name).into_iter();
        blockers.map(|blocker| BlockerStatus {
            node: node.name.clone(),
            pod: format!("{}/{}", blocker.namespace, blocker.pod),
            budget: blocker.budget,
            message: blocker.message,
        })
    });
    status.blockers = blockers.take(MAX_BLOCKERS).collect();
    status.phase = Some(match halt {
        Some(HaltReason::DryRun) => PolicyPhase::DryRun,
        Some(HaltReason::Paused | HaltReason::FailureBudgetExhausted | HaltReason::InvalidSpec) => {
            PolicyPhase::Paused
        }
        _ if status.rebooting > 0 => PolicyPhase::Rolling,
        _ if status.requested > 0 => PolicyPhase::Waiting,
        _ => PolicyPhase::Idle,
    });
    let wrong = validation_error_of(policies, policy);
    status.message = wrong
        .clone()
        .or_else(|| halt.map(|halt| halt.message().to_owned()))
        .or_else(|| describe_wait(&status));
    let updates = [
        ready_condition(wrong.as_deref()),
        paused_condition(halt),
        degraded_condition(&failed),
        overlap_condition(overlaps),
    ];
    for update in updates {
        status
            .conditions
            .set(update.observed_generation(generation), &shared.clock);
    }
    status
}

/// Describes what the policy's nodes are waiting for.
fn describe_wait(status: &RebootPolicyStatus) -> Option<String> {
    let slots = (status.requested > 0).then(|| format!("{} nodes are waiting for a slot", status.requested));
    let pods = status.blockers.first().map(|first| {
        let BlockerStatus { node, pod, .. } = first;
        match status.blockers.len() - 1 {
            0 => format!("pod {pod} blocks the drain of {node}"),
            more => format!("pod {pod} blocks the drain of {node}, and {more} more pods block drains"),
        }
    });
    let waits: Vec<_> = pods.into_iter().chain(slots).collect();
    (!waits.is_empty()).then(|| waits.join("; "))
}

/// Records events for conditions that changed.
pub(super) fn record_events(
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
            let message = format!("no longer {kind}");
            ctx.recorder().normal(policy, &condition.reason, message);
        }
    }
}

fn ready_condition(wrong: Option<&str>) -> ConditionUpdate {
    match wrong {
        None => ConditionUpdate::true_("Ready", "Valid"),
        Some(wrong) => ConditionUpdate::false_("Ready", "InvalidSpec").message(wrong),
    }
}

fn paused_condition(halt: Option<HaltReason>) -> ConditionUpdate {
    match halt {
        Some(
            halt @ (HaltReason::Paused
            | HaltReason::DryRun
            | HaltReason::FailureBudgetExhausted
            | HaltReason::InvalidSpec),
        ) => ConditionUpdate::true_("Paused", format!("{halt:?}")).message(halt.message()),
        // A closed window is no pause: it ends with time.
        Some(HaltReason::WindowClosed) => ConditionUpdate::false_("Paused", "WindowClosed"),
        None => ConditionUpdate::false_("Paused", "Running"),
    }
}

fn degraded_condition(failed: &[String]) -> ConditionUpdate {
    if failed.is_empty() {
        return ConditionUpdate::false_("Degraded", "NoFailures");
    }
    let failed = join_first(failed.iter().map(String::as_str));
    ConditionUpdate::true_("Degraded", "NodesFailed").message(format!(
        "these nodes failed; check them, and remove their state annotation when they are healthy: {failed}"
    ))
}

fn overlap_condition(others: &BTreeSet<String>) -> ConditionUpdate {
    if others.is_empty() {
        return ConditionUpdate::false_("Overlap", "NoOverlap");
    }
    let others = join_first(others.iter().map(String::as_str));
    ConditionUpdate::true_("Overlap", "SharedNodes").message(format!(
        "other policies select the same nodes, which belong to the first policy by name: {others}"
    ))
}

/// Returns the policy's validation error, if any.
fn validation_error_of(policies: &PolicySet, policy: &RebootPolicy) -> Option<String> {
    let selector = policies.selector_error(&policy.name_any());
    let selector = selector.map(|error| format!("invalid nodeSelector: {error}"));
    selector.or_else(|| validation_error(policy))
}

/// Counts the nodes in each phase.
pub(super) fn by_phase(roll: &Rollout<'_>) -> BTreeMap<&'static str, usize> {
    let mut phases: BTreeMap<_, _> = Phase::ALL.into_iter().map(|phase| (phase.name(), 0)).collect();
    for name in ["Idle", "Requested", "Unknown"] {
        phases.insert(name, 0);
    }
    for node in roll.nodes.values() {
        let phase = match &node.state {
            Some(Ok(state)) => state.phase.name(),
            Some(Err(_)) => "Unknown",
            None if node.request.is_some() => "Requested",
            None => "Idle",
        };
        *phases.entry(phase).or_default() += 1;
    }
    phases
}

/// Joins the first few names.
fn join_first<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    let some = names
        .iter()
        .take(MAX_NAMES)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => some,
        more => format!("{some} and {more} more"),
    }
}

//! Computes a policy's status: counts, phase and conditions.
//!
//! All of it is derived from the nodes and the grants; the controller never reads it to decide.

use std::collections::{BTreeMap, BTreeSet};

use windlass::prelude::*;

use super::{SharedState, halt_reason, policies::failed_nodes, validation_error};
use crate::{
    alerts::{AlertDecision, OnAlertError},
    api::{BlockerStatus, PolicyPhase, RebootPolicy, RebootPolicyStatus},
    metrics::PolicyFigures,
    policy_set::PolicySet,
    progress::{ProgressInput, ProgressReason},
    slots::Rollout,
    state::Phase,
    state_machine::{HaltReason, NodeView},
    window::Windows,
};

/// Maximum number of blockers in a status.
const MAX_BLOCKERS: usize = 20;

/// Maximum number of names in a message.
const MAX_NAMES: usize = 5;

/// After how many aborted attempts of a node its policy is Degraded: with the defaults, after 45 minutes.
const DEGRADED_AFTER_ABORTS: u32 = 3;

/// What is known besides the policy and its nodes.
pub(super) struct Observed<'a> {
    pub(super) policies: &'a PolicySet,
    /// The other policies that select nodes of this one.
    pub(super) overlaps: &'a BTreeSet<String>,
    /// By node, what its phase waits for.
    pub(super) waits: BTreeMap<&'a str, String>,
    /// Whether alerts allow the next reboot; `None` if they were not checked, since no node waits for a slot.
    pub(super) alerts: Option<AlertDecision>,
}

/// Computes the policy's status, and the reason of its condition `Progressing`.
pub(super) fn compute_status(
    shared: &SharedState,
    policy: &RebootPolicy,
    roll: &Rollout<'_>,
    observed: &Observed<'_>,
) -> (RebootPolicyStatus, ProgressReason) {
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
            reason: blocker.reason.to_string(),
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
        _ if status.requested > 0 || status.failed > 0 => PolicyPhase::Waiting,
        _ => PolicyPhase::Idle,
    });
    let wrong = validation_error_of(observed.policies, policy);
    let windows = Windows::parse(&policy.spec.windows, &policy.spec.exclusions).ok();
    let progress = ProgressInput {
        roll,
        halt,
        invalid: wrong.as_deref(),
        windows: windows.as_ref(),
        alerts: observed.alerts.as_ref().and_then(AlertDecision::block),
        is_drain_blocked: !status.blockers.is_empty(),
        waits: &observed.waits,
    };
    let (reason, message) = (progress.reason(), progress.message());
    status.window = progress.window();
    let updates = [
        ready_condition(wrong.as_deref()),
        progressing_condition(reason, &message),
        paused_condition(halt),
        degraded_condition(&failed, &aborted_nodes(roll)),
        overlap_condition(observed.overlaps),
    ];
    let ignored = alerts_ignored_condition(policy, observed.alerts.as_ref());
    status.message = Some(message);
    for update in updates.into_iter().chain(ignored) {
        status
            .conditions
            .set(update.observed_generation(generation), &shared.clock);
    }
    (status, reason)
}

/// Returns the nodes whose attempts were aborted too often, with the number and the reason.
fn aborted_nodes(roll: &Rollout<'_>) -> Vec<String> {
    let aborted = roll.nodes.values().filter_map(|node| {
        let state = node
            .state()
            .filter(|state| state.aborts >= DEGRADED_AFTER_ABORTS && node.request.is_some())?;
        let why = state.reason.as_deref().filter(|_| state.phase == Phase::Aborted);
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        Some(format!("{} ({} times{why})", node.name, state.aborts))
    });
    aborted.collect()
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

fn progressing_condition(reason: ProgressReason, message: &str) -> ConditionUpdate {
    let update = if reason.is_progressing() {
        ConditionUpdate::true_("Progressing", reason.to_string())
    } else {
        ConditionUpdate::false_("Progressing", reason.to_string())
    };
    update.message(message)
}

fn degraded_condition(failed: &[String], aborted: &[String]) -> ConditionUpdate {
    let failures = (!failed.is_empty()).then(|| {
        let failed = join_first(failed.iter().map(String::as_str));
        format!(
            "these nodes failed; check them, and remove their state annotation when they are healthy: {failed}"
        )
    });
    let aborts = (!aborted.is_empty()).then(|| {
        let aborted = join_first(aborted.iter().map(String::as_str));
        format!("attempts to reboot these nodes are aborted again and again, and retried ever less often: {aborted}")
    });
    let reason = match (&failures, &aborts) {
        (Some(_), _) => "NodesFailed",
        (None, Some(_)) => "RebootsAborted",
        (None, None) => return ConditionUpdate::false_("Degraded", "NoFailures"),
    };
    let message: Vec<_> = failures.into_iter().chain(aborts).collect();
    ConditionUpdate::true_("Degraded", reason).message(message.join("; "))
}

/// Returns `None` if the last check still says whether alerts are ignored.
fn alerts_ignored_condition(
    policy: &RebootPolicy,
    alerts: Option<&AlertDecision>,
) -> Option<ConditionUpdate> {
    if let Some(AlertDecision::Ignored(message)) = alerts {
        return Some(ConditionUpdate::true_("AlertsIgnored", "AlertsUnknown").message(message));
    }
    let allows = |status: &RebootPolicyStatus| {
        let spec = policy.spec.alerts.as_ref();
        let is_allowed = spec.is_some_and(|spec| spec.on_error == OnAlertError::Allow);
        is_allowed && status.conditions.of_type("AlertsIgnored").is_some()
    };
    if alerts.is_none() && policy.status.as_ref().is_some_and(allows) {
        return None;
    }
    Some(ConditionUpdate::false_("AlertsIgnored", "NotIgnored"))
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

/// Returns the figures of a policy.
pub(super) fn figures(roll: &Rollout<'_>, reason: ProgressReason) -> PolicyFigures {
    let mut phases: BTreeMap<_, _> = Phase::ALL.into_iter().map(|phase| (phase.name(), 0)).collect();
    for name in ["Idle", "Requested", "Unknown"] {
        phases.insert(name, 0);
    }
    let mut nodes = Vec::new();
    for node in roll.nodes.values() {
        let phase = match &node.state {
            Some(Ok(state)) => state.phase.name(),
            Some(Err(_)) => "Unknown",
            None if node.request.is_some() => "Requested",
            None => "Idle",
        };
        *phases.entry(phase).or_default() += 1;
        if phase != "Idle" {
            let aborts = node.state().map_or(0, |state| state.aborts);
            nodes.push((node.name.clone(), phase, aborts));
        }
    }
    PolicyFigures {
        reason,
        phases,
        nodes,
    }
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

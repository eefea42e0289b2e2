//! Computes the status of a Deployment: replica counts and progress. Pure functions.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet, ReplicaSetCondition},
    jiff::{SignedDuration, Timestamp},
};

use super::{
    ReplicaSets, conditions,
    conditions::{AVAILABLE, COMPLETE, FAILURE, PROGRESSING, TIMED_OUT, condition, has_reason},
    proportions::max_unavailable,
    replicas,
};
use crate::control_plane::workloads::{name, omit_zero, replicaset};

/// Computes the counts and the Available condition.
pub(super) fn status(deployment: &Deployment, sets: &ReplicaSets, now: Timestamp) -> DeploymentStatus {
    let before = deployment.status.clone().unwrap_or_default();
    let sum = |number: fn(&ReplicaSet) -> i32| sets.all().map(|set| number(set)).sum::<i32>();
    let (all, available) = (sum(replicaset::replicas), sum(available));
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: omit_zero(sum(actual)),
        updated_replicas: omit_zero(sets.new.as_deref().map_or(0, actual)),
        ready_replicas: omit_zero(sum(ready)),
        available_replicas: omit_zero(available),
        unavailable_replicas: omit_zero((all - available).max(0)),
        terminating_replicas: terminating(sets),
        collision_count: before.collision_count,
        conditions: before.conditions,
    };
    let (is_available, reason, message) = if available >= replicas(deployment) - max_unavailable(deployment) {
        (
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        )
    } else {
        (
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    conditions::set(
        &mut status,
        condition(AVAILABLE, is_available, reason, message, now),
    );
    status
}

/// Like [`status`], with the Progressing and `ReplicaFailure` conditions of a rollout that is not paused.
pub(super) fn rollout_status(
    deployment: &Deployment,
    sets: &ReplicaSets,
    now: Timestamp,
) -> DeploymentStatus {
    let mut next = status(deployment, sets, now);
    let before = deployment.status.clone().unwrap_or_default();
    let known = conditions::find(&before, PROGRESSING);
    let settled = next.replicas == next.updated_replicas && has_reason(known, COMPLETE);
    if deadline(deployment).is_none() {
        conditions::remove(&mut next, PROGRESSING);
    } else if !settled {
        let who = match &sets.new {
            Some(new) => format!("ReplicaSet \"{}\"", name(&**new)),
            None => format!("Deployment \"{}\"", name(deployment)),
        };
        if is_complete(deployment, &next) {
            let message = format!("{who} has successfully progressed.");
            conditions::set(&mut next, condition(PROGRESSING, "True", COMPLETE, &message, now));
        } else if progresses(&before, &next) {
            let message = format!("{who} is progressing.");
            let progress = condition(PROGRESSING, "True", "ReplicaSetUpdated", &message, now);
            conditions::set_updated(&mut next, progress);
        } else if is_timed_out(deployment, &next, now) {
            let message = format!("{who} has timed out progressing.");
            conditions::set(
                &mut next,
                condition(PROGRESSING, "False", TIMED_OUT, &message, now),
            );
        }
    }
    match failure(sets) {
        Some(failure) => conditions::set(&mut next, failure),
        None => conditions::remove(&mut next, FAILURE),
    }
    next
}

fn actual(set: &ReplicaSet) -> i32 {
    set.status.as_ref().map_or(0, |status| status.replicas)
}

fn ready(set: &ReplicaSet) -> i32 {
    let status = set.status.as_ref();
    status
        .and_then(|status| status.ready_replicas)
        .unwrap_or_default()
}

pub(super) fn available(set: &ReplicaSet) -> i32 {
    let status = set.status.as_ref();
    status
        .and_then(|status| status.available_replicas)
        .unwrap_or_default()
}

/// Returns the sum of `status.replicas`.
pub(super) fn actual_total(sets: &[Arc<ReplicaSet>]) -> i32 {
    sets.iter().map(|set| actual(set)).sum()
}

/// Returns the number of terminating pods, or `None` if an observed ReplicaSet does not report it.
fn terminating(sets: &ReplicaSets) -> Option<i32> {
    let of = |set: &ReplicaSet| match set.status.as_ref() {
        Some(status) if status.observed_generation.is_some() => status.terminating_replicas,
        _ => Some(0),
    };
    sets.all().map(|set| of(set)).sum()
}

/// Whether all replicas have the current template and are available, and no others exist.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = omit_zero(replicas(deployment));
    status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
        && status.observed_generation >= deployment.metadata.generation
}

fn progresses(before: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let number = |number: Option<i32>| number.unwrap_or_default();
    let old = |status: &DeploymentStatus| number(status.replicas) - number(status.updated_replicas);
    number(after.updated_replicas) > number(before.updated_replicas)
        || old(after) < old(before)
        || number(after.ready_replicas) > number(before.ready_replicas)
        || number(after.available_replicas) > number(before.available_replicas)
}

/// Returns the progress deadline; `None` if there is none.
pub(super) fn deadline(deployment: &Deployment) -> Option<SignedDuration> {
    let seconds = deployment.spec.as_ref()?.progress_deadline_seconds?;
    (seconds != i32::MAX).then(|| SignedDuration::from_secs(seconds.into()))
}

/// Returns when the progress deadline expires.
fn deadline_at(deployment: &Deployment, progress: &DeploymentCondition) -> Option<Timestamp> {
    let since = progress.last_update_time.as_ref()?.0;
    since.checked_add(deadline(deployment)?).ok()
}

fn is_timed_out(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> bool {
    let Some(progress) = conditions::find(status, PROGRESSING) else {
        return false;
    };
    match progress.reason.as_deref() {
        Some(COMPLETE) => false,
        Some(TIMED_OUT) => true,
        _ => deadline_at(deployment, progress).is_some_and(|time| time < now),
    }
}

/// Returns when to check the progress deadline. `None` if the rollout is complete, timed out or has no deadline.
pub(super) fn next_deadline_check(
    deployment: &Deployment,
    status: &DeploymentStatus,
    now: Timestamp,
) -> Option<Duration> {
    let progress = conditions::find(status, PROGRESSING)?;
    if is_complete(deployment, status) || has_reason(Some(progress), TIMED_OUT) {
        return None;
    }
    let left = deadline_at(deployment, progress)?.duration_since(now);
    // Timestamps have whole seconds: one second later the deadline has surely passed.
    let left = left.max(SignedDuration::ZERO) + SignedDuration::from_secs(1);
    Duration::try_from(left).ok()
}

/// Returns the `ReplicaFailure` condition of the new ReplicaSet, or else of any old one.
fn failure(sets: &ReplicaSets) -> Option<DeploymentCondition> {
    let of = |set: &ReplicaSet| windlass_api::conditions::find(set, FAILURE).cloned();
    let found = sets.new.as_deref().and_then(of);
    let found: ReplicaSetCondition = found.or_else(|| sets.old.iter().find_map(|set| of(set)))?;
    Some(DeploymentCondition {
        type_: found.type_,
        status: found.status,
        reason: found.reason,
        message: found.message,
        last_update_time: found.last_transition_time.clone(),
        last_transition_time: found.last_transition_time,
    })
}

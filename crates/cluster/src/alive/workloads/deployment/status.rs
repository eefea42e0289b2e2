//! What a Deployment says of its ReplicaSets, and whether its rollout moves: pure, from what one pass knows.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet, ReplicaSetCondition},
    jiff::{SignedDuration, Timestamp},
};

use super::{
    Sets, conditions,
    conditions::{AVAILABLE, COMPLETE, FAILURE, PROGRESSING, TIMED_OUT, condition, has_reason},
    fractions::max_unavailable,
    replicas,
};
use crate::alive::workloads::{count, name, replicaset};

/// The counts, and whether enough replicas are available.
pub(super) fn status(deployment: &Deployment, sets: &Sets, now: Timestamp) -> DeploymentStatus {
    let before = deployment.status.clone().unwrap_or_default();
    let sum = |number: fn(&ReplicaSet) -> i32| sets.all().map(|set| number(set)).sum::<i32>();
    let (all, available) = (sum(replicaset::replicas), sum(available));
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: count(sum(actual)),
        updated_replicas: count(sets.new.as_deref().map_or(0, actual)),
        ready_replicas: count(sum(ready)),
        available_replicas: count(available),
        unavailable_replicas: count((all - available).max(0)),
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

/// The same with what can be said of a rollout that is not paused.
pub(super) fn of_rollout(deployment: &Deployment, sets: &Sets, now: Timestamp) -> DeploymentStatus {
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
            conditions::renew(&mut next, progress);
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

/// How many pods the ReplicaSets think that they have.
pub(super) fn actual_of(sets: &[Arc<ReplicaSet>]) -> i32 {
    sets.iter().map(|set| actual(set)).sum()
}

/// Nothing if a ReplicaSet that was looked at does not say.
fn terminating(sets: &Sets) -> Option<i32> {
    let of = |set: &ReplicaSet| match set.status.as_ref() {
        Some(status) if status.observed_generation.is_some() => status.terminating_replicas,
        _ => Some(0),
    };
    sets.all().map(|set| of(set)).sum()
}

/// As many as are asked for run the newest template and are available, and no others are there.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = count(replicas(deployment));
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

/// How long a rollout may stand still; nothing if for ever.
pub(super) fn deadline(deployment: &Deployment) -> Option<SignedDuration> {
    let seconds = deployment.spec.as_ref()?.progress_deadline_seconds?;
    (seconds != i32::MAX).then(|| SignedDuration::from_secs(seconds.into()))
}

/// When the rollout will have stood still for too long.
fn overdue(deployment: &Deployment, progress: &DeploymentCondition) -> Option<Timestamp> {
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
        _ => overdue(deployment, progress).is_some_and(|time| time < now),
    }
}

/// When to look again whether the rollout moves: never if it is complete, given up or has no deadline.
pub(super) fn next_look(
    deployment: &Deployment,
    status: &DeploymentStatus,
    now: Timestamp,
) -> Option<Duration> {
    let progress = conditions::find(status, PROGRESSING)?;
    if is_complete(deployment, status) || has_reason(Some(progress), TIMED_OUT) {
        return None;
    }
    let left = overdue(deployment, progress)?.duration_since(now);
    // Times are kept to the second: in the one after the deadline it is over for sure.
    let left = left.max(SignedDuration::ZERO) + SignedDuration::from_secs(1);
    Duration::try_from(left).ok()
}

/// Why pods cannot be made or deleted: of the new ReplicaSet, or else of any.
fn failure(sets: &Sets) -> Option<DeploymentCondition> {
    let of = |set: &ReplicaSet| {
        let conditions = set.status.as_ref().and_then(|status| status.conditions.clone());
        conditions
            .into_iter()
            .flatten()
            .find(|condition| condition.type_ == FAILURE)
    };
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

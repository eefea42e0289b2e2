//! The conditions of a Deployment.

use k8s_openapi::{
    api::apps::v1::{DeploymentCondition, DeploymentStatus},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use windlass_api::conditions;

pub(super) const AVAILABLE: &str = "Available";
pub(super) const PROGRESSING: &str = "Progressing";
pub(super) const FAILURE: &str = "ReplicaFailure";

pub(super) const COMPLETE: &str = "NewReplicaSetAvailable";
pub(super) const TIMED_OUT: &str = "ProgressDeadlineExceeded";
pub(super) const PAUSED: &str = "DeploymentPaused";

pub(super) fn condition(
    type_: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

pub(super) fn find<'a>(status: &'a DeploymentStatus, type_: &str) -> Option<&'a DeploymentCondition> {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    conditions::find(conditions, type_)
}

pub(super) fn has_reason(condition: Option<&DeploymentCondition>, reason: &str) -> bool {
    condition.is_some_and(|condition| condition.reason.as_deref() == Some(reason))
}

/// Sets the condition, unless status and reason are the same. A changed condition moves to the end of the list.
pub(super) fn set(status: &mut DeploymentStatus, condition: DeploymentCondition) {
    let is_same =
        |known: &DeploymentCondition| known.status == condition.status && known.reason == condition.reason;
    if !find(status, &condition.type_).is_some_and(is_same) {
        set_updated(status, condition);
    }
}

/// Sets the condition even if it is the same, to renew `lastUpdateTime`.
pub(super) fn set_updated(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    let known = find(status, &condition.type_);
    conditions::keep_transition_time(&mut condition, known);
    remove(status, &condition.type_);
    status.conditions.get_or_insert_default().push(condition);
}

pub(super) fn remove(status: &mut DeploymentStatus, type_: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != type_);
        if conditions.is_empty() {
            status.conditions = None;
        }
    }
}

//! The conditions of a CRD.

use serde_json::{Value, json};
use windlass_api::conditions;

use super::list;
use crate::object::Object;

/// A condition to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) kind: &'static str,
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// A condition with a fixed message.
#[derive(Clone, Copy)]
pub(crate) struct ConditionTemplate(&'static str, &'static str, &'static str, &'static str);

pub(super) const NAMES_ACCEPTED: &str = "NamesAccepted";
pub(super) const ESTABLISHED: &str = "Established";
pub(super) const TERMINATING: &str = "Terminating";
pub(super) const APPROVED: &str = "KubernetesAPIApprovalPolicyConformant";

pub(super) const NO_CONFLICTS: ConditionTemplate =
    ConditionTemplate(NAMES_ACCEPTED, "True", "NoConflicts", "no conflicts found");
pub(super) const NOT_ACCEPTED: ConditionTemplate =
    ConditionTemplate(ESTABLISHED, "False", "NotAccepted", "not all names are accepted");
pub(super) const INSTALLING: ConditionTemplate = ConditionTemplate(
    ESTABLISHED,
    "False",
    "Installing",
    "the initial names have been accepted",
);
pub(super) const IS_ESTABLISHED: ConditionTemplate = ConditionTemplate(
    ESTABLISHED,
    "True",
    "InitialNamesAccepted",
    "the initial names have been accepted",
);
pub(super) const INVALID_CA_BUNDLE: ConditionTemplate = ConditionTemplate(
    ESTABLISHED,
    "False",
    "InvalidCABundle",
    "The conversion webhook CABundle is invalid",
);
pub(super) const DELETION_PENDING: ConditionTemplate = ConditionTemplate(
    TERMINATING,
    "True",
    "InstanceDeletionPending",
    "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
);
pub(super) const DELETING: ConditionTemplate = ConditionTemplate(
    TERMINATING,
    "True",
    "InstanceDeletionInProgress",
    "CustomResource deletion is in progress",
);
pub(super) const DELETED: ConditionTemplate = ConditionTemplate(
    TERMINATING,
    "False",
    "InstanceDeletionCompleted",
    "removed all instances",
);
pub(super) const NEVER_ESTABLISHED: ConditionTemplate = ConditionTemplate(
    TERMINATING,
    "False",
    "NeverEstablished",
    "resource was never established",
);

impl From<ConditionTemplate> for Condition {
    fn from(ConditionTemplate(kind, status, reason, message): ConditionTemplate) -> Self {
        Self {
            kind,
            status,
            reason,
            message: message.to_owned(),
        }
    }
}

/// The condition of this type in a CRD's status.
pub(super) fn find<'a>(crd: &'a Object, kind: &str) -> Option<&'a Value> {
    let status = crd.fields().get("status")?;
    conditions::find(list(&status["conditions"]), kind)
}

/// Whether a condition is present and true.
pub(super) fn is_true(crd: &Object, kind: &str) -> bool {
    find(crd, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Whether the CRD already has this condition, with the same status, reason and message.
pub(super) fn has(crd: &Object, condition: &Condition) -> bool {
    find(crd, condition.kind).is_some_and(|known| {
        known["status"] == condition.status
            && known["reason"] == condition.reason
            && known["message"] == *condition.message
    })
}

/// Sets a condition, replacing the one of its type. `lastTransitionTime` changes only with the status.
pub(super) fn set(crd: &mut Object, condition: impl Into<Condition>, now: &str) {
    let condition = condition.into();
    crd.set_condition(json!({
        "type": condition.kind,
        "status": condition.status,
        "lastTransitionTime": now,
        "reason": condition.reason,
        "message": condition.message,
    }));
}

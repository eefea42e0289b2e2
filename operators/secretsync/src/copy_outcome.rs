//! The result for one copy: how it is retried, and how the status and events of its sync show it.

use std::sync::Arc;

use windlass::prelude::ObjectKey;

use crate::{
    api::{ADOPT_ANNOTATION, AdoptionPolicy, CONFIRM_REMOVAL_ANNOTATION},
    identity::SyncId,
    plan::ActiveSync,
    removal_guard::{Confirmation, Removal},
    requests::RequestError,
    work_tracker::CopyFailure,
};

/// Why a copy that is no longer wanted still exists.
pub(crate) const REMOVAL_NOT_CONFIRMED: &str = "RemovalNotConfirmed";

/// The result for one copy.
pub(crate) enum CopyOutcome {
    Synced,
    /// Its type or name is never copied.
    Excluded,
    /// Its source is gone, or something else has to happen first; a watch will trigger another reconcile.
    Pending,
    Failed(CopyFailure, RetryPolicy),
    /// The server could not be reached, which says nothing about the copy.
    Disconnected(RequestError),
}

/// Whether and how to retry; the sooner, the greater.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RetryPolicy {
    /// Only after a change.
    #[default]
    Never,
    /// Periodically, since no watch reports the change.
    Poll,
    /// With exponential backoff.
    Backoff,
}

/// How a sync is named to the owner of another sync: its name is shown only within the same namespace.
pub(crate) fn display_name(other: &SyncId, live: &ActiveSync) -> String {
    match other {
        SyncId::Declared { namespace, .. } if *namespace != live.adoption.source => {
            "a sync of another namespace".to_owned()
        }
        SyncId::Annotated { .. } if live.adoption.configured != live.adoption.source => {
            "a sync of another namespace".to_owned()
        }
        other => other.to_string(),
    }
}

/// A copy whose removal waits for a confirmation. The status of the sync says how many there are: that number changes.
pub(crate) fn unconfirmed(confirmation: &Confirmation, name: &Arc<str>) -> CopyFailure {
    let way_out = match confirmation {
        Confirmation::Annotation(key) => {
            format!("undo the change, or annotate SecretSync {key} as its status says")
        }
        Confirmation::Recreation(key) => format!(
            "SecretSync {key} is gone, but was not deleted with its finalizer: create it again; to remove its copies, delete it then"
        ),
        Confirmation::Source => "undo the change, or set the annotation of the source to `false`".to_owned(),
    };
    let message = format!(
        "it is no longer wanted, but removing so many copies at once needs a confirmation: {way_out}; a namespace whose \
         consent is `false` loses its copies at once"
    );
    CopyFailure::new(name, REMOVAL_NOT_CONFIRMED, message)
}

/// How to confirm the removal of all copies that are held.
pub(crate) fn confirmation_request(key: &ObjectKey, removal: Removal) -> String {
    let Removal { unwanted, copies } = removal;
    format!(
        "removing {unwanted} of {copies} copies at once needs a confirmation: annotate SecretSync {key} with \
         `{CONFIRM_REMOVAL_ANNOTATION}={unwanted}`, or undo the change"
    )
}

/// The message must not depend on the object's content: without consent, the sync's owner may learn nothing about it.
pub(crate) fn not_allowed(live: &ActiveSync, name: &Arc<str>) -> CopyOutcome {
    let whose = match live.rules.adoption {
        AdoptionPolicy::IfIdentical => "the object itself",
        _ => "the object or its namespace",
    };
    let message = format!(
        "an object of that name exists and is left unchanged: `{ADOPT_ANNOTATION}` on {whose} does not name `{}`",
        live.adoption.source
    );
    conflict(name, "AdoptionNotAllowed", message, RetryPolicy::Poll)
}

pub(crate) fn failed_copy(name: &Arc<str>, reason: &str, message: String, again: RetryPolicy) -> CopyOutcome {
    CopyOutcome::Failed(CopyFailure::new(name, reason, message), again)
}

pub(crate) fn conflict(name: &Arc<str>, reason: &str, message: String, again: RetryPolicy) -> CopyOutcome {
    let failure = CopyFailure::new(name, reason, message);
    CopyOutcome::Failed(
        CopyFailure {
            is_conflict: true,
            ..failure
        },
        again,
    )
}

/// Converts a failed request.
pub(crate) fn failed_request(name: &Arc<str>, failure: RequestError) -> CopyOutcome {
    if failure.is_connection_error() {
        return CopyOutcome::Disconnected(failure);
    }
    failed_copy(name, failure.reason(), failure.to_string(), RetryPolicy::Backoff)
}

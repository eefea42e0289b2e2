//! What was done to copies: in the log, one line per copy, and as events, aggregated per sync and namespace.
//!
//! ```text
//!   CopyReconciler ── record ──► ActionLog ──► log: one line per copy, names and never values
//!                                     └── at the end of a run ──► events: on the sync, and in the target namespace
//! ```
//!
//! A sync with many targets does not flood: events on it are combined by the recorder, and those in target namespaces
//! by [`TargetEvents`].

use std::{fmt::Write as _, sync::Arc};

use parking_lot::Mutex;
use tokio::time::Instant;
use windlass::{cache::Uid, k8s_openapi::api::core::v1::ObjectReference, runtime::events::Recorder};

use crate::{
    api::{GROUP, SourceKind},
    identity::SyncId,
    requests::RequestError,
    target_events::TargetEvents,
    unanswered::Attempt,
};

/// Maximum number of names in an event's message.
const MAX_NAMES: usize = 5;

/// What was done to a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyAction {
    Created,
    Updated,
    /// An object of the target became a copy.
    Adopted,
    /// A copy became a plain object of the target.
    Released,
    Deleted,
}

impl CopyAction {
    const ALL: [Self; 5] = [
        Self::Created,
        Self::Updated,
        Self::Adopted,
        Self::Released,
        Self::Deleted,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Adopted => "adopted",
            Self::Released => "released",
            Self::Deleted => "deleted",
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Created => "CopyCreated",
            Self::Updated => "CopyUpdated",
            Self::Adopted => "CopyAdopted",
            Self::Released => "CopyReleased",
            Self::Deleted => "CopyDeleted",
        }
    }
}

/// What was done to the copies of one sync in one namespace, in one run.
pub(crate) struct ActionLog<'a> {
    sync: &'a SyncId,
    namespace: &'a Arc<str>,
    done: Mutex<Vec<Done>>,
    /// Writes without a response.
    attempts: Mutex<Vec<Attempt>>,
}

struct Done {
    action: CopyAction,
    kind: SourceKind,
    name: Arc<str>,
    uid: Uid,
}

impl<'a> ActionLog<'a> {
    pub(crate) fn new(sync: &'a SyncId, namespace: &'a Arc<str>) -> Self {
        Self {
            sync,
            namespace,
            done: Mutex::default(),
            attempts: Mutex::default(),
        }
    }

    /// Notes that a write failed, if it may have had its effect. `uid` is that of the object, unless it was to be created.
    pub(crate) fn attempt(
        &self,
        action: CopyAction,
        kind: SourceKind,
        name: &str,
        uid: Option<Uid>,
        failure: &RequestError,
    ) {
        if failure.is_unanswered() {
            self.attempts.lock().push(Attempt {
                action,
                kind,
                name: name.into(),
                uid,
                at: Instant::now(),
            });
        }
    }

    /// Returns the writes of this run without a response.
    pub(crate) fn take_attempts(&self) -> Vec<Attempt> {
        std::mem::take(&mut self.attempts.lock())
    }

    /// Returns what was done first to a copy in this run.
    pub(crate) fn first(&self, kind: SourceKind, name: &str) -> Option<CopyAction> {
        let done = self.done.lock();
        let first = done.iter().find(|one| one.kind == kind && &*one.name == name);
        first.map(|one| one.action)
    }

    /// Logs what was done to a copy.
    pub(crate) fn record(&self, action: CopyAction, kind: SourceKind, name: &str, uid: Uid) {
        tracing::info!(
            sync = %self.sync,
            kind = kind.name(),
            namespace = &**self.namespace,
            name,
            action = action.name(),
            "copy {}",
            action.name()
        );
        self.done.lock().push(Done {
            action,
            kind,
            name: name.into(),
            uid,
        });
    }

    /// Records the events: one per kind of action, however many copies there are. `reference` is the sync.
    pub(crate) fn report(self, recorder: &Recorder, reference: &ObjectReference, targets: &TargetEvents) {
        let done = self.done.into_inner();
        for action in CopyAction::ALL {
            let mut of_action = done.iter().filter(|one| one.action == action).peekable();
            let Some(first) = of_action.peek() else {
                continue;
            };
            let copy = copy_reference(first.kind, self.namespace, &first.name, Some(first.uid));
            let names = join_names(of_action.map(|one| &*one.name));
            recorder.normal(
                reference,
                action.reason(),
                format!("{} {}: {names}", action.name(), self.namespace),
            );
            let by = format!("{} by {}: {names}", action.name(), describe(self.sync));
            targets.normal(recorder, self.namespace, &copy, action.reason(), &by);
        }
    }
}

/// Returns the first names, and how many there are besides.
fn join_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    let mut text = names[..names.len().min(MAX_NAMES)].join(", ");
    if names.len() > MAX_NAMES {
        // Writing to memory cannot fail.
        let _ = write!(text, " and {} more", names.len() - MAX_NAMES);
    }
    text
}

/// How a sync is named to the owners of a target namespace.
fn describe(sync: &SyncId) -> String {
    match sync {
        SyncId::Annotated { kind, name } => format!("the annotation of {} {name}", kind.name()),
        SyncId::Declared { namespace, name } => format!("SecretSync {namespace}/{name}"),
    }
}

/// The object of a target namespace that an event is about, so that the event is in that namespace.
pub(crate) fn copy_reference(
    kind: SourceKind,
    namespace: &str,
    name: &str,
    uid: Option<Uid>,
) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some(kind.name().to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: uid.map(|uid| uid.to_string()),
        ..ObjectReference::default()
    }
}

/// A reference to a sync that no longer exists.
pub(crate) fn sync_reference(sync: &SyncId, source_namespace: &str) -> ObjectReference {
    match sync {
        SyncId::Annotated { kind, name } => copy_reference(*kind, source_namespace, name, None),
        SyncId::Declared { namespace, name } => ObjectReference {
            api_version: Some(format!("{GROUP}/v1alpha1")),
            kind: Some("SecretSync".to_owned()),
            namespace: Some(namespace.to_string()),
            name: Some(name.to_string()),
            ..ObjectReference::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_names_are_counted() {
        assert_eq!(join_names(["a", "b"].into_iter()), "a, b");
        assert_eq!(join_names(["a"; 7].into_iter()), "a, a, a, a, a and 2 more");
    }
}

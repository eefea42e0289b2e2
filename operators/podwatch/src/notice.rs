//! The report of one event of one object, and the trait that receives it.
//!
//! ```text
//!   watch ──► redaction ──► Notice ──► Observer (each sink, the journal)
//! ```
//!
//! A notice is built once, then shared and immutable. It contains nothing secret.

use std::{fmt, sync::Arc};

use windlass::{cache::ObjectKey, k8s_openapi::jiff::Timestamp, kube::core::ApiResource, serde_json::Value};

/// One event of one object, redacted.
#[derive(Clone, Debug)]
pub struct Notice {
    /// The type of event.
    pub event: EventType,
    /// Whether the event was not observed, but follows from a relist or from the state before a restart.
    pub inferred: bool,
    /// The object's kind.
    pub kind: Arc<ApiResource>,
    /// The object's namespace and name.
    pub key: ObjectKey,
    /// The object's UID; `None` if unknown, as for one that was already deleted at the start.
    pub uid: Option<String>,
    /// The resource version of `object`; for a deletion, the last known one.
    pub resource_version: Option<String>,
    /// When the event was noticed.
    pub time: Timestamp,
    /// The object, redacted; for a deletion, its last known state.
    pub object: Option<Arc<Value>>,
    /// The changed fields; empty unless [`EventType::Updated`].
    pub changes: Vec<FieldChange>,
    /// How many observed changes of the object this notice includes that were not reported on their own.
    pub coalesced: u64,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    /// The object existed at the start.
    Synced,
    /// The object was created.
    Added,
    /// The object changed.
    Updated,
    /// The object was deleted.
    Deleted,
}

impl EventType {
    /// All event types.
    pub const ALL: [Self; 4] = [Self::Synced, Self::Added, Self::Updated, Self::Deleted];

    /// The name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Synced => "synced",
            Self::Added => "added",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
        }
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One changed field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldChange {
    /// The field's path, as in `spec.containers[0].image` or `metadata.labels["app.kubernetes.io/name"]`.
    pub path: String,
    /// The value before; `None` if the field was absent.
    pub old: Option<Value>,
    /// The value now; `None` if the field was removed.
    pub new: Option<Value>,
}

impl Notice {
    /// Identifies the event, also when it is reported again after a restart: a receiver can deduplicate by it.
    ///
    /// The id of a deletion has no version, since an object is deleted only once.
    pub fn id(&self) -> String {
        let what = self.event;
        let object = match &self.uid {
            Some(uid) => uid.clone(),
            None => format!("{}.{}/{}", self.kind.plural, self.kind.group, self.key),
        };
        match &self.resource_version {
            Some(version) if what != EventType::Deleted => format!("{object}/{version}/{what}"),
            _ => format!("{object}/{what}"),
        }
    }
}

/// Receives notices.
pub trait Observer: Send + Sync + 'static {
    /// Accepts a notice. Never blocks: an observer without room drops and counts it.
    fn notify(&self, notice: Arc<Notice>) -> NotifyOutcome;
}

/// Whether an observer accepted a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum NotifyOutcome {
    /// It is queued or delivered.
    Accepted,
    /// There was no room; this observer dropped and counted it.
    Dropped,
}

#[cfg(test)]
mod tests {
    use windlass::kube::core::GroupVersionKind;

    use super::*;

    fn notice(event: EventType, uid: Option<&str>, version: Option<&str>) -> Notice {
        Notice {
            event,
            inferred: false,
            kind: Arc::new(ApiResource::from_gvk(&GroupVersionKind::gvk(
                "apps",
                "v1",
                "Deployment",
            ))),
            key: ObjectKey::namespaced("shop", "web"),
            uid: uid.map(str::to_owned),
            resource_version: version.map(str::to_owned),
            time: Timestamp::UNIX_EPOCH,
            object: None,
            changes: Vec::new(),
            coalesced: 0,
        }
    }

    #[test]
    fn id_identifies_object_version_and_event() {
        let cases = [
            (EventType::Added, Some("u"), Some("7"), "u/7/added"),
            (EventType::Updated, Some("u"), Some("7"), "u/7/updated"),
            (EventType::Updated, Some("u"), Some("8"), "u/8/updated"),
            (EventType::Deleted, Some("u"), Some("8"), "u/deleted"),
            (EventType::Deleted, Some("u"), None, "u/deleted"),
            (
                EventType::Deleted,
                None,
                None,
                "deployments.apps/shop/web/deleted",
            ),
        ];
        for (what, uid, version, expected) in cases {
            assert_eq!(notice(what, uid, version).id(), expected);
        }
    }
}

//! What is told: one thing that happened to one object, and who listens.
//!
//! ```text
//!   watch ──► redaction ──► Notice ──► Observer (each sink, the journal)
//! ```
//!
//! A notice is made once and shared; nobody changes it. Nothing secret is in it.

use std::{fmt, sync::Arc};

use windlass::{cache::ObjectKey, k8s_openapi::jiff::Timestamp, kube::core::ApiResource, serde_json::Value};

/// What happened to one object, as far as it is told.
#[derive(Clone, Debug)]
pub struct Notice {
    /// What happened.
    pub what: What,
    /// It was not seen, but follows from a list, or from what was known before a restart.
    pub inferred: bool,
    /// The object's kind.
    pub kind: Arc<ApiResource>,
    /// Which object of it.
    pub key: ObjectKey,
    /// Tells apart objects of the same name; `None` if that is not known, as of one that was gone at the start.
    pub uid: Option<String>,
    /// The version of the state that is told; of a deletion, the last one that is known.
    pub resource_version: Option<String>,
    /// When it was noticed.
    pub time: Timestamp,
    /// The state that is told, without what is secret; of a deletion, the last one that is known.
    pub object: Option<Arc<Value>>,
    /// What changed; empty unless [`What::Updated`].
    pub changes: Vec<FieldChange>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// It was there at the start.
    Synced,
    /// It is new.
    Added,
    /// It changed.
    Updated,
    /// It is gone.
    Deleted,
}

impl What {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Synced, Self::Added, Self::Updated, Self::Deleted];

    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Synced => "synced",
            Self::Added => "added",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One field that is not what it was.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldChange {
    /// Where, as in `spec.containers[0].image` or `metadata.labels["app.kubernetes.io/name"]`.
    pub path: String,
    /// What it was; `None` if it was not there.
    pub old: Option<Value>,
    /// What it is; `None` if it is not there any more.
    pub new: Option<Value>,
}

impl Notice {
    /// The same for the same thing that happened, also when it is told again after a restart: whoever remembers the ids
    /// that it got is told nothing twice.
    ///
    /// An object is deleted once, whatever version it had when that became known.
    pub fn id(&self) -> String {
        let what = self.what;
        let object = match &self.uid {
            Some(uid) => uid.clone(),
            None => format!("{}.{}/{}", self.kind.plural, self.kind.group, self.key),
        };
        match &self.resource_version {
            Some(version) if what != What::Deleted => format!("{object}/{version}/{what}"),
            _ => format!("{object}/{what}"),
        }
    }
}

/// Somebody who wants to know.
pub trait Observer: Send + Sync + 'static {
    /// Takes a notice. It never blocks: what there is no room for is dropped and counted by whoever has no room.
    fn tell(&self, notice: Arc<Notice>) -> Told;
}

/// What became of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Told {
    /// It is on its way, or where it belongs.
    Taken,
    /// There was no room for it; it is lost to this observer, and counted there.
    Dropped,
}

#[cfg(test)]
mod tests {
    use windlass::kube::core::GroupVersionKind;

    use super::*;

    fn notice(what: What, uid: Option<&str>, version: Option<&str>) -> Notice {
        Notice {
            what,
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
        }
    }

    #[test]
    fn an_id_is_of_one_object_one_version_and_one_thing_that_happened() {
        let cases = [
            (What::Added, Some("u"), Some("7"), "u/7/added"),
            (What::Updated, Some("u"), Some("7"), "u/7/updated"),
            (What::Updated, Some("u"), Some("8"), "u/8/updated"),
            (What::Deleted, Some("u"), Some("8"), "u/deleted"),
            (What::Deleted, Some("u"), None, "u/deleted"),
            (What::Deleted, None, None, "deployments.apps/shop/web/deleted"),
        ];
        for (what, uid, version, expected) in cases {
            assert_eq!(notice(what, uid, version).id(), expected);
        }
    }
}

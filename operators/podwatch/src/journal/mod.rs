//! Persists what each sink has confirmed, across restarts.
//!
//! ```text
//!   scope (kind and selection) ──► sink ──► object ──► uid and resource version that the sink has confirmed
//! ```
//!
//! It stores a version per object rather than a single position, because a sink may reject one notice and accept the next hundred,
//! and a server compacts its history after some minutes or is restored from a backup with lower versions. After a restart, the
//! current objects are compared with what each sink has confirmed, and the sink receives the difference as `Added`, `Updated` and
//! `Deleted` notices, each marked as inferred. So the latest state of every object reaches every sink **at least once**, however
//! long the process was down; intermediate states that were not observed are not reported.
//!
//! If the process crashes:
//!
//! - before a delivery, or between it and the write of the file: the notice is sent again;
//! - the same, and the object is deleted before the restart: the file lists it as *offered*, since that is written before a sink
//!   first receives an object. So its deletion is reported, even if its addition was not;
//! - during a write: the old file remains, since a new one is written beside it, synced, and renamed.
//!
//! A version is never in the file before its delivery, because only what a sink has confirmed and committed is written.

mod store;

use std::collections::{BTreeMap, HashMap};

use windlass::cache::{Meta, ObjectKey, Uid};

pub use self::store::{Journal, JournalError};
use crate::notice::Notice;

/// One version of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectVersion {
    /// The object's namespace and name.
    pub key: ObjectKey,
    /// The object's UID.
    pub uid: Uid,
    /// 0 if the server's is not a number: then it never equals another.
    pub resource_version: u64,
}

impl ObjectVersion {
    /// The version of a cached object.
    pub fn from_meta(meta: &Meta) -> Self {
        Self {
            key: meta.key().clone(),
            uid: meta.uid(),
            resource_version: meta.resource_version(),
        }
    }

    /// The version that a notice reports.
    pub fn from_notice(notice: &Notice) -> Self {
        Self {
            key: notice.key.clone(),
            uid: Uid::from(notice.uid.as_deref().unwrap_or_default()),
            resource_version: notice
                .resource_version
                .as_deref()
                .and_then(|version| version.parse().ok())
                .unwrap_or_default(),
        }
    }

    /// The resource version as text; `None` if unknown.
    pub fn resource_version_text(&self) -> Option<String> {
        (self.resource_version != 0).then(|| self.resource_version.to_string())
    }

    /// Whether both are the same version of the same object.
    pub fn is_same_version(&self, other: &Self) -> bool {
        self.resource_version != 0 && self.resource_version == other.resource_version && self.uid == other.uid
    }
}

/// A sink's progress in one scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether the sink once had every existing object: then an object it does not know is new.
    pub complete: bool,
    /// The confirmed version of each object the sink knows.
    pub objects: HashMap<ObjectKey, ObjectVersion>,
    /// Objects that the sink may have received but has not confirmed. The deletion of an earlier object of the same name has been
    /// delivered.
    pub offered: HashMap<ObjectKey, Uid>,
}

/// The contents of the journal: the progress of each sink in each scope.
pub type JournalContents = BTreeMap<String, BTreeMap<String, Progress>>;

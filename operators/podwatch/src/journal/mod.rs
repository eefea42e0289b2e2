//! What each sink has confirmed, kept over restarts.
//!
//! ```text
//!   scope (kind and selection) ──► sink ──► object ──► uid and resource version that the sink has confirmed
//! ```
//!
//! Why a version for each object, and no single position: a sink may have refused one notice and taken the next hundred, and a
//! server forgets its history after some minutes, or comes back from a backup with lower versions. After a restart the list of
//! what there is is compared with what each sink has confirmed, and the sink is told the difference: what came (`Added`),
//! changed (`Updated`), or went meanwhile (`Deleted`), each marked as inferred. So the latest state of every object
//! reaches every sink **at least once**, however long the process was away; steps in between that nobody saw are
//! not told.
//!
//! What if it dies:
//!
//! - before a delivery, or between it and the write of the file: the notice is told again;
//! - the same, and the object is gone when it is back: it was in the file as *offered*, since no object that a sink does not know
//!   is told of before that is written. So its end is told, also if its beginning was not;
//! - in the middle of a write: the file is the one from before, since a new one is written beside it, synced, and renamed.
//!
//! A version is never in the file before its delivery, because only what a sink has confirmed and settled gets into it.

mod store;

use std::collections::{BTreeMap, HashMap};

use windlass::cache::{Meta, ObjectKey, Uid};

pub use self::store::{Journal, JournalError};
use crate::notice::Notice;

/// The state of an object: which one, and of what version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its namespace and name.
    pub key: ObjectKey,
    /// Tells apart objects of the same name.
    pub uid: Uid,
    /// 0 where the server's is not a number: then it is never the same as another.
    pub resource_version: u64,
}

impl Version {
    /// What a cache knows of an object.
    pub fn from_meta(meta: &Meta) -> Self {
        Self {
            key: meta.key().clone(),
            uid: meta.uid(),
            resource_version: meta.resource_version(),
        }
    }

    /// The version that a notice tells.
    pub fn of(notice: &Notice) -> Self {
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

    /// The version as a notice has it; `None` if it is not known.
    pub fn resource_version_text(&self) -> Option<String> {
        (self.resource_version != 0).then(|| self.resource_version.to_string())
    }

    /// Whether both are one state of one object.
    pub fn is_same(&self, other: &Self) -> bool {
        self.resource_version != 0 && self.resource_version == other.resource_version && self.uid == other.uid
    }
}

/// What a sink has confirmed of one scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The sink has heard of every object that there was at some moment: one that it does not know is new.
    pub complete: bool,
    /// The objects that the sink knows, each as of the state that it has confirmed.
    pub objects: HashMap<ObjectKey, Version>,
    /// Objects that the sink may have heard of, and has not confirmed. The end of an earlier one of the same name was
    /// delivered.
    pub offered: HashMap<ObjectKey, Uid>,
}

/// Everything that is kept: by scope, by sink.
pub type Record = BTreeMap<String, BTreeMap<String, Progress>>;

//! The metadata that is kept of each copy, without content.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use windlass::{cache::Uid, kube::api::ObjectMeta};

use crate::{
    api::{
        ADOPT_ANNOTATION, ADOPTED_ANNOTATION, DELETION_POLICY_ANNOTATION, SOURCE_UID_LABEL,
        SYNCED_BY_ANNOTATION,
    },
    consent::Consent,
    digest::Digest,
    field_ownership::FieldOwnership,
    identity::SyncOwner,
};

/// The relevant metadata of a copy.
pub(crate) struct CopyMetadata {
    pub(crate) uid: Uid,
    pub(crate) version: u64,
    /// The UID of its source, from its label.
    pub(crate) source_uid: Uid,
    /// The sync that wrote it, from its annotation; copies of one sync share it.
    pub(crate) owner: Option<Arc<SyncOwner>>,
    /// The digest of the desired state that this version is known to have, because we have written or compared it.
    /// Not read from the object: metadata proves nothing about content.
    content: Mutex<Option<Digest>>,
    pub(crate) ownership: FieldOwnership,
    /// It stays when its sync is deleted.
    pub(crate) is_orphaned_on_delete: bool,
    pub(crate) is_deleting: bool,
    /// It existed before it became a copy.
    pub(crate) is_adopted: bool,
    /// Its own annotation about adoption.
    pub(crate) adoption_consent: Option<Box<Consent>>,
}

impl CopyMetadata {
    pub(crate) fn of(metadata: &ObjectMeta, marks: &SyncOwners) -> Self {
        let annotation = |name| metadata.annotations.as_ref().and_then(|all| all.get(name));
        let label = metadata.labels.as_ref().and_then(|all| all.get(SOURCE_UID_LABEL));
        let version = metadata.resource_version.as_deref();
        Self {
            uid: Uid::from(metadata.uid.as_deref().unwrap_or_default()),
            version: version.and_then(|text| text.parse().ok()).unwrap_or_default(),
            source_uid: Uid::from(label.map(String::as_str).unwrap_or_default()),
            owner: annotation(SYNCED_BY_ANNOTATION).and_then(|text| marks.intern(text)),
            content: Mutex::default(),
            ownership: FieldOwnership::of(metadata),
            is_orphaned_on_delete: annotation(DELETION_POLICY_ANNOTATION)
                .is_some_and(|policy| policy == "Orphan"),
            is_deleting: metadata.deletion_timestamp.is_some(),
            is_adopted: is_adopted(metadata),
            adoption_consent: Some(Consent::from_metadata(metadata, ADOPT_ANNOTATION))
                .filter(|consent| *consent != Consent::default())
                .map(Box::new),
        }
    }

    /// Returns the digest of the desired state that it is known to have.
    pub(crate) fn content(&self) -> Option<Digest> {
        *self.content.lock()
    }

    /// Records that it has the desired state with this digest.
    pub(crate) fn set_content(&self, digest: Digest) {
        *self.content.lock() = Some(digest);
    }
}

/// Returns whether an object existed before it became a copy, from its annotation.
pub(crate) fn is_adopted(metadata: &ObjectMeta) -> bool {
    let annotations = metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(ADOPTED_ANNOTATION))
}

/// Interns the sync owners that are in use.
#[derive(Default)]
pub(crate) struct SyncOwners(Mutex<HashMap<Box<str>, Weak<SyncOwner>>>);

impl SyncOwners {
    fn intern(&self, text: &str) -> Option<Arc<SyncOwner>> {
        let mut known = self.0.lock();
        if let Some(mark) = known.get(text).and_then(Weak::upgrade) {
            return Some(mark);
        }
        let mark = Arc::new(SyncOwner::parse(text)?);
        // Drop the owners of deleted syncs.
        if known.len() == known.capacity() {
            known.retain(|_, mark| mark.strong_count() > 0);
        }
        known.insert(text.into(), Arc::downgrade(&mark));
        Some(mark)
    }
}

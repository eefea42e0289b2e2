//! What is kept of each copy: a few words of its metadata, no content.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use windlass::{cache::Uid, kube::api::ObjectMeta};

use crate::{
    api::{ADOPT, ADOPTED, DELETION_POLICY, HASH, SOURCE_UID, SYNCED_BY},
    consent::Consent,
    content::Digest,
    grip::Grip,
    identity::Mark,
};

/// A copy, as far as it is known without reading its content.
pub(crate) struct Held {
    pub(crate) uid: Uid,
    pub(crate) version: u64,
    /// The UID of its source, as its label says.
    pub(crate) source: Uid,
    /// Which sync it says that it belongs to; copies of one sync share it.
    pub(crate) mark: Option<Arc<Mark>>,
    pub(crate) digest: Option<Digest>,
    pub(crate) grip: Grip,
    /// It stays when its sync goes.
    pub(crate) stays: bool,
    pub(crate) is_deleting: bool,
    /// It was there before it became a copy.
    pub(crate) is_adopted: bool,
    /// What it says itself about adoption.
    pub(crate) adopt: Option<Box<Consent>>,
}

impl Held {
    pub(crate) fn of(metadata: &ObjectMeta, marks: &Marks) -> Self {
        let annotation = |name| metadata.annotations.as_ref().and_then(|all| all.get(name));
        let label = metadata.labels.as_ref().and_then(|all| all.get(SOURCE_UID));
        let version = metadata.resource_version.as_deref();
        Self {
            uid: Uid::from(metadata.uid.as_deref().unwrap_or_default()),
            version: version.and_then(|text| text.parse().ok()).unwrap_or_default(),
            source: Uid::from(label.map(String::as_str).unwrap_or_default()),
            mark: annotation(SYNCED_BY).and_then(|text| marks.shared(text)),
            digest: annotation(HASH).and_then(|text| Digest::parse(text)),
            grip: Grip::of(metadata),
            stays: annotation(DELETION_POLICY).is_some_and(|policy| policy == "Orphan"),
            is_deleting: metadata.deletion_timestamp.is_some(),
            is_adopted: is_adopted(metadata),
            adopt: Some(Consent::of(metadata, ADOPT))
                .filter(|consent| *consent != Consent::default())
                .map(Box::new),
        }
    }
}

/// Whether an object says that it was there before it became a copy.
pub(crate) fn is_adopted(metadata: &ObjectMeta) -> bool {
    let annotations = metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(ADOPTED))
}

/// One copy of each mark that is in use.
#[derive(Default)]
pub(crate) struct Marks(Mutex<HashMap<Box<str>, Weak<Mark>>>);

impl Marks {
    fn shared(&self, text: &str) -> Option<Arc<Mark>> {
        let mut known = self.0.lock();
        if let Some(mark) = known.get(text).and_then(Weak::upgrade) {
            return Some(mark);
        }
        let mark = Arc::new(Mark::parse(text)?);
        // Syncs come and go; their marks should not stay.
        if known.len() == known.capacity() {
            known.retain(|_, mark| mark.strong_count() > 0);
        }
        known.insert(text.into(), Arc::downgrade(&mark));
        Some(mark)
    }
}

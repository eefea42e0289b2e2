//! An object in a cache, decoded when somebody asks.

use std::{
    borrow::Cow,
    sync::{Arc, atomic::Ordering},
};

use kube::Resource;

use crate::{
    core::{Core, Trouble},
    entry::{Body, Decode, Entry},
    hot::weight_of,
    ingest::Broken,
    key::ObjectKey,
    kind::{Cacheable, KindName},
    meta::{Interner, Meta},
    scan::Scanned,
    settings::{Keeping, decode},
};

/// One object in one state. Cloning it copies nothing; holding it keeps the object's packed form, not more.
pub struct Stored<T> {
    entry: Arc<Entry>,
    core: Arc<Core>,
    decode: Decode<T>,
}

/// An object that does not decode as the type it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {key} does not decode: {reason}")]
pub struct Undecodable {
    /// Its kind.
    pub kind: KindName,
    /// Which object.
    pub key: ObjectKey,
    /// What is wrong with it.
    pub reason: String,
}

impl<T> Stored<T> {
    pub(crate) fn new(entry: Arc<Entry>, core: &Arc<Core>, decode: Decode<T>) -> Self {
        let core = Arc::clone(core);
        Self { entry, core, decode }
    }

    /// What is known of it without decoding.
    pub fn meta(&self) -> &Meta {
        &self.entry.meta
    }

    /// Which object.
    pub fn key(&self) -> &ObjectKey {
        &self.entry.meta.key
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.entry, &other.entry)
    }
}

impl<K: Cacheable + Resource<DynamicType: Default>> Stored<K> {
    /// An object that is in no cache, to test what is done with one that is.
    pub fn of(object: Arc<K>) -> Self {
        let meta = object.meta();
        let text = |text: &Option<String>| Cow::Owned(text.clone().unwrap_or_default());
        let found = Scanned {
            name: text(&meta.name),
            namespace: text(&meta.namespace),
            uid: text(&meta.uid),
            resource_version: text(&meta.resource_version),
            generation: meta.generation.unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            labels: meta
                .labels
                .iter()
                .flatten()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            owners: meta
                .owner_references
                .iter()
                .flatten()
                .map(|owner| owner.uid.as_str().into())
                .collect(),
            ..Scanned::default()
        };
        let meta = Interner::default().meta(&found);
        let entry = Arc::new(Entry::new(meta, Body::Dropped, Some(object as _)));
        let kind = KindName::of::<K>(&K::DynamicType::default());
        let core = Arc::new(Core::new(kind, Keeping::default()));
        Self::new(entry, &core, decode::<K>)
    }
}

impl<T: Send + Sync + 'static> Stored<T> {
    /// The object. The first reader decodes it; while it is hot the others share that.
    pub fn object(&self) -> Result<Arc<T>, Undecodable> {
        read(&self.entry, &self.core, self.decode)
    }
}

impl<T> Clone for Stored<T> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.entry), &self.core, self.decode)
    }
}

pub(crate) fn read<T: Send + Sync + 'static>(
    entry: &Arc<Entry>,
    core: &Core,
    decode: Decode<T>,
) -> Result<Arc<T>, Undecodable> {
    if let Some(object) = entry.at_hand::<T>() {
        return Ok(object);
    }
    match entry.decode(decode) {
        Ok(decoded) => {
            core.stats.decoded(decoded.took);
            let weight = weight_of::<T>(decoded.text_bytes);
            core.hot.keep(entry, Arc::clone(&decoded.object) as _, weight);
            Ok(decoded.object)
        }
        Err(reason) => {
            let key = entry.meta.key.clone();
            if !entry.reported.swap(true, Ordering::Relaxed) {
                core.report(Trouble::Object(&Broken {
                    key: Some(key.clone()),
                    error: reason.clone(),
                }));
            }
            let kind = core.kind.clone();
            Err(Undecodable { kind, key, reason })
        }
    }
}

//! An object in a cache, decoded on demand.

use std::{
    borrow::Cow,
    sync::{Arc, atomic::Ordering},
};

use kube::Resource;

use crate::{
    core::{CacheError, Core},
    decoded::weight_of,
    entry::{Body, Decode, Entry},
    ingest::InvalidObject,
    key::ObjectKey,
    kind::{Cacheable, GroupVersionKind},
    meta::{Interner, Meta},
    scan::ScannedObject,
    settings::{UntypedSettings, decode},
};

/// One state of a cached object. A clone copies nothing; holding it keeps only the packed form in memory.
pub struct CachedObject<T> {
    entry: Arc<Entry>,
    core: Arc<Core>,
    decode: Decode<T>,
}

/// An object does not decode as the requested type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {key} does not decode: {reason}")]
pub struct DecodeError {
    /// The object's kind.
    pub kind: GroupVersionKind,
    /// The object's key.
    pub key: ObjectKey,
    /// The decoder's message.
    pub reason: String,
}

impl<T> CachedObject<T> {
    pub(crate) fn new(entry: Arc<Entry>, core: &Arc<Core>, decode: Decode<T>) -> Self {
        let core = Arc::clone(core);
        Self { entry, core, decode }
    }

    /// Returns the metadata, which needs no decoding.
    pub fn meta(&self) -> &Meta {
        &self.entry.meta
    }

    /// Returns the object's key.
    pub fn key(&self) -> &ObjectKey {
        &self.entry.meta.key
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.entry, &other.entry)
    }
}

impl<K: Cacheable + Resource<DynamicType: Default>> CachedObject<K> {
    /// Wraps an object that is in no cache, for tests.
    pub fn detached(object: Arc<K>) -> Self {
        let meta = object.meta();
        let text = |text: &Option<String>| Cow::Owned(text.clone().unwrap_or_default());
        let found = ScannedObject {
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
            ..ScannedObject::default()
        };
        let meta = Interner::default().meta(&found);
        let entry = Arc::new(Entry::new(meta, Body::Dropped, Some(object as _)));
        let kind = GroupVersionKind::of::<K>(&K::DynamicType::default());
        let core = Arc::new(Core::new(kind, UntypedSettings::default()));
        Self::new(entry, &core, decode::<K>)
    }
}

impl<T: Send + Sync + 'static> CachedObject<T> {
    /// Returns the object. The first reader decodes it; later ones share the result while it stays decoded.
    pub fn object(&self) -> Result<Arc<T>, DecodeError> {
        read(&self.entry, &self.core, self.decode)
    }
}

impl<T> Clone for CachedObject<T> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.entry), &self.core, self.decode)
    }
}

pub(crate) fn read<T: Send + Sync + 'static>(
    entry: &Arc<Entry>,
    core: &Core,
    decode: Decode<T>,
) -> Result<Arc<T>, DecodeError> {
    if let Some(object) = entry.decoded::<T>() {
        return Ok(object);
    }
    match entry.decode(decode) {
        Ok(decoded) => {
            core.stats.decoded(decoded.elapsed);
            let weight = weight_of::<T>(decoded.text_bytes);
            core.decoded
                .insert(entry, Arc::clone(&decoded.object) as _, weight);
            Ok(decoded.object)
        }
        Err(reason) => {
            let key = entry.meta.key.clone();
            if !entry.error_logged.swap(true, Ordering::Relaxed) {
                core.report_object_error(CacheError::Object(&InvalidObject {
                    key: Some(key.clone()),
                    error: reason.clone(),
                }));
            }
            let kind = core.kind.clone();
            Err(DecodeError { kind, key, reason })
        }
    }
}

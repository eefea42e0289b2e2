//! Makes entries from objects' JSON: removes `managedFields` and applies the user's transform, exactly once.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    entry::{Body, Entry},
    key::ObjectKey,
    kind::GroupVersionKind,
    meta::Interner,
    pack_queue::PackQueue,
    scan::{Cursor, ScannedObject},
    settings::UntypedSettings,
};

/// An ingested object.
pub(crate) enum Ingested {
    Object(Arc<Entry>),
    Invalid(InvalidObject),
}

/// An object that cannot be stored: it exists, but its state is unknown.
#[derive(Debug)]
pub(crate) struct InvalidObject {
    /// `None` if not even the key could be read.
    pub(crate) key: Option<ObjectKey>,
    pub(crate) error: String,
}

/// Makes the entries of one store. Shared by its drivers.
pub(crate) struct Ingest {
    kind: GroupVersionKind,
    settings: UntypedSettings,
    interner: Interner,
    pack_queue: Arc<PackQueue>,
}

impl Ingest {
    pub(crate) fn new(kind: GroupVersionKind, settings: UntypedSettings) -> Self {
        Self {
            kind,
            settings,
            interner: Interner::default(),
            pack_queue: Arc::new(PackQueue::new()),
        }
    }

    /// Returns the entries that are not packed yet.
    pub(crate) fn pack_queue(&self) -> &Arc<PackQueue> {
        &self.pack_queue
    }

    /// Makes the entry of an object to store.
    pub(crate) fn make_and_queue(&mut self, raw: &[u8], found: &ScannedObject<'_>) -> Ingested {
        let arrival = self.make_entry(raw, found);
        if let Ingested::Object(entry) = &arrival
            && self.settings.keep_json
        {
            self.pack_queue.push(entry);
        }
        arrival
    }

    /// Makes an entry without queueing it for packing, for the last state of a deleted object.
    pub(crate) fn make_entry(&mut self, raw: &[u8], found: &ScannedObject<'_>) -> Ingested {
        let broken = |error: &str| {
            let is_object = found.kind != "Table" && !found.name.is_empty();
            let key = is_object.then(|| ObjectKey::namespaced(&*found.namespace, &*found.name));
            let error = error.to_owned();
            Ingested::Invalid(InvalidObject { key, error })
        };
        if found.kind == "Table" {
            return broken("it is a Table");
        }
        if found.name.is_empty() {
            return broken("it has no metadata.name");
        }
        let mut text = self.text(raw, found);
        let meta = match self.settings.transform.clone() {
            None => self.interner.meta(found),
            Some(transform) => {
                let transformed = catch_unwind(AssertUnwindSafe(|| -> Result<_, serde_json::Error> {
                    let mut object: Value = serde_json::from_slice(&text)?;
                    transform(&mut object);
                    serde_json::to_vec(&object)
                }));
                match transformed {
                    Ok(Ok(transformed)) => text = transformed,
                    Ok(Err(error)) => return broken(&error.to_string()),
                    Err(_) => return broken("the transform panicked"),
                }
                match Cursor::new(&text).object() {
                    Ok(now) if now.name == found.name && now.namespace == found.namespace => {
                        self.interner.meta(&now)
                    }
                    _ => return broken("the transform changed its name"),
                }
            }
        };
        let pinned = match &self.settings.pin {
            None => None,
            Some(pin) => match catch_unwind(AssertUnwindSafe(|| pin(&text))) {
                Ok(Ok(object)) => Some(object),
                Ok(Err(error)) => return broken(&error),
                Err(_) => return broken("the projection panicked"),
            },
        };
        let body = if self.settings.keep_json {
            Body::Plain(Arc::new(text))
        } else {
            Body::Dropped
        };
        Ingested::Object(Arc::new(Entry::new(meta, body, pinned)))
    }

    /// Returns the object's JSON without `managedFields` (unless the settings keep them), and with the type, which list
    /// items leave out.
    fn text(&self, raw: &[u8], found: &ScannedObject<'_>) -> Vec<u8> {
        let GroupVersionKind { api_version, kind } = &self.kind;
        let (mut parts, mut kept) = (Vec::<&[u8]>::with_capacity(9), 0);
        if found.kind.is_empty() || !found.has_api_version {
            // A named object has members, so a comma is valid here.
            kept = raw.iter().position(|byte| *byte == b'{').map_or(0, |at| at + 1);
            parts.push(b"{");
            if !found.has_api_version {
                parts.extend([&b"\"apiVersion\":\""[..], api_version.as_bytes(), b"\","]);
            }
            if found.kind.is_empty() {
                parts.extend([&b"\"kind\":\""[..], kind.as_bytes(), b"\","]);
            }
        }
        let nothing = raw.len()..raw.len();
        let cut = match &found.managed_fields {
            Some(range) if !self.settings.keep_managed_fields => range.clone(),
            _ => nothing,
        };
        parts.extend([&raw[kept..cut.start], &raw[cut.end..]]);
        parts.concat()
    }
}

//! From the bytes of an object to its entry: `managedFields` and a user's transform go here, exactly once.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    entry::{Body, Entry},
    fresh::Fresh,
    key::ObjectKey,
    kind::KindName,
    meta::Interner,
    scan::{Cursor, Scanned},
    settings::Keeping,
};

/// An object as it arrived.
pub(crate) enum Arrival {
    Object(Arc<Entry>),
    Broken(Broken),
}

/// An object that cannot be kept: something exists under this key, we cannot say what.
#[derive(Debug)]
pub(crate) struct Broken {
    /// `None` if not even that could be read.
    pub(crate) key: Option<ObjectKey>,
    pub(crate) error: String,
}

/// Makes entries. Belongs to one store; drivers take turns.
pub(crate) struct Ingest {
    kind: KindName,
    keeping: Keeping,
    interner: Interner,
    fresh: Arc<Fresh>,
}

impl Ingest {
    pub(crate) fn new(kind: KindName, keeping: Keeping) -> Self {
        Self {
            kind,
            keeping,
            interner: Interner::default(),
            fresh: Arc::new(Fresh::new()),
        }
    }

    /// What it took that is not packed.
    pub(crate) fn fresh(&self) -> &Arc<Fresh> {
        &self.fresh
    }

    /// Takes an object that is to be stored.
    pub(crate) fn take(&mut self, raw: &[u8], found: &Scanned<'_>) -> Arrival {
        let arrival = self.make(raw, found);
        if let Arrival::Object(entry) = &arrival
            && self.keeping.text
        {
            self.fresh.admit(entry);
        }
        arrival
    }

    /// Takes an object that is only to be told of, since it is gone.
    pub(crate) fn make(&mut self, raw: &[u8], found: &Scanned<'_>) -> Arrival {
        let broken = |error: &str| {
            let is_object = found.kind != "Table" && !found.name.is_empty();
            let key = is_object.then(|| ObjectKey::namespaced(&*found.namespace, &*found.name));
            let error = error.to_owned();
            Arrival::Broken(Broken { key, error })
        };
        if found.kind == "Table" {
            return broken("it is a table");
        }
        if found.name.is_empty() {
            return broken("it has no metadata.name");
        }
        let mut text = self.text(raw, found);
        let meta = match self.keeping.transform.clone() {
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
        let pinned = match &self.keeping.pin {
            None => None,
            Some(pin) => match catch_unwind(AssertUnwindSafe(|| pin(&text))) {
                Ok(Ok(object)) => Some(object),
                Ok(Err(error)) => return broken(&error),
                Err(_) => return broken("the projection panicked"),
            },
        };
        let body = if self.keeping.text {
            Body::Plain(Arc::new(text))
        } else {
            Body::Dropped
        };
        Arrival::Object(Arc::new(Entry::new(meta, body, pinned)))
    }

    /// The object's text without `managedFields`, unless somebody wants to see them, and with the type that items of a list leave out.
    fn text(&self, raw: &[u8], found: &Scanned<'_>) -> Vec<u8> {
        let KindName { api_version, kind } = &self.kind;
        let (mut parts, mut kept) = (Vec::<&[u8]>::with_capacity(9), 0);
        if found.kind.is_empty() || !found.has_api_version {
            // A named object has members, so a comma is in place.
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
            Some(range) if !self.keeping.managed_fields => range.clone(),
            _ => nothing,
        };
        parts.extend([&raw[kept..cut.start], &raw[cut.end..]]);
        parts.concat()
    }
}

//! From the bytes of an object to its entry: `managedFields` and a user's transform go here, exactly once.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
};

use serde_json::Value;

use crate::{
    entry::{Body, Entry},
    key::ObjectKey,
    kind::KindName,
    meta::Interner,
    packing::Packer,
    scan::{Cursor, Scanned},
    settings::Keeping,
};

/// Objects that arrived lately stay plain up to this many bytes: one that changes often is never packed.
const FRESH_BYTES: usize = 8 << 20;

/// What stays plain when it is quiet. A kind that has no more than this is never packed.
const QUIET_BYTES: usize = 256 << 10;

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
    packer: Packer,
    scratch: Vec<u8>,
    /// Oldest first. An entry that is gone weighs until it is looked at.
    fresh: VecDeque<(Weak<Entry>, usize)>,
    fresh_bytes: usize,
}

impl Ingest {
    pub(crate) fn new(kind: KindName, keeping: Keeping) -> Self {
        Self {
            kind,
            keeping,
            interner: Interner::default(),
            packer: Packer::new(),
            scratch: Vec::new(),
            fresh: VecDeque::new(),
            fresh_bytes: 0,
        }
    }

    /// Takes an object that is to be stored.
    pub(crate) fn take(&mut self, raw: &[u8], found: &Scanned<'_>) -> Arrival {
        let arrival = self.make(raw, found);
        if let Arrival::Object(entry) = &arrival {
            self.admit(entry);
        }
        arrival
    }

    /// Takes an object that is only to be told of, since it is gone.
    pub(crate) fn make(&mut self, raw: &[u8], found: &Scanned<'_>) -> Arrival {
        let key = (!found.name.is_empty())
            .then(|| ObjectKey::namespaced(self.interner.intern(&found.namespace), &*found.name));
        let broken = |error: &str| {
            let key = key.clone().filter(|_| found.kind != "Table");
            let error = error.to_owned();
            Arrival::Broken(Broken { key, error })
        };
        if found.kind == "Table" {
            return broken("it is a table");
        }
        if key.is_none() {
            return broken("it has no metadata.name");
        }
        self.write(raw, found);
        let meta = match self.keeping.transform.clone() {
            None => self.interner.meta(found),
            Some(transform) => {
                let transformed = catch_unwind(AssertUnwindSafe(|| -> Result<_, serde_json::Error> {
                    let mut object: Value = serde_json::from_slice(&self.scratch)?;
                    transform(&mut object);
                    serde_json::to_vec(&object)
                }));
                match transformed {
                    Ok(Ok(text)) => self.scratch = text,
                    Ok(Err(error)) => return broken(&error.to_string()),
                    Err(_) => return broken("the transform panicked"),
                }
                match Cursor::new(&self.scratch).object() {
                    Ok(now) if now.name == found.name && now.namespace == found.namespace => {
                        self.interner.meta(&now)
                    }
                    _ => return broken("the transform changed its name"),
                }
            }
        };
        let pinned = match &self.keeping.pin {
            None => None,
            Some(pin) => match catch_unwind(AssertUnwindSafe(|| pin(&self.scratch))) {
                Ok(Ok(object)) => Some(object),
                Ok(Err(error)) => return broken(&error),
                Err(_) => return broken("the projection panicked"),
            },
        };
        let body = if self.keeping.text {
            Body::Plain(self.scratch.as_slice().into())
        } else {
            Body::Dropped
        };
        Arrival::Object(Arc::new(Entry::new(meta, body, pinned)))
    }

    /// The object's text without `managedFields`, and with the type that items of a list leave out.
    fn write(&mut self, raw: &[u8], found: &Scanned<'_>) {
        let text = &mut self.scratch;
        text.clear();
        let KindName { api_version, kind } = &self.kind;
        let mut kept = 0;
        if found.kind.is_empty() || !found.has_api_version {
            // A named object has members, so a comma is in place.
            kept = raw.iter().position(|byte| *byte == b'{').map_or(0, |at| at + 1);
            text.push(b'{');
            if !found.has_api_version {
                text.extend_from_slice(format!(r#""apiVersion":"{api_version}","#).as_bytes());
            }
            if found.kind.is_empty() {
                text.extend_from_slice(format!(r#""kind":"{kind}","#).as_bytes());
            }
        }
        match &found.managed_fields {
            Some(cut) => {
                text.extend_from_slice(&raw[kept..cut.start]);
                text.extend_from_slice(&raw[cut.end..]);
            }
            None => text.extend_from_slice(&raw[kept..]),
        }
    }

    fn admit(&mut self, entry: &Arc<Entry>) {
        if !self.keeping.text {
            return;
        }
        let bytes = entry.bytes();
        self.fresh.push_back((Arc::downgrade(entry), bytes));
        self.fresh_bytes += bytes;
        if self.fresh_bytes > FRESH_BYTES {
            self.pack_down_to(FRESH_BYTES, usize::MAX);
        }
    }

    /// It is quiet: packs some of what is fresh, and says whether there is more to do.
    pub(crate) fn pack_some(&mut self, at_most: usize) -> bool {
        self.pack_down_to(QUIET_BYTES, at_most);
        self.fresh_bytes > QUIET_BYTES
    }

    fn pack_down_to(&mut self, bytes: usize, mut at_most: usize) {
        while self.fresh_bytes > bytes && at_most > 0 {
            if self.packer.wants_samples() {
                let plain: Vec<_> = self
                    .fresh
                    .iter()
                    .filter_map(|(entry, _)| entry.upgrade()?.plain())
                    .take(4096)
                    .collect();
                self.packer.train(plain.iter().map(|text| &**text));
            }
            let Some((entry, weight)) = self.fresh.pop_front() else {
                return;
            };
            self.fresh_bytes -= weight;
            if let Some(entry) = entry.upgrade()
                && let Some(plain) = entry.plain()
            {
                entry.pack(self.packer.pack(&plain));
                at_most -= 1;
            }
        }
    }

    /// How many dictionaries were trained.
    pub(crate) fn dictionaries(&self) -> u32 {
        self.packer.trained()
    }
}

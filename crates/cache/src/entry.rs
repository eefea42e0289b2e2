//! The stored form of one object, and how it is read.
//!
//! ```text
//!   Entry ── Meta                       always in memory
//!         ├─ Body: Plain ─► Packed      JSON without managedFields; plain until it is packed
//!         │        Dropped              a projection stores none
//!         ├─ pinned                     the object itself, or its projection, depending on the settings
//!         └─ decoded objects            recently read ones, within the budget of `DecodedCache`
//! ```

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{meta::Meta, packing::Packed};

pub(crate) type AnyObject = Arc<dyn Any + Send + Sync>;

/// Decodes an object from its JSON.
pub(crate) type Decode<T> = fn(&[u8]) -> Result<T, String>;

/// One state of an object. Only its representation changes, never its content.
pub(crate) struct Entry {
    pub(crate) meta: Meta,
    representation: Mutex<Representation>,
    /// The first object stays decoded, whatever the budget.
    is_pinned: bool,
    /// It was read since [`DecodedCache`](crate::decoded::DecodedCache) last checked.
    recently_read: AtomicBool,
    /// The decode error was logged.
    pub(crate) error_logged: AtomicBool,
}

struct Representation {
    body: Body,
    /// The decoded object; nearly always an object is read as one type only.
    object: Option<AnyObject>,
    /// The object decoded as further types.
    others: Option<Box<Others>>,
}

#[derive(Default)]
struct Others(Vec<AnyObject>);

#[derive(Clone)]
pub(crate) enum Body {
    Plain(Arc<Vec<u8>>),
    Packed(Packed),
    Dropped,
}

/// A decoded object, and the cost of decoding it.
pub(crate) struct Decoded<T> {
    pub(crate) object: Arc<T>,
    pub(crate) elapsed: Duration,
    pub(crate) text_bytes: usize,
}

impl Representation {
    fn objects(&self) -> impl Iterator<Item = &AnyObject> {
        let others = self.others.iter().flat_map(|others| &others.0);
        self.object.iter().chain(others)
    }
}

impl Entry {
    pub(crate) fn new(meta: Meta, body: Body, pinned: Option<AnyObject>) -> Self {
        let form = Representation {
            body,
            object: pinned,
            others: None,
        };
        Self {
            meta,
            is_pinned: form.object.is_some(),
            representation: Mutex::new(form),
            recently_read: AtomicBool::new(false),
            error_logged: AtomicBool::new(false),
        }
    }

    /// Returns the object if it is in memory as a `T`.
    pub(crate) fn decoded<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let form = self.representation.lock();
        let found = Arc::clone(form.objects().find(|object| object.is::<T>())?);
        drop(form);
        if !self.recently_read.load(Ordering::Relaxed) {
            self.recently_read.store(true, Ordering::Relaxed);
        }
        found.downcast().ok()
    }

    /// Decodes the object. The caller stores it with [`DecodedCache::insert`](crate::decoded::DecodedCache::insert).
    pub(crate) fn decode<T: Send + Sync + 'static>(&self, decode: Decode<T>) -> Result<Decoded<T>, String> {
        let start = Instant::now();
        let body = self.representation.lock().body.clone();
        let (object, text_bytes) = match body {
            Body::Plain(text) => (decode(&text)?, text.len()),
            Body::Packed(packed) => {
                let text = packed.unpack();
                (decode(&text)?, text.len())
            }
            Body::Dropped => return Err("only a projection of the object is stored".to_owned()),
        };
        Ok(Decoded {
            object: Arc::new(object),
            elapsed: start.elapsed(),
            text_bytes,
        })
    }

    /// Returns the object's JSON; `None` if only a projection is stored.
    pub(crate) fn text(&self) -> Option<Arc<Vec<u8>>> {
        let body = self.representation.lock().body.clone();
        match body {
            Body::Plain(text) => Some(text),
            Body::Packed(packed) => Some(Arc::new(packed.unpack())),
            Body::Dropped => None,
        }
    }

    /// Returns the JSON if it is not packed yet.
    pub(crate) fn plain(&self) -> Option<Arc<Vec<u8>>> {
        match &self.representation.lock().body {
            Body::Plain(text) => Some(Arc::clone(text)),
            Body::Packed(_) | Body::Dropped => None,
        }
    }

    pub(crate) fn pack(&self, packed: Packed) {
        let plain = std::mem::replace(&mut self.representation.lock().body, Body::Packed(packed));
        // Free it after the lock is released.
        drop(plain);
    }

    /// Returns the size of the JSON, plain or packed; 0 for a projection, whose size is unknown.
    pub(crate) fn bytes(&self) -> usize {
        match &self.representation.lock().body {
            Body::Plain(text) => text.len(),
            Body::Packed(packed) => packed.len(),
            Body::Dropped => 0,
        }
    }

    /// Stores a decoded object; `false` if there is one of that type already.
    pub(crate) fn keep_decoded(&self, object: AnyObject) -> bool {
        let mut form = self.representation.lock();
        if form
            .objects()
            .any(|known| (**known).type_id() == (*object).type_id())
        {
            return false;
        }
        match form.object {
            None => form.object = Some(object),
            Some(_) => form.others.get_or_insert_default().0.push(object),
        }
        true
    }

    /// Drops the decoded objects.
    pub(crate) fn drop_decoded(&self) {
        let mut form = self.representation.lock();
        let object = if self.is_pinned { None } else { form.object.take() };
        let others = form.others.take();
        drop(form);
        // Free them after the lock is released.
        drop((object, others));
    }

    /// Returns whether the entry was read since the last call.
    pub(crate) fn take_recently_read(&self) -> bool {
        self.recently_read.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_size_does_not_grow() {
        assert_eq!(size_of::<Entry>(), 184);
    }
}

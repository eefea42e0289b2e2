//! What is kept of one object, and how it is read.
//!
//! ```text
//!   Entry ── Meta                       always at hand
//!         ├─ Body: Plain ─► Packed      JSON without managedFields; plain while it is fresh
//!         │        Dropped              a projection keeps none
//!         ├─ pinned                     the object itself, or its projection, if the settings say so
//!         └─ decoded objects            those that somebody read lately, within the budget of `Hot`
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

/// How a view reads an object from its JSON.
pub(crate) type Decode<T> = fn(&[u8]) -> Result<T, String>;

/// One object in one state. Only the form of it changes, never what it says.
pub(crate) struct Entry {
    pub(crate) meta: Meta,
    form: Mutex<Form>,
    /// The form's first object stays, whatever the budget.
    is_pinned: bool,
    /// Somebody read it since [`Hot`](crate::hot::Hot) last asked.
    touched: AtomicBool,
    /// That it does not decode has been reported.
    pub(crate) reported: AtomicBool,
}

struct Form {
    body: Body,
    /// Nearly always an object is read as one type, and then it is here.
    object: Option<AnyObject>,
    /// What it was read as besides: one for each type.
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

/// An object that was decoded, and what it took.
pub(crate) struct Decoded<T> {
    pub(crate) object: Arc<T>,
    pub(crate) took: Duration,
    pub(crate) text_bytes: usize,
}

impl Form {
    fn known(&self) -> impl Iterator<Item = &AnyObject> {
        let others = self.others.iter().flat_map(|others| &others.0);
        self.object.iter().chain(others)
    }
}

impl Entry {
    pub(crate) fn new(meta: Meta, body: Body, pinned: Option<AnyObject>) -> Self {
        let form = Form {
            body,
            object: pinned,
            others: None,
        };
        Self {
            meta,
            is_pinned: form.object.is_some(),
            form: Mutex::new(form),
            touched: AtomicBool::new(false),
            reported: AtomicBool::new(false),
        }
    }

    /// The object, if it is at hand as a `T`.
    pub(crate) fn at_hand<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let form = self.form.lock();
        let found = Arc::clone(form.known().find(|object| object.is::<T>())?);
        drop(form);
        if !self.touched.load(Ordering::Relaxed) {
            self.touched.store(true, Ordering::Relaxed);
        }
        found.downcast().ok()
    }

    /// The object decoded anew. The caller keeps it; see [`Hot::keep`](crate::hot::Hot::keep).
    pub(crate) fn decode<T: Send + Sync + 'static>(&self, decode: Decode<T>) -> Result<Decoded<T>, String> {
        let start = Instant::now();
        let body = self.form.lock().body.clone();
        let (object, text_bytes) = match body {
            Body::Plain(text) => (decode(&text)?, text.len()),
            Body::Packed(packed) => {
                let text = packed.unpack();
                (decode(&text)?, text.len())
            }
            Body::Dropped => return Err("only a projection of it is kept".to_owned()),
        };
        Ok(Decoded {
            object: Arc::new(object),
            took: start.elapsed(),
            text_bytes,
        })
    }

    /// The object's JSON; `None` if only a projection is kept.
    pub(crate) fn text(&self) -> Option<Arc<Vec<u8>>> {
        let body = self.form.lock().body.clone();
        match body {
            Body::Plain(text) => Some(text),
            Body::Packed(packed) => Some(Arc::new(packed.unpack())),
            Body::Dropped => None,
        }
    }

    /// The JSON while it is fresh.
    pub(crate) fn plain(&self) -> Option<Arc<Vec<u8>>> {
        match &self.form.lock().body {
            Body::Plain(text) => Some(Arc::clone(text)),
            Body::Packed(_) | Body::Dropped => None,
        }
    }

    pub(crate) fn pack(&self, packed: Packed) {
        let plain = std::mem::replace(&mut self.form.lock().body, Body::Packed(packed));
        // Readers do not wait until it is freed.
        drop(plain);
    }

    /// Bytes of JSON that it takes, plain or packed; 0 for a projection, whose size nobody knows.
    pub(crate) fn bytes(&self) -> usize {
        match &self.form.lock().body {
            Body::Plain(text) => text.len(),
            Body::Packed(packed) => packed.len(),
            Body::Dropped => 0,
        }
    }

    /// Keeps a decoded object; `false` if it has one of that type already.
    pub(crate) fn warm(&self, object: AnyObject) -> bool {
        let mut form = self.form.lock();
        if form
            .known()
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

    /// Lets the decoded objects go.
    pub(crate) fn cool(&self) {
        let mut form = self.form.lock();
        let object = if self.is_pinned { None } else { form.object.take() };
        let others = form.others.take();
        drop(form);
        // Readers do not wait until they are freed.
        drop((object, others));
    }

    /// Whether somebody has read it since this was last asked.
    pub(crate) fn was_read(&self) -> bool {
        self.touched.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_no_larger_than_a_hundred_thousand_of_them_may_be() {
        assert_eq!(size_of::<Entry>(), 184);
    }
}

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
    collections::VecDeque,
    sync::{
        Arc, Weak,
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
    /// Somebody read it since the clock of [`Hot`] last came by.
    touched: AtomicBool,
    /// That it does not decode has been reported.
    pub(crate) reported: AtomicBool,
}

struct Form {
    body: Body,
    pinned: Option<AnyObject>,
    /// One for each type that it was read as.
    decoded: Vec<AnyObject>,
}

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

impl Entry {
    pub(crate) fn new(meta: Meta, body: Body, pinned: Option<AnyObject>) -> Self {
        let form = Form {
            body,
            pinned,
            decoded: Vec::new(),
        };
        Self {
            meta,
            form: Mutex::new(form),
            touched: AtomicBool::new(false),
            reported: AtomicBool::new(false),
        }
    }

    /// The object, if it is at hand as a `T`.
    pub(crate) fn at_hand<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let form = self.form.lock();
        let mut known = form.decoded.iter().chain(&form.pinned);
        let found = known.find(|object| object.is::<T>())?;
        let found = Arc::clone(found);
        drop(form);
        if !self.touched.load(Ordering::Relaxed) {
            self.touched.store(true, Ordering::Relaxed);
        }
        found.downcast().ok()
    }

    /// The object decoded anew. The caller keeps it; see [`Hot::keep`].
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

    fn cool(&self) {
        self.form.lock().decoded = Vec::new();
    }
}

/// The decoded objects that stay, within a budget. Which go is decided as a clock does it: one that was read since
/// the hand last came by stays for another round.
pub(crate) struct Hot {
    budget: usize,
    clock: Mutex<Clock>,
}

#[derive(Default)]
struct Clock {
    /// Each with its weight. An entry that is gone weighs until the hand comes by.
    entries: VecDeque<(Weak<Entry>, usize)>,
    used: usize,
}

impl Hot {
    pub(crate) fn new(budget: usize) -> Self {
        Self {
            budget,
            clock: Mutex::default(),
        }
    }

    /// Keeps `object` with its entry while there is room.
    pub(crate) fn keep(&self, entry: &Arc<Entry>, object: AnyObject, weight: usize) {
        if weight > self.budget {
            return;
        }
        {
            let mut form = entry.form.lock();
            // Two readers may have decoded it at once.
            if form
                .decoded
                .iter()
                .any(|known| (**known).type_id() == (*object).type_id())
            {
                return;
            }
            form.decoded.push(object);
        }
        let mut clock = self.clock.lock();
        clock.entries.push_back((Arc::downgrade(entry), weight));
        clock.used += weight;
        while clock.used > self.budget {
            let Some((entry, weight)) = clock.entries.pop_front() else {
                return;
            };
            match entry.upgrade() {
                Some(read) if read.touched.swap(false, Ordering::Relaxed) => {
                    clock.entries.push_back((entry, weight));
                }
                gone_or_cold => {
                    clock.used -= weight;
                    if let Some(cold) = gone_or_cold {
                        cold.cool();
                    }
                }
            }
        }
    }

    /// Bytes in use, as far as can be told.
    pub(crate) fn used(&self) -> usize {
        self.clock.lock().used
    }
}

/// A decoded object takes several times its JSON: optional fields, tree nodes, an allocation for each text. Measured
/// on pods it was 3.7 times.
pub(crate) fn weight_of<T>(text: usize) -> usize {
    text * 4 + size_of::<T>()
}

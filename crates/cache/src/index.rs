//! Finding objects by what they say: definitions of indexes, and the writer's part in keeping them exact.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    entry::{Decode, Entry},
    key::ObjectKey,
    meta::Uid,
    path::FieldPath,
    snapshot::{Bucket, Buckets, Slot},
};

/// By what objects are found. An object may have several values, or none.
#[derive(Clone)]
pub struct IndexBy<T> {
    source: Source,
    view: PhantomData<fn() -> T>,
}

#[derive(Clone)]
pub(crate) enum Source {
    Label(Box<str>),
    Owner,
    Field(FieldPath),
    Function(Function),
}

type Function = Arc<dyn Fn(&Entry) -> Vec<Box<str>> + Send + Sync>;

impl<T: Send + Sync + 'static> IndexBy<T> {
    /// By the value of a label. Decodes nothing.
    pub fn label(name: impl Into<Box<str>>) -> Self {
        Self::from(Source::Label(name.into()))
    }

    /// By the UID of each owner. Decodes nothing.
    pub fn owner() -> Self {
        Self::from(Source::Owner)
    }

    /// By the values of a field. Decodes nothing.
    pub fn field(path: FieldPath) -> Self {
        Self::from(Source::Field(path))
    }

    fn from(source: Source) -> Self {
        Self {
            source,
            view: PhantomData,
        }
    }

    pub(crate) fn function(
        decode: Decode<T>,
        values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        Self::from(Source::Function(Arc::new(move |entry| {
            let object = entry
                .at_hand::<T>()
                .or_else(|| entry.decode(decode).ok().map(|decoded| decoded.object));
            let values = object.map(|object| values(&object)).unwrap_or_default();
            values.into_iter().map(String::into_boxed_str).collect()
        })))
    }
}

/// An index of a cache, to be asked through its [`Lister`](crate::Lister).
pub struct Index<T> {
    pub(crate) definition: Arc<Definition>,
    view: PhantomData<fn() -> T>,
}

impl<T> Clone for Index<T> {
    fn clone(&self) -> Self {
        Self::of(Arc::clone(&self.definition))
    }
}

impl<T> Index<T> {
    pub(crate) fn of(definition: Arc<Definition>) -> Self {
        Self {
            definition,
            view: PhantomData,
        }
    }
}

pub(crate) struct Definition {
    pub(crate) id: u64,
    source: Source,
}

impl Definition {
    pub(crate) fn new<T>(by: IndexBy<T>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            source: by.source,
        }
    }

    /// Whether this index is already the one that is asked for; two functions are never known to be the same.
    pub(crate) fn answers<T>(&self, by: &IndexBy<T>) -> bool {
        match (&self.source, &by.source) {
            (Source::Label(one), Source::Label(other)) => one == other,
            (Source::Field(one), Source::Field(other)) => one == other,
            (Source::Owner, Source::Owner) => true,
            (Source::Function(one), Source::Function(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    pub(crate) fn is_for_field(&self, path: &FieldPath) -> bool {
        matches!(&self.source, Source::Field(own) if own == path)
    }

    /// The values of an object, each once. A function that panics gives none, and hurts nobody else.
    pub(crate) fn values(&self, entry: &Entry) -> Box<[Arc<str>]> {
        let mut values: Vec<Arc<str>> = match &self.source {
            Source::Label(name) => entry.meta.label(name).map(Arc::from).into_iter().collect(),
            Source::Owner => entry
                .meta
                .owners()
                .iter()
                .map(|uid| owner_value(*uid).into())
                .collect(),
            Source::Field(path) => {
                let values = entry.text().map(|text| path.values(&text)).unwrap_or_default();
                values.into_iter().map(Arc::from).collect()
            }
            Source::Function(function) => {
                let outcome = catch_unwind(AssertUnwindSafe(|| function(entry)));
                let values = outcome.unwrap_or_else(|_| {
                    tracing::error!(object = %entry.meta.key, "an index function panicked; the object is not in its index");
                    Vec::new()
                });
                values.into_iter().map(Arc::from).collect()
            }
        };
        values.sort_unstable();
        values.dedup();
        values.into()
    }

    /// What to look up for a value that a user gave.
    pub(crate) fn asked<'a>(&self, value: &'a str) -> Cow<'a, str> {
        match self.source {
            Source::Owner => owner_value(Uid::from(value)).into(),
            _ => value.into(),
        }
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Label(name) => write!(f, "label {name}"),
            Source::Owner => f.write_str("owner"),
            Source::Field(path) => write!(f, "field {path}"),
            Source::Function(_) => f.write_str("function"),
        }
    }
}

fn owner_value(uid: Uid) -> String {
    uid.to_string()
}

/// The writer's side of one index.
pub(crate) struct Kept {
    pub(crate) definition: Arc<Definition>,
    /// The values under which each object stands, since the old state may be costly to ask again.
    values: HashMap<ObjectKey, Box<[Arc<str>]>>,
}

impl Kept {
    pub(crate) fn new(definition: Arc<Definition>) -> Self {
        Self {
            definition,
            values: HashMap::new(),
        }
    }

    /// Puts the object, which is in this slot, where it belongs now; `None` takes it out.
    pub(crate) fn update(&mut self, buckets: &mut Buckets, key: &ObjectKey, now: Option<(Slot, &Entry)>) {
        let new = now
            .map(|(_, entry)| self.definition.values(entry))
            .unwrap_or_default();
        let old = if new.is_empty() {
            self.values.remove(key)
        } else {
            match self.values.get_mut(key) {
                Some(known) if *known == new => return,
                Some(known) => Some(std::mem::replace(known, new.clone())),
                None => self.values.insert(key.clone(), new.clone()),
            }
        };
        let old = old.unwrap_or_default();
        for value in old.iter().filter(|value| !new.contains(value)) {
            if let Some(bucket) = buckets.get_mut(value) {
                bucket.remove(key);
                if bucket.is_empty() {
                    buckets.remove(value);
                }
            }
        }
        let Some((slot, _)) = now else { return };
        for value in new.iter().filter(|value| !old.contains(value)) {
            match buckets.get_mut(value) {
                Some(bucket) => drop(bucket.insert(key.clone(), slot)),
                None => drop(buckets.insert(Arc::clone(value), Bucket::unit(key.clone(), slot))),
            }
        }
    }
}

//! Indexes: their definitions, and the writer's side of keeping them up to date.

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
    field_path::FieldPath,
    key::ObjectKey,
    meta::Uid,
    snapshot::{Bucket, Buckets, Slot},
};

/// Computes the index values of an object, which may have several or none.
#[derive(Clone)]
pub struct Indexer<T> {
    source: IndexSource,
    view: PhantomData<fn() -> T>,
}

#[derive(Clone)]
pub(crate) enum IndexSource {
    Label(Box<str>),
    Owner,
    Field(FieldPath),
    Function(Function),
}

type Function = Arc<dyn Fn(&Entry) -> Vec<Box<str>> + Send + Sync>;

impl<T: Send + Sync + 'static> Indexer<T> {
    /// Indexes by the value of a label. Decodes nothing.
    pub fn label(name: impl Into<Box<str>>) -> Self {
        Self::from(IndexSource::Label(name.into()))
    }

    /// Indexes by the UID of each owner reference. Decodes nothing.
    pub fn owner() -> Self {
        Self::from(IndexSource::Owner)
    }

    /// Indexes by the values of a field. Decodes nothing.
    pub fn field(path: FieldPath) -> Self {
        Self::from(IndexSource::Field(path))
    }

    fn from(source: IndexSource) -> Self {
        Self {
            source,
            view: PhantomData,
        }
    }

    pub(crate) fn function(
        decode: Decode<T>,
        values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        Self::from(IndexSource::Function(Arc::new(move |entry| {
            let object = entry
                .decoded::<T>()
                .or_else(|| entry.decode(decode).ok().map(|decoded| decoded.object));
            let values = object.map(|object| values(&object)).unwrap_or_default();
            values.into_iter().map(String::into_boxed_str).collect()
        })))
    }
}

/// An index of a cache, for queries with its [`Lister`](crate::Lister).
pub struct Index<T> {
    pub(crate) definition: Arc<IndexDefinition>,
    view: PhantomData<fn() -> T>,
}

impl<T> Clone for Index<T> {
    fn clone(&self) -> Self {
        Self::of(Arc::clone(&self.definition))
    }
}

impl<T> Index<T> {
    pub(crate) fn of(definition: Arc<IndexDefinition>) -> Self {
        Self {
            definition,
            view: PhantomData,
        }
    }
}

pub(crate) struct IndexDefinition {
    pub(crate) id: u64,
    source: IndexSource,
}

impl IndexDefinition {
    pub(crate) fn new<T>(by: Indexer<T>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            source: by.source,
        }
    }

    /// Returns whether this index has the same source. Two functions never count as the same.
    pub(crate) fn has_source<T>(&self, by: &Indexer<T>) -> bool {
        match (&self.source, &by.source) {
            (IndexSource::Label(one), IndexSource::Label(other)) => one == other,
            (IndexSource::Field(one), IndexSource::Field(other)) => one == other,
            (IndexSource::Owner, IndexSource::Owner) => true,
            (IndexSource::Function(one), IndexSource::Function(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    pub(crate) fn is_for_field(&self, path: &FieldPath) -> bool {
        matches!(&self.source, IndexSource::Field(own) if own == path)
    }

    /// Returns the distinct values of an object; none if a function panics.
    pub(crate) fn values(&self, entry: &Entry) -> Box<[Arc<str>]> {
        let mut values: Vec<Arc<str>> = match &self.source {
            IndexSource::Label(name) => entry.meta.label(name).map(Arc::from).into_iter().collect(),
            IndexSource::Owner => entry
                .meta
                .owners()
                .iter()
                .map(|uid| owner_value(*uid).into())
                .collect(),
            IndexSource::Field(path) => {
                let values = entry.text().map(|text| path.values(&text)).unwrap_or_default();
                values.into_iter().map(Arc::from).collect()
            }
            IndexSource::Function(function) => {
                let outcome = catch_unwind(AssertUnwindSafe(|| function(entry)));
                let values = outcome.unwrap_or_else(|_| {
                    tracing::error!(object = %entry.meta.key, "index function panicked; the object is not in the index");
                    Vec::new()
                });
                values.into_iter().map(Arc::from).collect()
            }
        };
        values.sort_unstable();
        values.dedup();
        values.into()
    }

    /// Converts a user's value to the form that is stored in the index.
    pub(crate) fn lookup_value<'a>(&self, value: &'a str) -> Cow<'a, str> {
        match self.source {
            IndexSource::Owner => owner_value(Uid::from(value)).into(),
            _ => value.into(),
        }
    }
}

impl fmt::Debug for IndexDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            IndexSource::Label(name) => write!(f, "label {name}"),
            IndexSource::Owner => f.write_str("owner"),
            IndexSource::Field(path) => write!(f, "field {path}"),
            IndexSource::Function(_) => f.write_str("function"),
        }
    }
}

fn owner_value(uid: Uid) -> String {
    uid.to_string()
}

/// The writer's state of one index.
pub(crate) struct IndexState {
    pub(crate) definition: Arc<IndexDefinition>,
    /// The current values of each object: computing them again from the old state may be expensive.
    values: HashMap<ObjectKey, Box<[Arc<str>]>>,
}

impl IndexState {
    pub(crate) fn new(definition: Arc<IndexDefinition>) -> Self {
        Self {
            definition,
            values: HashMap::new(),
        }
    }

    /// Updates the buckets for an object in this slot; `None` removes it.
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

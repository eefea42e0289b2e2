//! Changes of objects, as delivered to subscribers.

use std::sync::Arc;

use crate::{
    cached_object::CachedObject, core::Core, entry::Decode, entry::Entry, key::ObjectKey, meta::Meta,
};

/// A change of one object. Objects are shared, immutable, and decoded on demand.
pub enum Change<T> {
    /// The object exists in a new state.
    Applied {
        /// The state that was delivered before; `None` if the object is new to this subscriber.
        old: Option<CachedObject<T>>,
        /// The current state.
        new: CachedObject<T>,
        /// The object existed when the subscription (or the cache) started and has not changed since.
        initial: bool,
    },
    /// The object was deleted.
    Deleted {
        /// The state that was delivered before; the last state if the subscriber never received the object.
        old: CachedObject<T>,
        /// The last known state; newer than `old` if changes were missed, or if the deletion itself changed it.
        last: CachedObject<T>,
        /// How the deletion became known.
        deletion: Deletion,
    },
}

/// How a deletion became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// By a `DELETED` watch event or an own write; the last known state is the final one.
    Observed,
    /// By a relist that does not contain the object. It may have changed before it was deleted (client-go's tombstone).
    Inferred,
}

impl<T> Change<T> {
    /// Returns the object's key.
    pub fn key(&self) -> &ObjectKey {
        self.meta().key()
    }

    /// Returns the metadata of the newest known state, which needs no decoding.
    pub fn meta(&self) -> &Meta {
        self.latest().meta()
    }

    /// Returns the newest known state.
    pub fn latest(&self) -> &CachedObject<T> {
        match self {
            Self::Applied { new, .. } => new,
            Self::Deleted { last, .. } => last,
        }
    }

    /// Returns the state that was delivered before; `None` if the object is new to this subscriber.
    pub fn old(&self) -> Option<&CachedObject<T>> {
        match self {
            Self::Applied { old, .. } => old.as_ref(),
            Self::Deleted { old, .. } => Some(old),
        }
    }

    /// Returns whether the object was deleted and created again since its last delivered state.
    pub fn is_recreated(&self) -> bool {
        matches!(self, Self::Applied { old: Some(old), new, .. } if old.meta().uid() != new.meta().uid())
    }

    /// Returns whether nothing changed and this is a resync.
    pub fn is_resync(&self) -> bool {
        matches!(self, Self::Applied { old: Some(old), new, .. } if old.is_same(new))
    }
}

impl<T> Clone for Change<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Applied { old, new, initial } => Self::Applied {
                old: old.clone(),
                new: new.clone(),
                initial: *initial,
            },
            Self::Deleted { old, last, deletion } => Self::Deleted {
                old: old.clone(),
                last: last.clone(),
                deletion: *deletion,
            },
        }
    }
}

/// A change that is not bound to a type yet.
#[derive(Clone)]
pub(crate) enum RawChange {
    Applied {
        old: Option<Arc<Entry>>,
        new: Arc<Entry>,
        initial: bool,
    },
    Deleted {
        /// `None`: the subscriber never received the object.
        old: Option<Arc<Entry>>,
        last: Arc<Entry>,
        how: Deletion,
    },
}

impl RawChange {
    pub(crate) fn key(&self) -> &ObjectKey {
        match self {
            Self::Applied { new: entry, .. } | Self::Deleted { last: entry, .. } => &entry.meta.key,
        }
    }

    /// Merges `self`, which was not delivered yet, with `later`.
    ///
    /// An object that was created and deleted in between yields a deletion: the controller that created it must learn
    /// that it is gone.
    pub(crate) fn merge_later(self, later: Self) -> Self {
        let (Self::Applied { old: seen, .. } | Self::Deleted { old: seen, .. }) = self;
        match later {
            Self::Applied { new, .. } => Self::Applied {
                old: seen,
                new,
                initial: false,
            },
            Self::Deleted { last, how, .. } => Self::Deleted { old: seen, last, how },
        }
    }

    /// Returns whether the object was deleted before the subscriber received it.
    pub(crate) fn is_unseen_deletion(&self) -> bool {
        matches!(self, Self::Deleted { old: None, .. })
    }

    pub(crate) fn read_as<T>(self, core: &Arc<Core>, decode: Decode<T>) -> Change<T> {
        let stored = |entry| CachedObject::new(entry, core, decode);
        match self {
            Self::Applied { old, new, initial } => Change::Applied {
                old: old.map(stored),
                new: stored(new),
                initial,
            },
            Self::Deleted {
                old,
                last,
                how: deletion,
            } => Change::Deleted {
                old: stored(old.unwrap_or_else(|| Arc::clone(&last))),
                last: stored(last),
                deletion,
            },
        }
    }
}

//! What happened to an object, as a subscriber sees it.

use std::sync::Arc;

use crate::{core::Core, entry::Decode, entry::Entry, key::ObjectKey, meta::Meta, stored::Stored};

/// One object changed. Objects are shared and immutable, and decoded when somebody asks.
pub enum Change<T> {
    /// The object exists in a new state.
    Applied {
        /// The state that this subscriber saw before; `None` if it sees the object for the first time.
        old: Option<Stored<T>>,
        /// The state now.
        new: Stored<T>,
        /// The object was there when the subscription (or the cache) started and has not changed since.
        initial: bool,
    },
    /// The object is gone.
    Deleted {
        /// The state that this subscriber saw before; for an object that came and went unseen, its last state.
        old: Stored<T>,
        /// Its last known state; newer than `old` if changes were missed, or if the deletion itself changed it.
        last: Stored<T>,
        /// How we know.
        how: Deletion,
    },
}

/// How a deletion became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The server said so; the last state is the true last state.
    Seen,
    /// The object was missing when the kind was listed again; it may have changed unseen before it went.
    Inferred,
}

impl<T> Change<T> {
    /// Which object.
    pub fn key(&self) -> &ObjectKey {
        self.meta().key()
    }

    /// What is known of the object's newest state without decoding it.
    pub fn meta(&self) -> &Meta {
        self.stored().meta()
    }

    /// The object's newest known state.
    pub fn stored(&self) -> &Stored<T> {
        match self {
            Self::Applied { new, .. } => new,
            Self::Deleted { last, .. } => last,
        }
    }

    /// The state that this subscriber saw before; `None` if it sees the object for the first time.
    pub fn old(&self) -> Option<&Stored<T>> {
        match self {
            Self::Applied { old, .. } => old.as_ref(),
            Self::Deleted { old, .. } => Some(old),
        }
    }

    /// Whether the object was deleted and created again under the same name since the subscriber last saw it.
    pub fn recreated(&self) -> bool {
        matches!(self, Self::Applied { old: Some(old), new, .. } if old.meta().uid() != new.meta().uid())
    }

    /// Whether nothing changed, and the subscriber asked to be told of everything again.
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
            Self::Deleted { old, last, how } => Self::Deleted {
                old: old.clone(),
                last: last.clone(),
                how: *how,
            },
        }
    }
}

/// A change before anybody says what type the objects are to be read as.
#[derive(Clone)]
pub(crate) enum RawChange {
    Applied {
        old: Option<Arc<Entry>>,
        new: Arc<Entry>,
        initial: bool,
    },
    Deleted {
        /// `None`: it came and went before the subscriber looked.
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

    /// What a subscriber sees that missed `self` and now gets `later`.
    ///
    /// An object that came and went in between is told of too: whoever made it, and counts on it, must hear that it is gone.
    pub(crate) fn followed_by(self, later: Self) -> Self {
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

    /// Whether the subscriber never saw the object, and now it is gone.
    pub(crate) fn is_fleeting(&self) -> bool {
        matches!(self, Self::Deleted { old: None, .. })
    }

    pub(crate) fn read_as<T>(self, core: &Arc<Core>, decode: Decode<T>) -> Change<T> {
        let stored = |entry| Stored::new(entry, core, decode);
        match self {
            Self::Applied { old, new, initial } => Change::Applied {
                old: old.map(stored),
                new: stored(new),
                initial,
            },
            Self::Deleted { old, last, how } => Change::Deleted {
                old: stored(old.unwrap_or_else(|| Arc::clone(&last))),
                last: stored(last),
                how,
            },
        }
    }
}

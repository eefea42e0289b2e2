//! What happened to an object, as a subscriber sees it.

use std::sync::Arc;

use kube::Resource;

use crate::key::ObjectKey;

/// One object changed. Objects are shared and immutable.
#[derive(Debug)]
pub enum Change<K> {
    /// The object exists in a new state.
    Applied {
        /// The state that this subscriber saw before; `None` if it sees the object for the first time.
        old: Option<Arc<K>>,
        /// The state now.
        new: Arc<K>,
        /// The object was there when the subscription (or the cache) started and has not changed since.
        initial: bool,
    },
    /// The object is gone.
    Deleted {
        /// Its last known state.
        last: Arc<K>,
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

impl<K: Resource> Change<K> {
    /// Which object.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::of(&**self.object())
    }

    /// The object's newest known state.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Applied { new, .. } => new,
            Self::Deleted { last, .. } => last,
        }
    }

    /// Whether the object was deleted and created again under the same name since the subscriber last saw it.
    pub fn recreated(&self) -> bool {
        match self {
            Self::Applied {
                old: Some(old), new, ..
            } => old.meta().uid != new.meta().uid,
            _ => false,
        }
    }

    /// What a subscriber sees that missed `self` and now gets `later`, or `None` if there is nothing to see: it
    /// never knew the object, and the object is gone.
    pub(crate) fn followed_by(self, later: Self) -> Option<Self> {
        Some(match (self, later) {
            (Self::Applied { old, .. }, Self::Applied { new, .. }) => Self::Applied {
                old,
                new,
                initial: false,
            },
            (Self::Deleted { last, .. }, Self::Applied { new, .. }) => Self::Applied {
                old: Some(last),
                new,
                initial: false,
            },
            (Self::Applied { old: None, .. }, Self::Deleted { .. }) => return None,
            (_, deleted @ Self::Deleted { .. }) => deleted,
        })
    }
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Applied { old, new, initial } => Self::Applied {
                old: old.clone(),
                new: Arc::clone(new),
                initial: *initial,
            },
            Self::Deleted { last, how } => Self::Deleted {
                last: Arc::clone(last),
                how: *how,
            },
        }
    }
}

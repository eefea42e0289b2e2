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
        /// The state that this subscriber saw before.
        old: Arc<K>,
        /// Its last known state; newer than `old` if changes were missed, or if the deletion itself changed it.
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

    /// The state that this subscriber saw before; `None` if it sees the object for the first time.
    pub fn old(&self) -> Option<&Arc<K>> {
        match self {
            Self::Applied { old, .. } => old.as_ref(),
            Self::Deleted { old, .. } => Some(old),
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
        let seen = match self {
            Self::Applied { old, .. } => old,
            Self::Deleted { old, .. } => Some(old),
        };
        match later {
            Self::Applied { new, .. } => Some(Self::Applied {
                old: seen,
                new,
                initial: false,
            }),
            Self::Deleted { last, how, .. } => Some(Self::Deleted {
                old: seen?,
                last,
                how,
            }),
        }
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
            Self::Deleted { old, last, how } => Self::Deleted {
                old: Arc::clone(old),
                last: Arc::clone(last),
                how: *how,
            },
        }
    }
}

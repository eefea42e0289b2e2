//! What a request does to an object.

/// What a request does to an object, as a validator sees it.
///
/// ```
/// use windlass_webhook::Change;
///
/// let change = Change::Updated { old: &1, new: &2 };
/// assert_eq!((change.old_object(), change.new_object(), change.object()), (Some(&1), Some(&2), &2));
/// ```
#[derive(Debug, PartialEq, Eq)]
pub enum Change<'a, T> {
    /// A new object. On CONNECT, the options of the connection.
    Created(&'a T),
    /// An existing object gets new content.
    Updated {
        /// The stored object.
        old: &'a T,
        /// The object after the request.
        new: &'a T,
    },
    /// An object is deleted. Validators see it only if they [ask](crate::AdmissionWebhook::on_delete).
    Deleted(&'a T),
}

impl<'a, T> Change<'a, T> {
    /// The object before the request; `None` for a new one.
    pub fn old_object(&self) -> Option<&'a T> {
        match self {
            Self::Created(_) => None,
            Self::Updated { old, .. } | Self::Deleted(old) => Some(old),
        }
    }

    /// The object after the request; `None` for a deletion.
    pub fn new_object(&self) -> Option<&'a T> {
        match self {
            Self::Created(new) | Self::Updated { new, .. } => Some(new),
            Self::Deleted(_) => None,
        }
    }

    /// The object after the request, or the one that is deleted.
    pub fn object(&self) -> &'a T {
        match self {
            Self::Created(object) | Self::Updated { new: object, .. } | Self::Deleted(object) => object,
        }
    }
}

impl<T> Clone for Change<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Change<'_, T> {}

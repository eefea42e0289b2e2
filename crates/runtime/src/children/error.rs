//! Errors of declarative reconciles.

use windlass_cache::{GroupVersionKind, ObjectKey};

/// Why the children or the status of an object could not be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// An object of that name exists and is not a child. It is never touched.
    #[error("{} {key} already exists and is not managed by {owner}: rename one of them, or delete it", kind.kind)]
    AlreadyExists {
        /// The child's kind.
        kind: GroupVersionKind,
        /// The child's key.
        key: ObjectKey,
        /// The kind of the parent.
        owner: String,
    },
    /// The controller does not own the kind, so it would not watch the child.
    #[error("controller `{controller}` has a child of kind {} but does not own the kind: add `.owns::<{}>()` to it", kind.kind, kind.kind)]
    NotOwned {
        /// The child's kind.
        kind: GroupVersionKind,
        /// The controller's name.
        controller: String,
    },
    /// Owner references do not cross namespaces; the child would be garbage collected at once.
    #[error("{} {key} cannot be a child of an object in {}: it must be in the same namespace", kind.kind, namespace.as_deref().map_or_else(|| "no namespace".to_owned(), |name| format!("namespace `{name}`")))]
    NamespaceMismatch {
        /// The child's kind.
        kind: GroupVersionKind,
        /// The child's key.
        key: ObjectKey,
        /// The namespace of the parent.
        namespace: Option<String>,
    },
    /// A child must be applied [after](crate::Desired::after) one that was not added before it.
    #[error("{child} is declared after {predecessor}, which is not a child: add it before")]
    UnknownPredecessor {
        /// Kind and key of the child.
        child: String,
        /// Kind and name of the missing child.
        predecessor: String,
    },
    /// The child has no name.
    #[error("a child of kind {} has no name: set `metadata.name`", kind.kind)]
    NoName {
        /// The child's kind.
        kind: GroupVersionKind,
    },
    /// The child's name would change the request path.
    #[error("invalid name {name:?} of a {}: use letters, digits, `-` and `.`", kind.kind)]
    InvalidName {
        /// The child's kind.
        kind: GroupVersionKind,
        /// The invalid name.
        name: String,
    },
    /// The child or the status cannot be serialized.
    #[error("cannot serialize {what}: {cause}")]
    Serialization {
        /// The child or status.
        what: String,
        /// The serialization error.
        cause: String,
    },
}

//! What can be wrong with a child.

use windlass_cache::{KindName, ObjectKey};

/// Why an object's children or status are not as they should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// An object of that name is there, and it is somebody else's. It is never touched.
    #[error("{} {key} already exists and is not managed by {owner}: rename one of them, or delete it", kind.kind)]
    Exists {
        /// The child's kind.
        kind: KindName,
        /// Which child.
        key: ObjectKey,
        /// The kind of the object that wants it.
        owner: String,
    },
    /// The controller does not own the kind, and would not see what becomes of the child.
    #[error("controller `{controller}` wants a {} and does not own the kind: add `.owns::<{}>()` to it", kind.kind, kind.kind)]
    NotOwned {
        /// The child's kind.
        kind: KindName,
        /// The controller's name.
        controller: String,
    },
    /// Owner references do not cross namespaces, so that the child would be collected at once.
    #[error("{} {key} cannot be a child of an object in {}: it must be in the same namespace", kind.kind, namespace.as_deref().map_or_else(|| "no namespace".to_owned(), |name| format!("namespace `{name}`")))]
    Elsewhere {
        /// The child's kind.
        kind: KindName,
        /// Which child.
        key: ObjectKey,
        /// The namespace of the object that wants it.
        namespace: Option<String>,
    },
    /// A child without a name.
    #[error("a child of kind {} has no name: set `metadata.name`", kind.kind)]
    Nameless {
        /// The child's kind.
        kind: KindName,
    },
    /// A name that is no part of a path: the request would be about something else.
    #[error("`{name}` cannot be the name of a {}: it must be letters, digits, `-` and `.`", kind.kind)]
    Misnamed {
        /// The child's kind.
        kind: KindName,
        /// What it should be called.
        name: String,
    },
    /// The author's type does not serialise.
    #[error("{what} does not serialise: {cause}")]
    Unserialisable {
        /// What it is.
        what: String,
        /// The reason.
        cause: String,
    },
}

//! Identities of syncs and queue keys, and the identity that is written on copies.

use std::{fmt, sync::Arc};

use crate::api::SourceKind;

/// Identifies a sync: a SecretSync, or an annotated object of the source namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SyncId {
    /// An annotated object of the source namespace.
    Annotated {
        /// Its kind.
        kind: SourceKind,
        /// Its name.
        name: Arc<str>,
    },
    /// A SecretSync.
    Declared {
        /// Its namespace.
        namespace: Arc<str>,
        /// Its name.
        name: Arc<str>,
    },
}

impl fmt::Display for SyncId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotated { kind, name } => write!(f, "annotated/{}/{name}", kind.name()),
            Self::Declared { namespace, name } => write!(f, "declared/{namespace}/{name}"),
        }
    }
}

impl SourceKind {
    /// All kinds.
    pub(crate) const ALL: [Self; 2] = [Self::Secret, Self::ConfigMap];

    /// The kind's name in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
        }
    }

    /// The resource name in URLs.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Secret => "secrets",
            Self::ConfigMap => "configmaps",
        }
    }
}

/// A queue key of the controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Job {
    /// The copies of a sync in a namespace.
    Copy { sync: SyncId, namespace: Arc<str> },
    /// A SecretSync's finalizer and status.
    Status { namespace: Arc<str>, name: Arc<str> },
    /// The object that shows the status of an annotated source.
    SourceStatus { kind: SourceKind, name: Arc<str> },
    /// An invalid consent annotation or label of a namespace.
    Consent { namespace: Arc<str> },
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy { sync, namespace } => write!(f, "{namespace}/{sync}"),
            Self::Status { namespace, name } => write!(f, "{namespace}/status/{name}"),
            Self::SourceStatus { kind, name } => write!(f, "status/{}/{name}", kind.name()),
            Self::Consent { namespace } => write!(f, "{namespace}/consent"),
        }
    }
}

/// The sync that wrote a copy, as recorded in its `synced-by` annotation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SyncOwner {
    /// An annotated object of this source namespace.
    Annotation { source_namespace: Arc<str> },
    /// The SecretSync with this UID.
    Sync {
        namespace: Arc<str>,
        name: Arc<str>,
        uid: Arc<str>,
    },
}

impl SyncOwner {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let mut next = || parts.next().filter(|part| !part.is_empty()).map(Arc::from);
        let front: Arc<str> = next()?;
        let mark = match &*front {
            "annotation" => Self::Annotation {
                source_namespace: next()?,
            },
            "SecretSync" => Self::Sync {
                namespace: next()?,
                name: next()?,
                uid: next()?,
            },
            _ => return None,
        };
        parts.next().is_none().then_some(mark)
    }

    /// Returns the sync's identity, for a copy of this kind and name.
    pub(crate) fn sync_id(&self, kind: SourceKind, name: &str) -> SyncId {
        match self {
            Self::Annotation { .. } => SyncId::Annotated {
                kind,
                name: name.into(),
            },
            Self::Sync { namespace, name, .. } => SyncId::Declared {
                namespace: Arc::clone(namespace),
                name: Arc::clone(name),
            },
        }
    }
}

impl fmt::Display for SyncOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotation { source_namespace } => write!(f, "annotation/{source_namespace}"),
            Self::Sync { namespace, name, uid } => write!(f, "SecretSync/{namespace}/{name}/{uid}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sync_owner_round_trips() {
        for text in ["annotation/secretsync", "SecretSync/team-a/tls/u-1"] {
            assert_eq!(SyncOwner::parse(text).expect(text).to_string(), text);
        }
        for strange in [
            "",
            "annotation",
            "annotation/",
            "annotation/a/b",
            "SecretSync/a/b",
            "x/y",
        ] {
            assert_eq!(SyncOwner::parse(strange), None, "{strange}");
        }
    }
}

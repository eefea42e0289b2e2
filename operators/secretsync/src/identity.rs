//! Identities of syncs and queue items, as they appear in queue keys and on copies.

use std::{fmt, sync::Arc};

use windlass::prelude::ObjectKey;

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

impl SyncId {
    fn parse(text: &str) -> Option<Self> {
        let (front, rest) = text.split_once('/')?;
        let (first, name) = rest.split_once('/')?;
        let name = name.into();
        match front {
            "annotated" => Some(Self::Annotated {
                kind: SourceKind::from_name(first)?,
                name,
            }),
            "declared" => Some(Self::Declared {
                namespace: first.into(),
                name,
            }),
            _ => None,
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

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A queue item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// The copies of a sync in a namespace.
    Copy { sync: SyncId, namespace: Arc<str> },
    /// A SecretSync's finalizer and status.
    Status { namespace: Arc<str>, name: Arc<str> },
    /// An invalid consent annotation or label of a namespace.
    Consent { namespace: Arc<str> },
}

impl Job {
    pub(crate) fn key(&self) -> ObjectKey {
        match self {
            Self::Copy { sync, namespace } => ObjectKey::namespaced(&**namespace, sync.to_string()),
            Self::Status { namespace, name } => ObjectKey::namespaced(&**namespace, format!("status/{name}")),
            Self::Consent { namespace } => ObjectKey::namespaced(&**namespace, "consent"),
        }
    }

    pub(crate) fn from_key(key: &ObjectKey) -> Option<Self> {
        let namespace: Arc<str> = key.namespace()?.into();
        if key.name() == "consent" {
            return Some(Self::Consent { namespace });
        }
        if let Some(name) = key.name().strip_prefix("status/") {
            let name = name.into();
            return Some(Self::Status { namespace, name });
        }
        let sync = SyncId::parse(key.name())?;
        Some(Self::Copy { sync, namespace })
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
    fn job_keys_round_trip() {
        let annotated = SyncId::Annotated {
            kind: SourceKind::ConfigMap,
            name: "ca.crt".into(),
        };
        let declared = SyncId::Declared {
            namespace: "team-a".into(),
            name: "tls".into(),
        };
        for sync in [annotated, declared] {
            let job = Job::Copy {
                sync,
                namespace: "shop".into(),
            };
            assert_eq!(Job::from_key(&job.key()), Some(job));
        }
        for job in [
            Job::Status {
                namespace: "team-a".into(),
                name: "tls".into(),
            },
            Job::Consent {
                namespace: "shop".into(),
            },
        ] {
            assert_eq!(Job::from_key(&job.key()), Some(job));
        }
        for strange in ["", "annotated", "annotated/Pod/x", "other/a/b"] {
            assert_eq!(
                Job::from_key(&ObjectKey::namespaced("a", strange)),
                None,
                "{strange}"
            );
        }
    }

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

//! The namespace and name of an object.

use std::{fmt, sync::Arc};

use kube::Resource;

/// The namespace and name of an object of a known kind.
///
/// Caches store objects under it, subscriptions coalesce changes by it, and work queues hold it. Keys are ordered by
/// namespace, then name, so the objects of one namespace are adjacent. Cloning costs two reference counts.
///
/// ```
/// use windlass_cache::ObjectKey;
///
/// assert_eq!(ObjectKey::namespaced("shop", "web").to_string(), "shop/web");
/// assert_eq!(ObjectKey::cluster_scoped("node-1").to_string(), "node-1");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Empty for cluster-scoped objects; Kubernetes allows no empty namespace name.
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl ObjectKey {
    /// Creates the key of an object in a namespace.
    pub fn namespaced(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Creates the key of a cluster-scoped object, such as a Node.
    pub fn cluster_scoped(name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: "".into(),
            name: name.into(),
        }
    }

    /// Returns the key of `object`. The name is empty for an object that has none yet.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            name: meta.name.as_deref().unwrap_or_default().into(),
        }
    }

    /// Returns the namespace, or `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        (!self.namespace.is_empty()).then_some(&*self.namespace)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

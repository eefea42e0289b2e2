//! Which object: its namespace and its name.

use std::{fmt, sync::Arc};

use kube::Resource;

/// The namespace and name of an object of a known kind.
///
/// This is what caches store under, subscriptions coalesce by, and work queues hold. Keys order by namespace,
/// then name, so the objects of one namespace lie next to each other. Cloning costs two reference counts.
///
/// ```
/// use windlass_cache::ObjectKey;
///
/// assert_eq!(ObjectKey::namespaced("shop", "web").to_string(), "shop/web");
/// assert_eq!(ObjectKey::cluster("node-1").to_string(), "node-1");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Empty for objects outside any namespace; Kubernetes allows no empty namespace name.
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl ObjectKey {
    /// The key of an object that lives in a namespace.
    pub fn namespaced(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The key of an object that lives outside any namespace, such as a Node.
    pub fn cluster(name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: "".into(),
            name: name.into(),
        }
    }

    /// The key of `object`. An object that was never on a server may have an empty name.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            name: meta.name.as_deref().unwrap_or_default().into(),
        }
    }

    /// The namespace, or `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        (!self.namespace.is_empty()).then_some(&*self.namespace)
    }

    /// The name.
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

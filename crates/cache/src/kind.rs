//! Which objects a cache holds: a kind and a scope.

use std::{any::TypeId, collections::BTreeSet, fmt};

use kube::Resource;
use serde::de::DeserializeOwned;

/// A Kubernetes type that can be cached. Every type that can be read with `kube::Api` is one.
pub trait Cacheable: Resource<Scope: 'static> + DeserializeOwned + Send + Sync + 'static {}

impl<K: Resource<Scope: 'static> + DeserializeOwned + Send + Sync + 'static> Cacheable for K {}

/// Returns whether `K` is statically known to be cluster-scoped.
pub fn is_cluster_scoped<K: Resource<Scope: 'static>>() -> bool {
    TypeId::of::<K::Scope>() == TypeId::of::<k8s_openapi::ClusterResourceScope>()
}

/// The API version and name of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupVersionKind {
    /// For example `apps/v1`, or `v1` for the core group.
    pub api_version: String,
    /// For example `Deployment`.
    pub kind: String,
}

impl GroupVersionKind {
    /// Returns the kind of `K`; `dynamic` is `()` for static types.
    pub fn of<K: Resource>(dynamic: &K::DynamicType) -> Self {
        Self {
            api_version: K::api_version(dynamic).into_owned(),
            kind: K::kind(dynamic).into_owned(),
        }
    }
}

impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind, self.api_version)
    }
}

/// Which objects of a kind are listed and watched. The default is all of them.
///
/// The server filters, so objects outside the scope cost nothing here. The cache cannot distinguish them from objects
/// that do not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WatchScope {
    /// `None`: all.
    pub(crate) namespaces: Option<BTreeSet<String>>,
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
    pub(crate) metadata_only: bool,
}

impl WatchScope {
    /// Selects every object of the kind, in every namespace.
    pub fn all() -> Self {
        Self::default()
    }

    /// Selects only objects in this namespace. Has no effect on cluster-scoped kinds.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespaces = Some(BTreeSet::from([namespace.into()]));
        self
    }

    /// Selects only objects in these namespaces, each with a watch of its own; for a controller without cluster-wide
    /// rights. The set can change later: [`Cache::set_namespaces`](crate::Cache::set_namespaces).
    #[must_use]
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.namespaces = Some(namespaces.into_iter().map(Into::into).collect());
        self
    }

    /// Returns the selected namespaces; `None` for all.
    pub fn selected_namespaces(&self) -> Option<&BTreeSet<String>> {
        self.namespaces.as_ref()
    }

    /// Returns the field selector, in the server's syntax; `None` for all objects.
    pub fn field_selector(&self) -> Option<&str> {
        self.fields.as_deref()
    }

    /// Requests only metadata from the server. The cache is separate from that of whole objects and can be read only as
    /// `PartialObjectMeta` or dynamically. Default: whole objects, of which metadata is one view.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// Selects only objects whose labels match a selector in the server's syntax (`app=web,tier!=cache`).
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Selects only objects whose fields match a selector in the server's syntax (`spec.nodeName=n1`).
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }
}

impl fmt::Display for WatchScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespaces {
            None => f.write_str("all namespaces")?,
            Some(namespaces) => {
                let names: Vec<_> = namespaces.iter().map(String::as_str).collect();
                write!(f, "namespaces {}", names.join("+"))?;
            }
        }
        for (what, selector) in [("labels", &self.labels), ("fields", &self.fields)] {
            if let Some(selector) = selector {
                write!(f, ", {what} {selector}")?;
            }
        }
        if self.metadata_only {
            f.write_str(", metadata only")?;
        }
        Ok(())
    }
}

//! What is cached: a kind, and which of its objects.

use std::{any::TypeId, collections::BTreeSet, fmt};

use kube::Resource;
use serde::de::DeserializeOwned;

/// A Kubernetes type that can be cached. Every type that can be read with `kube::Api` is one.
pub trait Cacheable: Resource<Scope: 'static> + DeserializeOwned + Send + Sync + 'static {}

impl<K: Resource<Scope: 'static> + DeserializeOwned + Send + Sync + 'static> Cacheable for K {}

/// Whether objects of `K` are known to live outside any namespace.
pub fn is_cluster_scoped<K: Resource<Scope: 'static>>() -> bool {
    TypeId::of::<K::Scope>() == TypeId::of::<k8s_openapi::ClusterResourceScope>()
}

/// The names of a kind, for messages and for addressing the API.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KindName {
    /// For example `apps/v1`, or `v1` for the core group.
    pub api_version: String,
    /// For example `Deployment`.
    pub kind: String,
}

impl KindName {
    /// The names of `K`; `dynamic` is `()` for types that know their kind at compile time.
    pub fn of<K: Resource>(dynamic: &K::DynamicType) -> Self {
        Self {
            api_version: K::api_version(dynamic).into_owned(),
            kind: K::kind(dynamic).into_owned(),
        }
    }
}

impl fmt::Display for KindName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind, self.api_version)
    }
}

/// Which objects of a kind are cached. The default is all of them.
///
/// The server filters, so what is not selected costs nothing here; it also cannot be told apart from what does
/// not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    /// `None`: all.
    pub(crate) namespaces: Option<BTreeSet<String>>,
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
    pub(crate) metadata_only: bool,
}

impl Selection {
    /// Every object of the kind, in every namespace.
    pub fn all() -> Self {
        Self::default()
    }

    /// Only objects in this namespace. Says nothing about kinds that live outside namespaces: of those, all.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespaces = Some(BTreeSet::from([namespace.into()]));
        self
    }

    /// Only objects in these namespaces, each with a watch of its own; for a controller without rights in the whole
    /// cluster. The set can change later: [`Cache::set_namespaces`](crate::Cache::set_namespaces).
    #[must_use]
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.namespaces = Some(namespaces.into_iter().map(Into::into).collect());
        self
    }

    /// Asks the server for metadata alone. Such a cache is one of its own: it can only be read as `PartialObjectMeta`
    /// or dynamically. Default: whole objects, of which metadata is one view.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// Only objects whose labels match, in the server's syntax (`app=web,tier!=cache`).
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Only objects whose fields match, in the server's syntax (`spec.nodeName=n1`).
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }
}

impl fmt::Display for Selection {
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

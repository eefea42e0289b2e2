//! What is cached: a kind, and which of its objects.

use std::{any::TypeId, fmt};

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
    pub(crate) namespace: Option<String>,
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
}

impl Selection {
    /// Every object of the kind, in every namespace.
    pub fn all() -> Self {
        Self::default()
    }

    /// Only objects in this namespace. Says nothing about kinds that live outside namespaces: of those, all.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
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

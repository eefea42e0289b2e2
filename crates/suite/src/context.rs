//! What a case gets.

use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use windlass_cluster::Cluster;

/// The shared cluster, and a namespace that is this case's own. The namespace is deleted after the case.
///
/// Cluster-scoped objects are shared with cases that run at the same time: derive their names from
/// [`Context::namespace`], and make the namespace their owner, so that a cluster that outlives the suite cleans up.
#[derive(Clone)]
pub struct Context {
    cluster: Arc<Cluster>,
    namespace: String,
}

impl Context {
    pub(crate) fn new(cluster: Arc<Cluster>, namespace: String) -> Self {
        Self { cluster, namespace }
    }

    /// The cluster, for example to make users.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// A client with the administrator's rights.
    pub fn client(&self) -> Client {
        self.cluster.client()
    }

    /// The name of this case's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Objects of one kind in this case's namespace, as the administrator.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
    {
        Api::namespaced(self.client(), &self.namespace)
    }
}

//! The context of a case: its cluster and its namespace.

use std::{
    io::Write as _,
    process::{Command, Stdio},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use k8s_openapi::{
    NamespaceResourceScope, api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Resource,
    api::{ObjectMeta, PostParams},
};
use windlass_cluster::{Backend, Cluster};
use windlass_runtime::Connection;

use crate::{Target, settings::Settings};

/// A cluster, and a namespace for this case only. The namespace is deleted after the case.
///
/// With [`Suite::cluster_per_case`](crate::Suite::cluster_per_case) the cluster is for this case only, too.
///
/// Otherwise, other cases use the cluster at the same time: derive the names of cluster-scoped objects from
/// [`Context::namespace`], and make the namespace their [owner](Context::owner), so that they are garbage collected with
/// it.
#[derive(Clone)]
pub struct Context {
    cluster: Arc<Cluster>,
    /// Part of the names of its namespaces.
    suite: String,
    namespace: String,
    /// Owner reference to the case's namespace.
    owner: OwnerReference,
    /// How to start another cluster, if each case has its own.
    cluster_source: Option<Arc<ClusterSource>>,
}

/// Starts clusters of one backend.
#[derive(Clone)]
pub(crate) struct ClusterSource {
    pub(crate) target: Target,
    pub(crate) settings: Settings,
}

impl ClusterSource {
    pub(crate) async fn start_cluster(&self) -> Result<Cluster, windlass_cluster::Error> {
        match self.target {
            Target::Embedded => self.settings.embedded.clone().start().await,
            Target::Real => self.settings.real.clone().start().await,
            Target::Existing => self.settings.existing.clone().connect().await,
        }
    }
}

impl Context {
    /// Creates a context with a new namespace.
    pub(crate) async fn create(
        cluster: Arc<Cluster>,
        suite: &str,
        cluster_source: Option<Arc<ClusterSource>>,
    ) -> anyhow::Result<Self> {
        let namespace = Namespace {
            metadata: ObjectMeta {
                generate_name: Some(format!("suite-{suite}-")),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let created = Api::<Namespace>::all(cluster.client())
            .create(&PostParams::default(), &namespace)
            .await
            .context("cannot create a namespace for the case")?;
        let namespace = created.metadata.name.context("the server named no namespace")?;
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Namespace".to_owned(),
            name: namespace.clone(),
            uid: created.metadata.uid.unwrap_or_default(),
            ..OwnerReference::default()
        };
        Ok(Self {
            cluster,
            suite: suite.to_owned(),
            namespace,
            owner,
            cluster_source,
        })
    }

    /// Returns a context with another new namespace, for a case that repeats a scenario from the start. The caller deletes
    /// the namespace. With [`Suite::cluster_per_case`](crate::Suite::cluster_per_case) it is on another new cluster, which
    /// is stopped with the context.
    pub async fn fresh(&self) -> anyhow::Result<Self> {
        let cluster = match &self.cluster_source {
            Some(origin) => Arc::new(origin.start_cluster().await?),
            None => Arc::clone(&self.cluster),
        };
        Self::create(cluster, &self.suite, self.cluster_source.clone()).await
    }

    /// Returns this context with another namespace, which the caller creates.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            ..self.clone()
        }
    }

    pub(crate) fn has_own_cluster(&self) -> bool {
        self.cluster_source.is_some()
    }

    /// Returns the cluster, for example to create users.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns a client with the administrator's rights.
    pub fn client(&self) -> Client {
        self.cluster.client()
    }

    /// Returns an administrator client as [`Connection`] creates it for programs, without automatic retries. `kube`'s
    /// default client retries an eviction that a disruption budget rejects fifteen times.
    pub async fn program_client(&self) -> anyhow::Result<Client> {
        if self.cluster.backend() == Backend::Embedded {
            return Ok(self.client());
        }
        let mut connection = Connection::default();
        connection.kubeconfig = Some(self.cluster.kubeconfig()?);
        Ok(connection.client().await?)
    }

    /// Returns the name of the case's namespace, or the one given to [`in_namespace`](Self::in_namespace).
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns an owner reference to the case's namespace, for cluster-scoped objects.
    pub fn owner(&self) -> OwnerReference {
        self.owner.clone()
    }

    /// Returns an administrator API for objects of one kind in the namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
    {
        Api::namespaced(self.client(), &self.namespace)
    }

    /// Runs `kubectl` as the administrator in the namespace, with `input` as standard input. Returns its standard output; if
    /// it fails, the error has its standard error.
    ///
    /// It waits on a blocking thread, so a paused clock does not advance meanwhile.
    pub async fn kubectl(&self, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        let home = tempfile::tempdir()?;
        let mut kubectl = Command::new(windlass_cluster::matching_kubectl()?);
        kubectl
            .args(arguments)
            .args(["--namespace", &self.namespace])
            .env_clear()
            // Ignore the user's configuration.
            .env("HOME", home.path())
            .env("KUBECONFIG", self.cluster.kubeconfig()?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let input = input.to_owned();
        let output = tokio::task::spawn_blocking(move || {
            let mut kubectl = kubectl.spawn()?;
            if let Some(mut stdin) = kubectl.stdin.take() {
                // kubectl may exit without reading its input.
                stdin.write_all(input.as_bytes()).ok();
            }
            kubectl.wait_with_output()
        });
        let output = output.await??;
        if !output.status.success() {
            bail!(
                "kubectl {arguments:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

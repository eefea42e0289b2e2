//! What a case gets.

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

/// The cluster, and a namespace that is this case's own. The namespace is deleted after the case.
///
/// Where the cases of a suite are [apart](crate::Suite::apart) the cluster is the case's own as well, and goes with it.
///
/// Cluster-scoped objects are shared with cases that run at the same time: derive their names from
/// [`Context::namespace`], and make the namespace their [owner](Context::owner), so that a cluster that outlives the suite
/// cleans up.
#[derive(Clone)]
pub struct Context {
    cluster: Arc<Cluster>,
    /// A part of its namespaces' names.
    suite: String,
    namespace: String,
    /// The namespace that was made for the case, to own things.
    owner: OwnerReference,
    /// Where another cluster comes from, if the case shares its own with nobody.
    apart: Option<Arc<Origin>>,
}

/// Where clusters come from.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) target: Target,
    pub(crate) settings: Settings,
}

impl Origin {
    pub(crate) async fn cluster(&self) -> Result<Cluster, windlass_cluster::Error> {
        match self.target {
            Target::Embedded => self.settings.embedded.clone().start().await,
            Target::Real => self.settings.real.clone().start().await,
            Target::Existing => self.settings.existing.clone().connect().await,
        }
    }
}

impl Context {
    /// With a new namespace.
    pub(crate) async fn create(
        cluster: Arc<Cluster>,
        suite: &str,
        apart: Option<Arc<Origin>>,
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
            apart,
        })
    }

    /// The same cluster, and one more namespace: for a case that does the same thing again and again from the beginning.
    /// It is the caller's to delete. Where cases are [apart](crate::Suite::apart) it is on one more cluster, which goes with
    /// it.
    pub async fn anew(&self) -> anyhow::Result<Self> {
        let cluster = match &self.apart {
            Some(origin) => Arc::new(origin.cluster().await?),
            None => Arc::clone(&self.cluster),
        };
        Self::create(cluster, &self.suite, self.apart.clone()).await
    }

    /// The same case, looking at another namespace, which is the caller's to make.
    #[must_use]
    pub fn within(&self, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            ..self.clone()
        }
    }

    pub(crate) fn is_apart(&self) -> bool {
        self.apart.is_some()
    }

    /// The cluster, for example to make users.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// A client with the administrator's rights.
    pub fn client(&self) -> Client {
        self.cluster.client()
    }

    /// The same as a program gets it from its options: one that repeats nothing by itself. `kube`'s own asks a disruption
    /// budget fifteen times before it tells of its no.
    pub async fn program_client(&self) -> anyhow::Result<Client> {
        if self.cluster.backend() == Backend::Embedded {
            return Ok(self.client());
        }
        let mut connection = Connection::default();
        connection.kubeconfig = Some(self.cluster.kubeconfig()?);
        Ok(connection.client().await?)
    }

    /// The name of this case's namespace, or of the one that it is looked at [within](Self::within).
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The namespace that was made for the case, as the owner of what lives outside of namespaces.
    pub fn owner(&self) -> OwnerReference {
        self.owner.clone()
    }

    /// Objects of one kind in this case's namespace, as the administrator.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
    {
        Api::namespaced(self.client(), &self.namespace)
    }

    /// Runs `kubectl` as the administrator in this case's namespace, with `input` for its `-f -`. What it prints; if it
    /// fails, what it complains of.
    ///
    /// A paused clock stands still meanwhile: whoever waits for a process does it on a thread of its own.
    pub async fn kubectl(&self, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        let home = tempfile::tempdir()?;
        let mut kubectl = Command::new(windlass_cluster::matching_kubectl()?);
        kubectl
            .args(arguments)
            .args(["--namespace", &self.namespace])
            .env_clear()
            // Nothing of the machine's owner plays a part.
            .env("HOME", home.path())
            .env("KUBECONFIG", self.cluster.kubeconfig()?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let input = input.to_owned();
        let output = tokio::task::spawn_blocking(move || {
            let mut kubectl = kubectl.spawn()?;
            if let Some(mut stdin) = kubectl.stdin.take() {
                // One that reads nothing may be gone before it is written to.
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

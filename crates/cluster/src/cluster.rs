//! [`Cluster`]: a running cluster, independent of its backend.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use kube::{Client, config::Kubeconfig};

use crate::{
    Error, Nodes,
    embedded::{Embedded, EmbeddedServer},
    existing::{Connection, Existing},
    kubeconfig,
    kubeconfig_copy::KubeconfigCopy,
    real::{ControlPlane, Real},
    sandbox::write_private,
    user::{KubeconfigSource, User},
};

/// A running cluster, with access as its administrator.
///
/// It owns what it started: dropping it stops the processes and removes the files, inside and outside of a tokio
/// runtime. Drop blocks for the few milliseconds that takes; [`Cluster::stop`] does the same without blocking.
#[must_use = "a cluster stops when it is dropped"]
pub struct Cluster {
    client: Client,
    version: String,
    state: BackendState,
    /// Numbers the files of [`Cluster::user`].
    users: AtomicUsize,
}

/// The resources that a [`Cluster`] owns, one variant per backend.
pub(crate) enum BackendState {
    Embedded(Arc<EmbeddedServer>),
    Real(Box<ControlPlane>),
    Existing(Box<Connection>),
}

/// The kind of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// An API server inside this process.
    Embedded,
    /// kube-apiserver and etcd, started by this process.
    Real,
    /// A cluster that was already running.
    Existing,
}

impl Cluster {
    /// Configures an API server inside this process: no binaries, no socket before [`Cluster::kubeconfig`] is called,
    /// ready in milliseconds.
    pub fn embedded() -> Embedded {
        Embedded::default()
    }

    /// Like [`Cluster::embedded`], with every UID, generated name and key derived from `seed`, so that a run can be
    /// repeated. Use it through [`Cluster::client`]: [`Cluster::kubeconfig`] returns an error, because keys that are
    /// derived from a seed can be guessed.
    pub fn seeded(seed: u64) -> Embedded {
        Embedded::seeded(seed)
    }

    /// Configures a real control plane: etcd and kube-apiserver, optionally with controllers and scheduler.
    pub fn real() -> Real {
        Real::default()
    }

    /// Configures a connection to the cluster of a kubeconfig, or to the one that this pod runs in.
    pub fn existing() -> Existing {
        Existing::default()
    }

    pub(crate) fn new(client: Client, version: String, state: BackendState) -> Self {
        Self {
            client,
            version,
            state,
            users: AtomicUsize::new(0),
        }
    }

    /// Returns a client with the administrator's rights (existing: with the rights of the kubeconfig's user).
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the path of an administrator kubeconfig, for `kubectl` and other programs. Only its owner may read it. It
    /// is removed with the cluster.
    ///
    /// An embedded cluster opens its socket on the first call, on the tokio runtime it was started on. Keep that runtime
    /// running while the other program works; do not block it by waiting for that program.
    pub fn kubeconfig(&self) -> Result<PathBuf, Error> {
        Ok(self.folder()?.join(kubeconfig::ADMIN_KUBECONFIG))
    }

    /// Copies the administrator's kubeconfig to `path`, for as long as the returned guard lives.
    ///
    /// The file is never half written. A file that another running process wrote this way is refused, with its process
    /// number, and so is one that windlass did not write. If this process is killed, the next cluster that writes a
    /// kubeconfig removes the copy. The kubeconfig of an existing cluster is not copied: it has one already.
    pub fn copy_kubeconfig(&self, path: &Path) -> Result<KubeconfigCopy, Error> {
        let from = self.kubeconfig()?;
        let kubeconfig = std::fs::read_to_string(&from).map_err(|source| Error::WriteKubeconfig {
            path: path.to_owned(),
            source,
        })?;
        match &self.state {
            BackendState::Embedded(in_process) => {
                let folder = in_process.folder()?;
                KubeconfigCopy::write(path, &kubeconfig, |copy| folder.record_copy(copy))
            }
            // No process is left to remember the copy: the folder of a real cluster is removed even if its owner is killed.
            BackendState::Real(_) => KubeconfigCopy::write(path, &kubeconfig, |_| Ok(())),
            BackendState::Existing(_) => Err(Error::CopyOfExisting),
        }
    }

    /// Returns access to this cluster as the authenticated user `name` in `groups`.
    ///
    /// This creates no API objects, and the user has only the rights of every authenticated user. Grant more with
    /// [`User::with_role`] and [`User::with_cluster_role`], or bind roles to the user or its groups.
    ///
    /// On an embedded cluster the user's client needs no socket, and its kubeconfig holds a client certificate. A real
    /// cluster signs a client certificate. On an existing cluster the kubeconfig's user impersonates `name`, and needs the
    /// right to do so.
    pub async fn user<G>(&self, name: &str, groups: G) -> Result<User, Error>
    where
        G: IntoIterator,
        G::Item: Into<String>,
    {
        if name.is_empty() {
            return Err(Error::EmptyUserName);
        }
        let groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        let number = self.users.fetch_add(1, Ordering::Relaxed);
        let file = format!("user-{number}.kubeconfig");
        let (client, access) = match &self.state {
            BackendState::Embedded(in_process) => {
                let client = in_process.client_as(name, &groups);
                (
                    client,
                    KubeconfigSource::on_demand(in_process, name, &groups, file),
                )
            }
            BackendState::Real(control_plane) => {
                self.write_access(control_plane.user(name, &groups)?, &file)
                    .await?
            }
            BackendState::Existing(connection) => {
                self.write_access(connection.user(name, &groups), &file).await?
            }
        };
        Ok(User::new(name.to_owned(), client, self.client(), access))
    }

    /// Returns the container logs of an embedded cluster, for tests to write to: its containers do not really run. `None`
    /// on other clusters.
    pub fn logs(&self) -> Option<windlass_apiserver::Logs> {
        match &self.state {
            BackendState::Embedded(in_process) => Some(in_process.logs()),
            BackendState::Real(_) | BackendState::Existing(_) => None,
        }
    }

    /// Returns the simulated nodes of an embedded cluster, to reboot, hang, add or remove them. `None` on other clusters,
    /// and on an embedded one without [`controllers`](Embedded::controllers).
    pub fn nodes(&self) -> Option<Nodes> {
        match &self.state {
            BackendState::Embedded(in_process) => Some(Nodes::new(in_process.machines()?, self.client())),
            BackendState::Real(_) | BackendState::Existing(_) => None,
        }
    }

    /// Returns the kind of this cluster.
    pub fn backend(&self) -> Backend {
        match self.state {
            BackendState::Embedded(_) => Backend::Embedded,
            BackendState::Real(_) => Backend::Real,
            BackendState::Existing(_) => Backend::Existing,
        }
    }

    /// Returns the API server's version, such as `v1.36.4`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Stops the cluster, and returns when all its processes have ended and its files are removed.
    pub async fn stop(self) {
        if let BackendState::Embedded(in_process) = &self.state {
            in_process.stop_controllers().await;
        }
        // The only error is a panic in drop, which the panic hook has reported.
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }

    fn folder(&self) -> Result<&Path, Error> {
        match &self.state {
            BackendState::Embedded(in_process) => Ok(in_process.folder()?.path()),
            BackendState::Real(control_plane) => Ok(control_plane.folder()),
            BackendState::Existing(connection) => Ok(connection.folder().path()),
        }
    }

    /// Writes a kubeconfig, and creates a client from it.
    async fn write_access(
        &self,
        kubeconfig: Kubeconfig,
        file: &str,
    ) -> Result<(Client, KubeconfigSource), Error> {
        let path = self.folder()?.join(file);
        write_private(&path, &kubeconfig::to_json(&kubeconfig))?;
        let mut config = kubeconfig::config(kubeconfig, &path.display().to_string()).await?;
        // Real clusters are on this machine: ignore proxies from the environment.
        if !matches!(self.state, BackendState::Existing(_)) {
            config.proxy_url = None;
        }
        Ok((kubeconfig::client(config)?, KubeconfigSource::Written(path)))
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("backend", &self.backend())
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Embedded => "embedded",
            Self::Real => "real",
            Self::Existing => "existing",
        })
    }
}

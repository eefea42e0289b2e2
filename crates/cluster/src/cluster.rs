//! The cluster as its users see it, whichever backend it has.

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
    embedded::{Embedded, InProcess},
    existing::{Connection, Existing},
    kubeconfig,
    real::{ControlPlane, Real},
    sandbox::write_private,
    user::{User, UserAccess},
};

/// A running cluster, and access to it as its administrator.
///
/// It owns what it started: dropping it stops the processes and removes the files, inside and outside of a tokio
/// runtime. Drop blocks for the few milliseconds that this takes; [`Cluster::stop`] does the same without blocking.
#[must_use = "a cluster stops when it is dropped"]
pub struct Cluster {
    client: Client,
    version: String,
    running: Running,
    /// Numbers the files of [`Cluster::user`].
    users: AtomicUsize,
}

/// What stands behind a [`Cluster`], one variant per backend.
pub(crate) enum Running {
    Embedded(Arc<InProcess>),
    Real(Box<ControlPlane>),
    Existing(Box<Connection>),
}

/// Which kind of cluster it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// An API server inside this process.
    Embedded,
    /// kube-apiserver and etcd, started by us.
    Real,
    /// A cluster that somebody else runs.
    Existing,
}

impl Cluster {
    /// An API server inside this process: no binaries, no socket unless asked for, ready in milliseconds.
    pub fn embedded() -> Embedded {
        Embedded::default()
    }

    /// The same with every uid, generated name and key fixed by `seed`, so that a run can be repeated. For tests that talk to
    /// it by [`Cluster::client`]: [`Cluster::kubeconfig`] refuses, since a key that follows from a seed can be guessed.
    pub fn seeded(seed: u64) -> Embedded {
        Embedded::seeded(seed)
    }

    /// A control plane of its own: etcd and kube-apiserver, and more on request.
    pub fn real() -> Real {
        Real::default()
    }

    /// The cluster of a kubeconfig, or the one this process is a pod of.
    pub fn existing() -> Existing {
        Existing::default()
    }

    pub(crate) fn new(client: Client, version: String, running: Running) -> Self {
        Self {
            client,
            version,
            running,
            users: AtomicUsize::new(0),
        }
    }

    /// A client with the administrator's rights (existing: with the rights of the kubeconfig's user).
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A kubeconfig file for the same, for `kubectl` and other programs. Only its owner may read it; it is removed with
    /// the cluster.
    ///
    /// An embedded cluster opens its socket on the first call, on the runtime that it was started on: keep that runtime
    /// running while the other program works, and do not block it by waiting for that program.
    pub fn kubeconfig(&self) -> Result<PathBuf, Error> {
        Ok(self.folder()?.join(kubeconfig::ADMINISTRATOR))
    }

    /// Somebody else's access to this cluster, as the authenticated user `name` in `groups`.
    ///
    /// Nothing is created in the API, and no right comes with it but what every authenticated user has: give it some with
    /// [`User::with_role`] and [`User::with_cluster_role`], or bind roles to it or its groups.
    ///
    /// An embedded cluster knows the user by its client, without a socket; its kubeconfig has a certificate. A real
    /// cluster signs a client certificate. On an existing one, our own user impersonates `name`, and needs the right to do so.
    pub async fn user<G>(&self, name: &str, groups: G) -> Result<User, Error>
    where
        G: IntoIterator,
        G::Item: Into<String>,
    {
        if name.is_empty() {
            return Err(Error::NamelessUser);
        }
        let groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        let number = self.users.fetch_add(1, Ordering::Relaxed);
        let file = format!("user-{number}.kubeconfig");
        let (client, access) = match &self.running {
            Running::Embedded(in_process) => {
                let client = in_process.client_of(name, &groups);
                (client, UserAccess::later(in_process, name, &groups, file))
            }
            Running::Real(control_plane) => self.access(control_plane.user(name, &groups)?, &file).await?,
            Running::Existing(connection) => self.access(connection.user(name, &groups), &file).await?,
        };
        Ok(User::new(name.to_owned(), client, self.client(), access))
    }

    /// What the containers of an embedded cluster's pods print: nobody runs them, so that a test says it. `None` on
    /// other clusters, whose kubelets know.
    pub fn logs(&self) -> Option<windlass_apiserver::Logs> {
        match &self.running {
            Running::Embedded(in_process) => Some(in_process.logs()),
            Running::Real(_) | Running::Existing(_) => None,
        }
    }

    /// The simulated nodes of an embedded cluster, to reboot, hang or add some. `None` on other clusters, and on an
    /// embedded one without [`controllers`](Embedded::controllers).
    pub fn nodes(&self) -> Option<Nodes> {
        match &self.running {
            Running::Embedded(in_process) => Some(Nodes::new(in_process.machines()?, self.client())),
            Running::Real(_) | Running::Existing(_) => None,
        }
    }

    /// Which kind of cluster this is.
    pub fn backend(&self) -> Backend {
        match self.running {
            Running::Embedded(_) => Backend::Embedded,
            Running::Real(_) => Backend::Real,
            Running::Existing(_) => Backend::Existing,
        }
    }

    /// The API server's version, such as `v1.36.4`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Stops what was started, and returns when no process and no file of it is left.
    pub async fn stop(self) {
        if let Running::Embedded(in_process) = &self.running {
            in_process.quiet().await;
        }
        // The error would be a panic of drop, which the panic hook has reported.
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }

    fn folder(&self) -> Result<&Path, Error> {
        match &self.running {
            Running::Embedded(in_process) => in_process.folder(),
            Running::Real(control_plane) => Ok(control_plane.folder()),
            Running::Existing(connection) => Ok(connection.folder()),
        }
    }

    /// Writes a kubeconfig, and makes the client of it.
    async fn access(&self, kubeconfig: Kubeconfig, file: &str) -> Result<(Client, UserAccess), Error> {
        let path = self.folder()?.join(file);
        write_private(&path, &kubeconfig::text(&kubeconfig))?;
        let mut config = kubeconfig::config(kubeconfig, &path.display().to_string()).await?;
        // Ours are on this machine, whatever the environment says of proxies.
        if !matches!(self.running, Running::Existing(_)) {
            config.proxy_url = None;
        }
        Ok((kubeconfig::client(config)?, UserAccess::Written(path)))
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

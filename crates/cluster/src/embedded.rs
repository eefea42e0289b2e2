//! The embedded backend: an API server inside this process.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
};

use kube::{Client, config::Kubeconfig};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tempfile::TempDir;
use tokio::{runtime::Handle, task::JoinHandle};
use windlass_apiserver::{Server, Tls};
use windlass_rights::Recorder;

use crate::{
    Cluster, Error,
    alive::{Alive, Settings, nodes::Machines},
    authority::Authority,
    cluster::Running,
    kubeconfig,
    sandbox::{private_folder, write_private},
    token::StaticToken,
};

/// The administrator of a cluster of ours, by name and by group.
const ADMINISTRATOR: (&str, &str) = ("admin", "system:masters");

/// Where API servers listen.
const CUSTOMARY_PORT: u16 = 6443;

/// How to start an embedded cluster; made by [`Cluster::embedded`] or [`Cluster::seeded`].
///
/// Without options: an empty API server in memory, reached by [`Cluster::client`] without a socket.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing runs before `start`"]
pub struct Embedded {
    address: Option<SocketAddr>,
    seed: Option<u64>,
    open: bool,
    tokens: Vec<StaticToken>,
    recorder: Option<Recorder>,
    alive: Option<Settings>,
}

impl Embedded {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self {
            seed: Some(seed),
            ..Self::default()
        }
    }

    /// Also runs what a control plane runs: owners' children are collected, namespaces empty themselves, Deployments get
    /// pods, and a scheduler looks for nodes. Turns the admission of service accounts on, and makes the Service
    /// `default/kubernetes`. Default: off, and objects stay as they were written.
    pub fn controllers(mut self) -> Self {
        self.alive.get_or_insert_default();
        self
    }

    /// Also runs so many simulated nodes, which take pods. Implies [`controllers`](Self::controllers).
    /// Default: none.
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.alive.get_or_insert_default().nodes = nodes;
        self
    }

    /// How much faster than real the nodes are: image pulls, container starts, probes, heartbeats. Default: everything
    /// that would take time happens at once.
    pub fn speed(mut self, times: f64) -> Self {
        self.alive.get_or_insert_default().speed = times;
        self
    }

    /// The port of 127.0.0.1 on which [`Cluster::kubeconfig`] serves. Default: a free one.
    pub fn port(self, port: u16) -> Self {
        self.listen((Ipv4Addr::LOCALHOST, port).into())
    }

    /// The address on which [`Cluster::kubeconfig`] serves; port 0 is a free one. Beyond 127.0.0.1 others can reach it,
    /// who need a certificate or token all the same. Default: a free port of 127.0.0.1.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// Lets every user do everything. Default: users have the rights that roles and bindings give them;
    /// [`Cluster::client`] and [`Cluster::kubeconfig`] are the administrator's either way.
    pub fn without_rbac(mut self) -> Self {
        self.open = true;
        self
    }

    /// Takes this bearer token as the user `name` in `groups`. Default: no token but those of service accounts.
    pub fn token<G>(mut self, token: &str, name: &str, groups: G) -> Self
    where
        G: IntoIterator,
        G::Item: Into<String>,
    {
        self.tokens.push(StaticToken::new(token, name, groups));
        self
    }

    /// Notes which rights which user uses. Default: nobody does. [`recorded`](crate::recorded) does the same
    /// on every backend, for one client.
    pub fn recorder(mut self, recorder: Recorder) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Starts the API server. It is ready at once.
    pub async fn start(self) -> Result<Cluster, Error> {
        let mut builder = self.seed.map_or_else(Server::builder, Server::seeded);
        if self.alive.is_some() {
            // What programs in pods look for. The socket may open later or never; then the port is the customary one.
            let port = self.address.map(|address| address.port());
            builder = builder.service(port.filter(|port| *port != 0).unwrap_or(CUSTOMARY_PORT));
        } else {
            // As on a real control plane without controllers, nobody makes service accounts.
            builder = builder.without_service_accounts();
        }
        if !self.open {
            builder = builder.rbac();
        }
        if let Some(recorder) = self.recorder {
            builder = builder.recorder(recorder);
        }
        for StaticToken { token, user, groups } in self.tokens {
            builder = builder.token(&token, windlass_apiserver::User::new(&user, groups));
        }
        let server = builder.build();
        let client = Client::new(server.clone(), "default");
        let version = client
            .apiserver_version()
            .await
            .map_err(|source| Error::Unreachable {
                server: "the embedded API server".to_owned(),
                source: Box::new(source),
            })?;
        let (mut authority, mut alive) = (None, None);
        if let Some(mut settings) = self.alive {
            // Pods are told whom to trust, so that the socket must be signed by just that authority, if it is ever opened.
            let made = Authority::new()?;
            settings.root_ca = Some(made.identity().certificate.into());
            authority = Some(Arc::new(made));
            let machines = Machines::default();
            alive = Some(Alive::start(client.clone(), &settings, &machines, &server.logs()));
            // A cluster that is there has nodes that take pods.
            machines.all_open().await;
        }
        let running = Running::Embedded(Arc::new(InProcess {
            server,
            alive: Mutex::new(alive),
            authority,
            address: self.address.unwrap_or((Ipv4Addr::LOCALHOST, 0).into()),
            runtime: Handle::current(),
            served: OnceLock::new(),
            serving: Mutex::new(()),
        }));
        Ok(Cluster::new(client, version.git_version, running))
    }
}

/// The server in this process, and its socket once somebody asked for one.
pub(crate) struct InProcess {
    server: Server,
    /// What acts on its objects; gone after a stop.
    alive: Mutex<Option<Alive>>,
    /// The authority that was told of before there is a socket.
    authority: Option<Arc<Authority>>,
    address: SocketAddr,
    /// Where the socket is served: the runtime that the cluster was started on.
    runtime: Handle,
    served: OnceLock<Served>,
    /// Held while the socket is opened, so that there is one.
    serving: Mutex<()>,
}

/// The server on a socket: for kubectl and other programs.
struct Served {
    url: String,
    authority: Arc<Authority>,
    folder: TempDir,
    task: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl InProcess {
    /// Ends what acts on the objects, and returns when nothing of it is left.
    pub(crate) async fn quiet(&self) {
        let alive = self.alive.lock().expect("nobody panics with it").take();
        if let Some(alive) = alive {
            alive.stop().await;
        }
    }

    /// The folder that the kubeconfigs are in. The first call opens the socket that they lead to.
    pub(crate) fn folder(&self) -> Result<&Path, Error> {
        Ok(self.served()?.folder.path())
    }

    pub(crate) fn machines(&self) -> Option<Machines> {
        let alive = self.alive.lock().expect("nobody panics with it");
        alive.as_ref().map(|alive| alive.machines().clone())
    }

    pub(crate) fn logs(&self) -> windlass_apiserver::Logs {
        self.server.logs()
    }

    /// A client that acts as a user, without a socket.
    pub(crate) fn client_of(&self, name: &str, groups: &[String]) -> Client {
        let user = windlass_apiserver::User::new(name, groups);
        Client::new(self.server.as_user(user), "default")
    }

    /// Writes a kubeconfig with which a user comes through the socket.
    pub(crate) fn write_access(&self, name: &str, groups: &[String], file: &str) -> Result<PathBuf, Error> {
        let served = self.served()?;
        let path = served.folder.path().join(file);
        if !path.exists() {
            write_private(&path, &kubeconfig::text(&served.access(name, groups)?))?;
        }
        Ok(path)
    }

    fn served(&self) -> Result<&Served, Error> {
        // A poisoned lock guards nothing that could be half done: the cell is set last.
        let _one_socket = self
            .serving
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(served) = self.served.get() {
            return Ok(served);
        }
        if self.server.is_seeded() {
            return Err(Error::SeededSocket);
        }
        let authority = match &self.authority {
            Some(authority) => Arc::clone(authority),
            None => Arc::new(Authority::new()?),
        };
        let served = Served::open(&self.server, self.address, &self.runtime, authority)?;
        Ok(self.served.get_or_init(|| served))
    }
}

impl Served {
    fn open(
        server: &Server,
        address: SocketAddr,
        runtime: &Handle,
        authority: Arc<Authority>,
    ) -> Result<Self, Error> {
        let taken = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(taken)?;
        listener.set_nonblocking(true).map_err(taken)?;
        let address = listener.local_addr().map_err(taken)?;
        let tls = tls(&authority, address.ip())?;
        let folder = private_folder(&std::env::temp_dir())?;
        let server = server.clone();
        let task = runtime.spawn(async move {
            let ended = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => server.serve(listener, tls, std::future::pending()).await,
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                tracing::error!(%error, %address, "the embedded API server stopped serving");
            }
        });
        // Who listens everywhere is here too.
        let reached = match address {
            everywhere if everywhere.ip().is_unspecified() => (Ipv4Addr::LOCALHOST, everywhere.port()).into(),
            here => here,
        };
        let socket = Self {
            url: format!("https://{reached}"),
            authority,
            folder,
            task,
        };
        let (user, group) = ADMINISTRATOR;
        let access = socket.access(user, &[group.to_owned()])?;
        write_private(
            &socket.folder.path().join(kubeconfig::ADMINISTRATOR),
            &kubeconfig::text(&access),
        )?;
        Ok(socket)
    }

    fn access(&self, name: &str, groups: &[String]) -> Result<Kubeconfig, Error> {
        let identity = self.authority.client(name, groups)?;
        Ok(kubeconfig::with_certificate(
            &self.url,
            &self.authority.identity().certificate,
            name,
            &identity,
        ))
    }
}

fn tls(authority: &Authority, address: IpAddr) -> Result<Tls, Error> {
    let own = authority.server(&[Ipv4Addr::new(10, 0, 0, 1).into(), address])?;
    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("made just now");
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).expect("made just now");
    let clients = vec![certificate(&authority.identity().certificate)];
    let tls = Tls::new(vec![certificate(&own.certificate)], key, clients);
    Ok(tls.expect("key and certificates were made for each other"))
}

//! The embedded backend: an API server inside this process.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock},
};

use kube::{Client, config::Kubeconfig};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::{runtime::Handle, task::JoinHandle};
use windlass_apiserver::{InProcessWebhook, Server, Tls};
use windlass_rights::Recorder;

use crate::{
    Cluster, Error,
    access_folder::AccessFolder,
    authority::Authority,
    cluster::BackendState,
    control_plane::{EmbeddedControlPlane, Settings, limitations, nodes::Machines},
    kubeconfig,
    sandbox::write_private,
    static_token::StaticToken,
};

/// User name and group of the administrator.
const ADMINISTRATOR: (&str, &str) = ("admin", "system:masters");

/// The usual port of API servers.
const DEFAULT_PORT: u16 = 6443;

/// Builder of an embedded cluster, from [`Cluster::embedded`] or [`Cluster::seeded`].
///
/// Default: an empty in-memory API server that [`Cluster::client`] reaches without a socket.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing runs before `start`"]
pub struct Embedded {
    address: Option<SocketAddr>,
    seed: Option<u64>,
    rbac_disabled: bool,
    tokens: Vec<StaticToken>,
    recorder: Option<Recorder>,
    control_plane: Option<Settings>,
    webhooks: Vec<(String, InProcessWebhook)>,
    webhook_addresses: Vec<(String, SocketAddr)>,
}

impl Embedded {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self {
            seed: Some(seed),
            ..Self::default()
        }
    }

    /// Also runs controllers and a scheduler: garbage collection, namespace deletion, Deployments, ReplicaSets,
    /// DaemonSets and more. Turns on service account admission, and creates the Service `default/kubernetes`.
    /// Default: off; nothing changes objects after they were written.
    pub fn controllers(mut self) -> Self {
        self.control_plane.get_or_insert_default();
        self
    }

    /// Also runs this number of simulated nodes, which run pods. Implies [`controllers`](Self::controllers).
    /// Default: 0.
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.control_plane.get_or_insert_default().nodes = nodes;
        self
    }

    /// Sets how much faster than real time image pulls, container starts, probes and heartbeats are. Default: they take
    /// no time.
    pub fn speed(mut self, times: f64) -> Self {
        self.control_plane.get_or_insert_default().speed = times;
        self
    }

    /// Sets the port of 127.0.0.1 that [`Cluster::kubeconfig`] opens. Default: a free one.
    pub fn port(self, port: u16) -> Self {
        self.listen((Ipv4Addr::LOCALHOST, port).into())
    }

    /// Sets the address that [`Cluster::kubeconfig`] opens; port 0 means a free one. Other addresses than 127.0.0.1 are
    /// reachable from other machines, but still require a certificate or token. Default: a free port of 127.0.0.1.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// Allows every user everything. Requests without a certificate or token are rejected then, since anyone who reaches
    /// the socket could send them. Default: users have the rights that roles and bindings grant. [`Cluster::client`] and [`Cluster::kubeconfig`] act as the administrator either way.
    pub fn without_rbac(mut self) -> Self {
        self.rbac_disabled = true;
        self
    }

    /// Accepts this bearer token as the user `name` in `groups`. Default: only service account tokens.
    pub fn token<G>(mut self, token: &str, name: &str, groups: G) -> Self
    where
        G: IntoIterator,
        G::Item: Into<String>,
    {
        self.tokens.push(StaticToken::new(token, name, groups));
        self
    }

    /// Records which rights each user uses. Default: off. [`record_rbac`](crate::record_rbac) does the same
    /// for one client, on every backend.
    pub fn recorder(mut self, recorder: Recorder) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Answers admission and conversion webhooks at this host in the process: without a socket, certificates or real time, so a
    /// test with a webhook stays deterministic on a paused clock. The host is that of the configuration's URL, or
    /// `name.namespace.svc` for a reference to a service, which need not exist. Default: the server connects to webhooks over
    /// HTTPS, to the host of their URL or the external name of their service.
    pub fn webhook(mut self, host: &str, webhook: InProcessWebhook) -> Self {
        self.webhooks.push((host.to_owned(), webhook));
        self
    }

    /// Connects to this address for webhooks at a host, such as `name.namespace.svc` for a reference to a service, which need
    /// not exist. Their certificate must still be for that host. This is how the server calls a program that runs beside the
    /// cluster and not in a pod. Default: the host of their URL, or the external name of their service.
    pub fn webhook_address(mut self, host: &str, address: SocketAddr) -> Self {
        self.webhook_addresses.push((host.to_owned(), address));
        self
    }

    /// Starts the cluster. It is ready when this returns, with all its nodes schedulable.
    pub async fn start(self) -> Result<Cluster, Error> {
        let mut builder = self.seed.map_or_else(Server::builder, Server::seeded);
        builder = builder.announce_limitations();
        if self.control_plane.is_some() {
            for limitation in limitations::missing_controllers() {
                builder = builder.limitation(limitation);
            }
            // Programs in pods look for the Service. The socket may open later or never, so a free port is not known yet.
            let port = self.address.map(|address| address.port());
            builder = builder.kubernetes_service(port.filter(|port| *port != 0).unwrap_or(DEFAULT_PORT));
        } else {
            // As on a real control plane without controllers, nothing creates service accounts.
            builder = builder.without_service_accounts();
        }
        builder = if self.rbac_disabled {
            builder.without_anonymous()
        } else {
            builder.rbac()
        };
        if let Some(recorder) = self.recorder {
            builder = builder.recorder(recorder);
        }
        for StaticToken { token, user, groups } in self.tokens {
            builder = builder.token(&token, windlass_apiserver::User::new(&user, groups));
        }
        for (host, webhook) in self.webhooks {
            builder = builder.webhook(&host, webhook);
        }
        for (host, address) in self.webhook_addresses {
            builder = builder.webhook_address(&host, address);
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
        let (mut authority, mut control_plane) = (None, None);
        if let Some(mut settings) = self.control_plane {
            // Pods get this CA certificate before the socket is opened, so the socket must use the same CA later.
            let made = Authority::new()?;
            settings.root_ca = Some(made.ca_certificate().certificate.into());
            authority = Some(Arc::new(made));
            let machines = Machines::default();
            control_plane = Some(EmbeddedControlPlane::start(
                client.clone(),
                &settings,
                &machines,
                &server.logs(),
            ));
            // Pods can be scheduled as soon as the caller has the cluster.
            machines.wait_until_all_schedulable().await;
        }
        let running = BackendState::Embedded(Arc::new(EmbeddedServer {
            server,
            control_plane: Mutex::new(control_plane),
            authority,
            address: self.address.unwrap_or((Ipv4Addr::LOCALHOST, 0).into()),
            runtime: Handle::current(),
            socket: OnceLock::new(),
            opening: Mutex::new(()),
        }));
        Ok(Cluster::new(client, version.git_version, running))
    }
}

/// The server in this process, and its socket once it was requested.
pub(crate) struct EmbeddedServer {
    server: Server,
    /// `None` without controllers, and after a stop.
    control_plane: Mutex<Option<EmbeddedControlPlane>>,
    /// The CA that pods were given before there was a socket.
    authority: Option<Arc<Authority>>,
    address: SocketAddr,
    /// The runtime that the cluster was started on, which serves the socket.
    runtime: Handle,
    socket: OnceLock<ServerSocket>,
    /// Held while the socket is opened, so that only one is.
    opening: Mutex<()>,
}

/// The server on a TLS socket, for kubectl and other programs.
struct ServerSocket {
    url: String,
    authority: Arc<Authority>,
    folder: AccessFolder,
    task: JoinHandle<()>,
}

impl Drop for ServerSocket {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl EmbeddedServer {
    /// Stops the controllers, and returns when they have ended.
    pub(crate) async fn stop_controllers(&self) {
        let control_plane = self.control_plane.lock().expect("no panic while locked").take();
        if let Some(control_plane) = control_plane {
            control_plane.stop().await;
        }
    }

    /// Returns the folder of the kubeconfigs. The first call opens the socket.
    pub(crate) fn folder(&self) -> Result<&AccessFolder, Error> {
        Ok(&self.socket()?.folder)
    }

    pub(crate) fn machines(&self) -> Option<Machines> {
        let control_plane = self.control_plane.lock().expect("no panic while locked");
        control_plane
            .as_ref()
            .map(|control_plane| control_plane.machines().clone())
    }

    pub(crate) fn logs(&self) -> windlass_apiserver::Logs {
        self.server.logs()
    }

    /// Returns a client that acts as a user, without a socket.
    pub(crate) fn client_as(&self, name: &str, groups: &[String]) -> Client {
        let user = windlass_apiserver::User::new(name, groups);
        Client::new(self.server.as_user(user), "default")
    }

    /// Writes a kubeconfig for a user who connects through the socket.
    pub(crate) fn write_kubeconfig(
        &self,
        name: &str,
        groups: &[String],
        file: &str,
    ) -> Result<PathBuf, Error> {
        let served = self.socket()?;
        let path = served.folder.path().join(file);
        if !path.exists() {
            write_private(&path, &kubeconfig::to_json(&served.kubeconfig(name, groups)?))?;
        }
        Ok(path)
    }

    fn socket(&self) -> Result<&ServerSocket, Error> {
        // A poisoned lock is fine: the cell is set last, so nothing is half done.
        let _one_socket = self
            .opening
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(served) = self.socket.get() {
            return Ok(served);
        }
        if self.server.is_seeded() {
            return Err(Error::SeededSocket);
        }
        let authority = match &self.authority {
            Some(authority) => Arc::clone(authority),
            None => Arc::new(Authority::new()?),
        };
        let served = ServerSocket::open(&self.server, self.address, &self.runtime, authority)?;
        Ok(self.socket.get_or_init(|| served))
    }
}

impl ServerSocket {
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
        let folder = AccessFolder::new()?;
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
        // An unspecified address such as 0.0.0.0 is reached through loopback.
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
        let access = socket.kubeconfig(user, &[group.to_owned()])?;
        write_private(
            &socket.folder.path().join(kubeconfig::ADMIN_KUBECONFIG),
            &kubeconfig::to_json(&access),
        )?;
        Ok(socket)
    }

    fn kubeconfig(&self, name: &str, groups: &[String]) -> Result<Kubeconfig, Error> {
        let identity = self.authority.issue_client(name, groups)?;
        Ok(kubeconfig::with_certificate(
            &self.url,
            &self.authority.ca_certificate().certificate,
            name,
            &identity,
        ))
    }
}

fn tls(authority: &Authority, address: IpAddr) -> Result<Tls, Error> {
    let own = authority.issue_server(&[Ipv4Addr::new(10, 0, 0, 1).into(), address])?;
    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("valid PEM");
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).expect("valid PEM");
    let clients = vec![certificate(&authority.ca_certificate().certificate)];
    let tls = Tls::new(vec![certificate(&own.certificate)], key, clients);
    Ok(tls.expect("key and certificate belong together"))
}

//! The real backend: etcd and kube-apiserver as child processes.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{Api, Client, config::Kubeconfig};
use rcgen::KeyPair;

use crate::{
    Cluster, Error,
    assets::Assets,
    authority::Authority,
    cluster::BackendState,
    kubeconfig,
    sandbox::{Deadline, Sandbox},
    static_token::StaticToken,
};

const ETCD: &str = "etcd";
const API_SERVER: &str = "kube-apiserver";
const CONTROLLER_MANAGER: &str = "kube-controller-manager";
const SCHEDULER: &str = "kube-scheduler";

/// The first address of `SERVICE_RANGE`, which the Service `kubernetes` gets.
const SERVICE_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVICE_RANGE: &str = "10.0.0.0/24";

/// Another process can take a free port before the server binds it. Losing that race this often has another cause.
const PORT_ATTEMPTS: usize = 5;
/// Timeout of one readiness request, so that the deadline and dead servers are noticed.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Builder of a real control plane, from [`Cluster::real`].
///
/// Default: etcd and kube-apiserver on a free port of the loopback interface, with RBAC. Nothing creates service accounts
/// then, so the admission plugin that requires them is off, as in envtest. Without controllers, deleted namespaces are
/// not emptied either, and the aggregated roles `view`, `edit` and `admin` have no rules.
#[derive(Clone, Debug)]
#[must_use = "nothing runs before `start`"]
pub struct Real {
    assets: Option<PathBuf>,
    controllers: bool,
    service_accounts: bool,
    scheduler: bool,
    port: Option<u16>,
    ready_within: Duration,
    temp_dir: Option<PathBuf>,
    tokens: Vec<StaticToken>,
}

impl Default for Real {
    fn default() -> Self {
        Self {
            assets: None,
            controllers: false,
            service_accounts: false,
            scheduler: false,
            port: None,
            ready_within: Duration::from_mins(1),
            temp_dir: None,
            tokens: Vec::new(),
        }
    }
}

impl Real {
    /// Uses the binaries in this folder. Default: `KUBEBUILDER_ASSETS`, else the cache folder of
    /// `hack/control-plane/build`.
    pub fn assets(mut self, folder: impl Into<PathBuf>) -> Self {
        self.assets = Some(folder.into());
        self
    }

    /// Also starts kube-controller-manager, which deletes namespace content, collects garbage and runs Deployments. Turns
    /// on service account admission. Default: off.
    pub fn controllers(mut self) -> Self {
        self.controllers = true;
        self
    }

    /// Turns on service account admission, which rejects pods without a service account. Without controllers, the test
    /// has to create the accounts. Default: only with controllers.
    pub fn service_accounts(mut self) -> Self {
        self.service_accounts = true;
        self
    }

    /// Also starts kube-scheduler. Default: off.
    pub fn scheduler(mut self) -> Self {
        self.scheduler = true;
        self
    }

    /// Serves on this port of 127.0.0.1. Default: a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Fails if the cluster is not ready after this time. Default: 60 seconds.
    pub fn ready_within(mut self, limit: Duration) -> Self {
        self.ready_within = limit;
        self
    }

    /// Creates the cluster's folder in this one. Default: the system's folder for temporary files.
    pub fn temp_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.temp_dir = Some(folder.into());
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

    /// Checks that the binaries exist, without starting anything.
    pub fn available(&self) -> Result<(), Error> {
        self.programs().map(|_| ())
    }

    /// Starts the control plane. Returns when `/readyz` succeeds, the namespace `default` exists, and with controllers its
    /// service account too.
    ///
    /// An error, or dropping the future, leaves no process and no file behind.
    pub async fn start(self) -> Result<Cluster, Error> {
        let programs = self.programs()?;
        let deadline = Deadline::within(self.ready_within);
        if let Some(port) = self.port {
            if !is_free(port) {
                return Err(Error::PortTaken { port });
            }
            return self.launch(&programs, port, deadline).await;
        }
        let mut attempt = 1;
        loop {
            let port = free_port()?;
            match self.launch(&programs, port, deadline).await {
                Err(Error::PortTaken { port }) if attempt < PORT_ATTEMPTS => {
                    tracing::debug!(port, attempt, "another process took the port, trying another one");
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    fn programs(&self) -> Result<Programs, Error> {
        let assets = Assets::find(self.assets.as_deref())?;
        Ok(Programs {
            etcd: assets.binary(ETCD)?,
            api_server: assets.binary(API_SERVER)?,
            controller_manager: self
                .controllers
                .then(|| assets.binary(CONTROLLER_MANAGER))
                .transpose()?,
            scheduler: self.scheduler.then(|| assets.binary(SCHEDULER)).transpose()?,
        })
    }

    async fn launch(&self, programs: &Programs, port: u16, deadline: Deadline) -> Result<Cluster, Error> {
        let parent = self.temp_dir.clone().unwrap_or_else(std::env::temp_dir);
        let mut plane = ControlPlane {
            sandbox: Sandbox::new(&std::path::absolute(&parent).unwrap_or(parent))?,
            authority: Authority::new()?,
            server: format!("https://127.0.0.1:{port}"),
        };
        let files = plane.write_credentials()?;
        let admin = plane.write_kubeconfig(
            kubeconfig::ADMIN_KUBECONFIG,
            "windlass-admin",
            &["system:masters".to_owned()],
        )?;
        let mut config = kubeconfig::config(admin.kubeconfig, "admin").await?;
        // The server is on this machine: ignore proxies from the environment.
        config.proxy_url = None;
        let client = kubeconfig::client(config)?;

        plane.start_etcd(&programs.etcd, deadline).await?;
        plane.start_api_server(&programs.api_server, &files, port, self)?;
        plane.await_api_server(&client, port, deadline).await?;
        if let Some(program) = &programs.controller_manager {
            plane.start_controller_manager(program, &files)?;
        }
        if let Some(program) = &programs.scheduler {
            plane.start_scheduler(program)?;
        }
        if self.controllers {
            plane.await_controllers(&client, deadline).await?;
        }
        let version = client
            .apiserver_version()
            .await
            .map_err(|source| Error::Unreachable {
                server: plane.server.clone(),
                source: Box::new(source),
            })?;
        Ok(Cluster::new(
            client,
            version.git_version,
            BackendState::Real(Box::new(plane)),
        ))
    }
}

struct Programs {
    etcd: PathBuf,
    api_server: PathBuf,
    controller_manager: Option<PathBuf>,
    scheduler: Option<PathBuf>,
}

/// A running control plane.
pub(crate) struct ControlPlane {
    sandbox: Sandbox,
    authority: Authority,
    /// The address of the API server.
    server: String,
}

/// Paths of the certificates and keys that the servers read.
struct Credentials {
    authority: PathBuf,
    authority_key: PathBuf,
    server: PathBuf,
    server_key: PathBuf,
    service_account_public: PathBuf,
    service_account_key: PathBuf,
}

struct KubeconfigFile {
    kubeconfig: Kubeconfig,
    path: PathBuf,
}

impl ControlPlane {
    pub(crate) fn folder(&self) -> &Path {
        self.sandbox.path()
    }

    pub(crate) fn user(&self, name: &str, groups: &[String]) -> Result<Kubeconfig, Error> {
        let identity = self.authority.issue_client(name, groups)?;
        Ok(kubeconfig::with_certificate(
            &self.server,
            &self.authority.ca_certificate().certificate,
            name,
            &identity,
        ))
    }

    fn write_kubeconfig(&self, file: &str, user: &str, groups: &[String]) -> Result<KubeconfigFile, Error> {
        let kubeconfig = self.user(user, groups)?;
        let path = self.sandbox.write(file, &kubeconfig::to_json(&kubeconfig))?;
        Ok(KubeconfigFile { kubeconfig, path })
    }

    fn write_credentials(&self) -> Result<Credentials, Error> {
        let authority = self.authority.ca_certificate();
        let server = self.authority.issue_server(&[SERVICE_IP.into()])?;
        let service_account = KeyPair::generate()?;
        Ok(Credentials {
            authority: self.sandbox.write("ca.crt", &authority.certificate)?,
            authority_key: self.sandbox.write("ca.key", &authority.key)?,
            server: self.sandbox.write("server.crt", &server.certificate)?,
            server_key: self.sandbox.write("server.key", &server.key)?,
            service_account_public: self
                .sandbox
                .write("service-account.pub", &service_account.public_key_pem())?,
            service_account_key: self
                .sandbox
                .write("service-account.key", &service_account.serialize_pem())?,
        })
    }

    /// etcd listens on Unix sockets in the cluster's folder: ports cannot collide, and other users of the machine cannot
    /// connect. The names are relative, because a socket path is limited to about 100 bytes. etcd requires TCP addresses to
    /// advertise, which are unused with a single member.
    async fn start_etcd(&mut self, program: &Path, deadline: Deadline) -> Result<(), Error> {
        let data = self.sandbox.path().join("etcd");
        self.sandbox.spawn(
            ETCD,
            program,
            &[
                flag("data-dir", data.display()),
                flag("name", "default"),
                flag("listen-client-urls", "unix://etcd.sock"),
                flag("advertise-client-urls", "http://127.0.0.1:2379"),
                flag("listen-peer-urls", "unix://etcd-peer.sock"),
                flag("initial-advertise-peer-urls", "http://127.0.0.1:2380"),
                flag("initial-cluster", "default=http://127.0.0.1:2380"),
                // A single member need not wait half a second for other candidates.
                flag("heartbeat-interval", "20"),
                flag("election-timeout", "100"),
                flag("unsafe-no-fsync", "true"),
            ],
        )?;
        let socket = self.sandbox.path().join("etcd.sock");
        self.sandbox
            .wait_until(ETCD, deadline, async || socket.exists())
            .await
    }

    /// Uses only long-standing flags, so that older binaries from setup-envtest work too.
    fn start_api_server(
        &mut self,
        program: &Path,
        files: &Credentials,
        port: u16,
        options: &Real,
    ) -> Result<(), Error> {
        let mut args = vec![
            flag("etcd-servers", "unix://etcd.sock"),
            flag("bind-address", Ipv4Addr::LOCALHOST),
            flag("secure-port", port),
            flag("advertise-address", Ipv4Addr::LOCALHOST),
            // Endpoints may not contain loopback addresses; without this flag it would retry forever.
            flag("endpoint-reconciler-type", "none"),
            flag("cert-dir", self.sandbox.path().join("generated").display()),
            flag("tls-cert-file", files.server.display()),
            flag("tls-private-key-file", files.server_key.display()),
            flag("client-ca-file", files.authority.display()),
            flag(
                "service-account-issuer",
                "https://kubernetes.default.svc.cluster.local",
            ),
            flag("service-account-key-file", files.service_account_public.display()),
            flag(
                "service-account-signing-key-file",
                files.service_account_key.display(),
            ),
            flag("service-cluster-ip-range", SERVICE_RANGE),
            flag("authorization-mode", "RBAC"),
            flag("allow-privileged", "true"),
        ];
        if !options.controllers && !options.service_accounts {
            args.push(flag("disable-admission-plugins", "ServiceAccount"));
        }
        if !options.tokens.is_empty() {
            let lines: String = options.tokens.iter().map(StaticToken::csv_line).collect();
            let file = self.sandbox.write("tokens.csv", &lines)?;
            args.push(flag("token-auth-file", file.display()));
        }
        self.sandbox.spawn(API_SERVER, program, &args)
    }

    async fn await_api_server(
        &mut self,
        client: &Client,
        port: u16,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let namespaces = Api::<Namespace>::all(client.clone());
        let ready = self
            .sandbox
            .wait_until(API_SERVER, deadline, async || {
                answers(client.request_text(readyz())).await && answers(namespaces.get("default")).await
            })
            .await;
        match ready {
            Err(Error::Exited { log, .. }) if log.contains("address already in use") => {
                Err(Error::PortTaken { port })
            }
            result => result,
        }
    }

    fn start_controller_manager(&mut self, program: &Path, files: &Credentials) -> Result<(), Error> {
        let access = self.write_kubeconfig(
            "kube-controller-manager.kubeconfig",
            "system:kube-controller-manager",
            &[],
        )?;
        let mut args = component_flags(&access);
        args.extend([
            // As in production clusters, each controller has only its own rights.
            flag("use-service-account-credentials", "true"),
            flag(
                "service-account-private-key-file",
                files.service_account_key.display(),
            ),
            flag("root-ca-file", files.authority.display()),
            flag("cluster-signing-cert-file", files.authority.display()),
            flag("cluster-signing-key-file", files.authority_key.display()),
        ]);
        self.sandbox.spawn(CONTROLLER_MANAGER, program, &args)
    }

    fn start_scheduler(&mut self, program: &Path) -> Result<(), Error> {
        let access = self.write_kubeconfig("kube-scheduler.kubeconfig", "system:kube-scheduler", &[])?;
        self.sandbox.spawn(SCHEDULER, program, &component_flags(&access))
    }

    async fn await_controllers(&mut self, client: &Client, deadline: Deadline) -> Result<(), Error> {
        let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "default");
        self.sandbox
            .wait_until(CONTROLLER_MANAGER, deadline, async || {
                answers(accounts.get("default")).await
            })
            .await
    }
}

/// Flags of the controller manager and the scheduler: no leader election, because there is one of each; no port, because
/// they are observed through the API; and no client-side rate limit that would slow tests down.
fn component_flags(access: &KubeconfigFile) -> Vec<String> {
    vec![
        flag("kubeconfig", access.path.display()),
        flag("leader-elect", "false"),
        flag("secure-port", 0),
        flag("kube-api-qps", 1000),
        flag("kube-api-burst", 1000),
    ]
}

fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}

fn readyz() -> http::Request<Vec<u8>> {
    http::Request::get("/readyz")
        .body(Vec::new())
        .expect("a constant path is a valid URI")
}

async fn answers<T>(request: impl Future<Output = kube::Result<T>>) -> bool {
    matches!(tokio::time::timeout(PROBE_TIMEOUT, request).await, Ok(Ok(_)))
}

fn free_port() -> Result<u16, Error> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|source| Error::Spawn {
            program: API_SERVER.into(),
            source,
        })
}

fn is_free(port: u16) -> bool {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_) => true,
        // The server reports other errors, such as a privileged port.
        Err(error) => error.kind() != io::ErrorKind::AddrInUse,
    }
}

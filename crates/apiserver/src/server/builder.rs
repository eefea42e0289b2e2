//! Configuration of a server, and its initial objects.

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use windlass_rights::Recorder;

use super::{Api, Server, in_flight::InFlight};
use crate::{
    admission::Admission,
    admission_plugins::{AdmissionPlugin, AdmissionPlugins},
    auth::{
        AccessControl, AnonymousAuth, Authenticator, AuthorizationMode, LastModes, Policy, TokenSigner, User,
    },
    crd::Definitions,
    environment::Environment,
    kinds::{ServiceAllocator, kubernetes_service},
    large_work::LargeWork,
    limitations::{self, Limitation, Limitations},
    limits::Limits,
    logs::LogStore,
    media::Encoding,
    object_store::ObjectStore,
    registry::Registry,
    request::Target,
    storage::{Memory, Storage},
    verbs::{WriteOptions, WriteVerbs},
    webhook::{InProcessWebhook, WebhookBudget, WebhookClient},
};

/// The namespaces that every cluster has, in the order in which a real server creates them.
const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "default", "kube-node-lease"];

/// Configures a server; see [`Server::builder`].
#[derive(Default)]
#[must_use]
pub struct Builder {
    storage: Option<Box<dyn Storage>>,
    /// Only for a server that is never put on a socket; see [`Server::seeded`].
    seed: Option<u64>,
    epoch: Option<Timestamp>,
    limits: Limits,
    anonymous: AnonymousAuth,
    plugins: AdmissionPlugins,
    /// Empty: only `AlwaysAllow`.
    authorization: Vec<AuthorizationMode>,
    tokens: HashMap<Box<str>, Arc<User>>,
    recorder: Option<Recorder>,
    service_port: Option<u16>,
    /// The data of the ConfigMap `extension-apiserver-authentication`; without any, there is none.
    authentication: Map<String, Value>,
    tracks_legacy_tokens: bool,
    limitations: Vec<Limitation>,
    webhooks: HashMap<Box<str>, InProcessWebhook>,
    webhook_addresses: HashMap<Box<str>, SocketAddr>,
}

impl Builder {
    pub(super) fn seeded(seed: u64) -> Self {
        Self {
            seed: Some(seed),
            ..Self::default()
        }
    }

    /// Sets the storage. Default: in memory.
    pub fn storage(mut self, storage: impl Storage) -> Self {
        self.storage = Some(Box::new(storage));
        self
    }

    /// Sets the server's start time, which advances with tokio's clock. Default: the system's time, or the paused time of a
    /// test; see [`Clock::system`](windlass_clock::Clock::system).
    pub fn epoch(mut self, epoch: Timestamp) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// Limits the open watches; further ones get 429, except for administrators. Default: 10,000.
    pub fn max_watches(mut self, limit: usize) -> Self {
        self.limits.watches = limit;
        self
    }

    /// Limits what clients can make the server hold, and for how long. Default: [`Limits::default`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Rejects requests without credentials (401), like a real server's `--anonymous-auth=false`. Requests in the process
    /// need none. Default: their user is `system:anonymous`.
    pub fn without_anonymous(mut self) -> Self {
        self.anonymous = AnonymousAuth::Refused;
        self
    }

    /// Accepts pods whose service account does not exist, like a real server's
    /// `--disable-admission-plugins=ServiceAccount`. Useful where no controller creates the account `default` in every
    /// namespace. Default: such pods are rejected.
    pub fn without_service_accounts(self) -> Self {
        self.without_admission_plugin(AdmissionPlugin::ServiceAccount)
    }

    /// Disables an admission plugin, like a real server's `--disable-admission-plugins`. Default: all are enabled.
    pub fn without_admission_plugin(mut self, plugin: AdmissionPlugin) -> Self {
        self.plugins.disable(plugin);
        self
    }

    /// Enables RBAC, with the roles and bindings that every cluster has. Requests in the process are an
    /// administrator's; see [`Server::authenticated`], [`Server::as_user`] and [`Server::serve`] for other users.
    /// Default: every user may do everything.
    pub fn rbac(self) -> Self {
        self.authorization([AuthorizationMode::Rbac])
    }

    /// Sets the authorizers, like a real server's `--authorization-mode`: the first that allows a request decides. With
    /// [`AuthorizationMode::Rbac`] among them, the server has the roles and bindings of every cluster. Default: only
    /// [`AuthorizationMode::AlwaysAllow`].
    pub fn authorization(mut self, modes: impl IntoIterator<Item = AuthorizationMode>) -> Self {
        self.authorization = modes.into_iter().collect();
        self
    }

    /// Accepts a static bearer token of a user. Default: only service account tokens.
    pub fn token(mut self, token: &str, user: User) -> Self {
        self.tokens.insert(token.into(), Arc::new(user));
        self
    }

    /// Records which rights each user uses. Default: none.
    pub fn recorder(mut self, recorder: Recorder) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Adds a warning for clients that write objects which nothing in this cluster acts on. It is sent with the answer to
    /// the write that creates the object, or that changes it so that the warning applies. Default: no warnings but those
    /// of a real server.
    pub fn limitation(mut self, limitation: Limitation) -> Self {
        self.limitations.push(limitation);
        self
    }

    /// Warns clients that install what this server stores without serving it: aggregated APIs. Default: no such warnings,
    /// so that responses are those of a real server.
    pub fn announce_limitations(mut self) -> Self {
        self.limitations.extend(limitations::of_server());
        self
    }

    /// Creates the service `kubernetes` in `default`, as every real server does; `port` is the server's own port. It is
    /// created again if it is deleted.
    /// Default: there is no such service.
    pub fn kubernetes_service(mut self, port: u16) -> Self {
        self.service_port = Some(port);
        self
    }

    /// Creates the ConfigMap `kube-system/extension-apiserver-authentication` with this data, such as `client-ca-file`: the CA
    /// certificates (PEM) that client certificates are verified against. kube-controller-manager, kube-scheduler and
    /// extension API servers read it, to authenticate the same clients. Default: there is no such ConfigMap.
    pub fn publish_authentication<K, V>(mut self, data: impl IntoIterator<Item = (K, V)>) -> Self
    where
        K: Into<String>,
        V: Into<String>,
    {
        let data = data.into_iter();
        self.authentication = data
            .map(|(key, value)| (key.into(), Value::String(value.into())))
            .collect();
        self
    }

    /// Creates the ConfigMap `kube-system/kube-apiserver-legacy-service-account-token-tracking`, as every real server does;
    /// kube-controller-manager reads it. Default: there is no such ConfigMap.
    pub fn track_legacy_tokens(mut self) -> Self {
        self.tracks_legacy_tokens = true;
        self
    }

    /// Answers webhooks at this host in the process: without a socket, certificates or real time. The host is that of the
    /// configuration's URL, or `name.namespace.svc` for a reference to a service, which need not exist. Default: the server
    /// connects to webhooks over HTTPS.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use windlass_apiserver::{InProcessWebhook, Server};
    ///
    /// // Admits nothing: a response without `response.allowed` is invalid.
    /// let webhook = InProcessWebhook::new(tower::service_fn(|request: http::Request<Bytes>| async move {
    ///     let review = request.into_body();
    ///     Ok::<_, std::convert::Infallible>(http::Response::new(review))
    /// }));
    /// let server = Server::builder().webhook("quota.default.svc", webhook).build();
    /// ```
    pub fn webhook(mut self, host: &str, webhook: InProcessWebhook) -> Self {
        self.webhooks.insert(host.into(), webhook);
        self
    }

    /// Connects to this address for webhooks at this host: the host of a URL, or `name.namespace.svc` for a reference to a
    /// service, which need not exist. Their certificate must still be for that host. Default: the host of the URL, or the
    /// external name of the service.
    pub fn webhook_address(mut self, host: &str, address: SocketAddr) -> Self {
        self.webhook_addresses.insert(host.into(), address);
        self
    }

    /// Creates the server.
    pub fn build(self) -> Server {
        let environment = Environment::new(self.epoch, self.seed);
        let storage = self.storage.unwrap_or_else(|| Box::new(Memory::default()));
        let mut modes = self.authorization;
        if modes.is_empty() {
            modes.push(AuthorizationMode::AlwaysAllow);
        }
        let policy = modes
            .contains(&AuthorizationMode::Rbac)
            .then(|| Policy::new(&*storage));
        let token_signer = TokenSigner::new(environment.signing_key());
        let store = Arc::new(ObjectStore {
            storage,
            registry: Registry::new(),
            environment,
            max_stored_bytes: self.limits.stored_bytes,
        });
        let access = Arc::new(AccessControl {
            store: store.clone(),
            modes,
            policy,
            anonymous: self.anonymous,
            tokens: self.tokens,
            token_signer,
            impersonation_modes: LastModes::default(),
            recorder: self.recorder,
            aggregation_lock: parking_lot::Mutex::new(()),
        });
        let writes = WriteVerbs {
            store: store.clone(),
            access: access.clone(),
            admission: Admission::new(&access, self.plugins),
            services: ServiceAllocator::new(store.clone()),
            definitions: Definitions::new(store.clone()),
            pod_logs: Arc::new(LogStore::default()),
            limitations: Limitations::new(self.limitations),
            kubernetes_service: self.service_port.map(kubernetes_service),
        };
        let api = Arc::new(Api {
            webhooks: Arc::new(WebhookClient::new(
                store.clone(),
                self.webhooks,
                self.webhook_addresses,
                WebhookBudget::new(self.limits.webhook_bytes),
            )),
            store,
            access,
            writes,
            in_flight: InFlight::new(&self.limits),
            metrics: Arc::default(),
            limits: self.limits,
        });
        let large_work = LargeWork::in_process(api.limits.large_work_bytes);
        api.bootstrap();
        if !self.authentication.is_empty() {
            api.ensure_config_map("extension-apiserver-authentication", &self.authentication);
        }
        if self.tracks_legacy_tokens {
            let today = api.store.environment.now().strftime("%Y-%m-%d").to_string();
            let data = Map::from_iter([("since".to_owned(), today.into())]);
            api.ensure_config_map("kube-apiserver-legacy-service-account-token-tracking", &data);
        }
        let authenticator = Authenticator::Trusted(Arc::new(User::administrator()));
        Server {
            api,
            authenticator,
            large_work,
            connection: None,
        }
    }
}

impl Api {
    /// Creates the objects that every cluster has, and serves the stored definitions.
    fn bootstrap(&self) {
        for name in NAMESPACES {
            self.ensure_object("namespaces", "", &json!({"metadata": {"name": name}}));
        }
        self.writes.definitions.load();
        self.access.create_bootstrap_policy();
        self.access.catch_up();
        self.writes.admission.catch_up();
        self.writes.ensure_kubernetes_service();
    }

    /// Creates a ConfigMap in `kube-system`.
    fn ensure_config_map(&self, name: &str, data: &Map<String, Value>) {
        let config_map = json!({"metadata": {"name": name}, "data": data});
        self.ensure_object("configmaps", "kube-system", &config_map);
    }

    /// Creates an object that every cluster has. It may exist in a storage that was used before.
    fn ensure_object(&self, plural: &str, namespace: &str, object: &Value) {
        let target = Target {
            resource: self
                .store
                .registry
                .catalogue()
                .find("", "v1", plural)
                .expect("built in")
                .clone(),
            namespace: namespace.into(),
            name: "".into(),
            subresource: "".into(),
        };
        let body = object.to_string();
        let _ = self.writes.create(
            &target,
            &WriteOptions::internal(),
            body.as_bytes(),
            Encoding::Json,
        );
    }
}

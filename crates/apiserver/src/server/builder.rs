//! How a server is made, and what it begins with.

use std::{collections::HashMap, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use windlass_rights::Recorder;

use super::{Server, work::Load};
use crate::{
    admission::Accounts,
    auth::{Anonymous, Door, Guard, Modes, Policy, Signatures, User},
    depth::DeepTables,
    limits::Limits,
    logs::Printed,
    media::Encoding,
    registry::Registry,
    request::Target,
    storage::{Memory, Storage},
    verbs::{Api, WriteOptions},
    world::World,
};

/// The namespaces that every cluster has, in the order in which a real server makes them.
const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "default", "kube-node-lease"];

/// How a server is made; see [`Server::builder`].
#[derive(Default)]
#[must_use]
pub struct Builder {
    storage: Option<Box<dyn Storage>>,
    /// Only of a server that is never put on a socket: see [`Server::seeded`].
    seed: Option<u64>,
    epoch: Option<Timestamp>,
    limits: Limits,
    anonymous: Anonymous,
    accounts: Accounts,
    access: Access,
    tokens: HashMap<Box<str>, Arc<User>>,
    recorder: Option<Recorder>,
    service: Option<u16>,
}

/// Whether anybody looks at what users may do.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Access {
    #[default]
    Open,
    Rbac,
}

impl Builder {
    pub(super) fn seeded(seed: u64) -> Self {
        Self {
            seed: Some(seed),
            ..Self::default()
        }
    }

    /// Keeps objects here. Default: in memory, gone with the server.
    pub fn storage(mut self, storage: impl Storage) -> Self {
        self.storage = Some(Box::new(storage));
        self
    }

    /// The time at which the server starts; it runs on with tokio's clock. Default: the system's time.
    pub fn epoch(mut self, epoch: Timestamp) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// How many watches may be open at once; the next one is told to try again later (429). Default: 10,000.
    pub fn watchers(mut self, limit: usize) -> Self {
        self.limits.watches = limit;
        self
    }

    /// What clients can make the server hold, and for how long. Default: [`Limits::default`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Refuses requests without credentials (401), as `--anonymous-auth=false` makes a real server do. What this server is
    /// asked directly, in the process, needs none. Default: they are made by `system:anonymous`.
    pub fn without_anonymous(mut self) -> Self {
        self.anonymous = Anonymous::Refused;
        self
    }

    /// Takes pods whose service account does not exist, as `--disable-admission-plugins=ServiceAccount` makes a real
    /// server do: for those who run no controller that makes the account `default` in every namespace. Default: such
    /// pods are refused.
    pub fn without_service_accounts(mut self) -> Self {
        self.accounts = Accounts::Ignored;
        self
    }

    /// Users may do what roles and bindings say, and begins with those that every cluster has. What this server is asked
    /// directly, in the process, is asked by an administrator; see [`Server::guarded`], [`Server::as_user`] and
    /// [`Server::serve`] for others. Default: everybody may do everything.
    pub fn rbac(mut self) -> Self {
        self.access = Access::Rbac;
        self
    }

    /// Takes this bearer token as a user's. Default: no tokens but those that service accounts get.
    pub fn token(mut self, token: &str, user: User) -> Self {
        self.tokens.insert(token.into(), Arc::new(user));
        self
    }

    /// Notes who uses which rights. Default: nobody does.
    pub fn recorder(mut self, recorder: Recorder) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Shows itself to the pods of the cluster as the service `kubernetes` in `default`, as every real server does; `port`
    /// is where it listens itself. Default: there is no such service.
    pub fn service(mut self, port: u16) -> Self {
        self.service = Some(port);
        self
    }

    /// A server that serves.
    pub fn build(self) -> Server {
        let world = World::new(self.epoch, self.seed);
        let storage = self.storage.unwrap_or_else(|| Box::new(Memory::default()));
        let guard = Guard {
            policy: (self.access == Access::Rbac).then(|| Policy::new(&*storage)),
            anonymous: self.anonymous,
            tokens: self.tokens,
            signatures: Signatures::new(world.secret()),
            modes: Modes::default(),
            recorder: self.recorder,
            aggregating: parking_lot::Mutex::new(()),
        };
        let api = Arc::new(Api {
            guard,
            storage,
            registry: Registry::new(),
            world,
            load: Load::new(&self.limits),
            watchers: Arc::new(Semaphore::new(self.limits.watches.min(Semaphore::MAX_PERMITS))),
            limits: self.limits,
            definitions: parking_lot::Mutex::new(()),
            allotting: parking_lot::Mutex::new(()),
            accounts: self.accounts,
            printed: Printed::default(),
            deep: DeepTables::default(),
        });
        api.start(self.service);
        let door = Door::Trusted(Arc::new(User::administrator()));
        Server {
            api,
            door,
            workshop: None,
            seat: None,
        }
    }
}

impl Api {
    /// Fills in what every cluster has, and serves what the stored definitions define.
    fn start(&self, port: Option<u16>) {
        for name in NAMESPACES {
            self.provide("namespaces", "", &json!({"metadata": {"name": name}}));
        }
        self.load_definitions();
        self.seed_policy();
        if let Some(port) = port {
            self.provide("services", "default", &own_service(port));
        }
    }

    /// Makes an object that every cluster has, unless it is there already: on a storage that was used before.
    fn provide(&self, plural: &str, namespace: &str, object: &Value) {
        let target = Target {
            resource: self
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
        let _ = self.create(&target, &WriteOptions::own(), body.as_bytes(), Encoding::Json);
    }
}

/// How pods reach the server: at the first address of the services' range.
fn own_service(port: u16) -> Value {
    json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": "10.0.0.1",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        },
    })
}

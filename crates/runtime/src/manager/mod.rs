//! Runs controllers together: one client, one set of caches, one election, one stop.

mod controllers;
mod parts;
mod run;
mod signals;
mod task;

use std::{future::Future, io, time::Duration};

use kube::{Client, Resource};
use windlass_cache::{Cacheable, Selection};

use self::task::{Scope, Task};
pub use self::{controllers::Controllers, task::TaskContext};
use crate::{
    control::{ControllerError, Prepared},
    controller::Controller,
    election::{ElectionConfig, ElectionConfigError, ElectionError},
    error::Error,
    install::{Install, InstallError},
    layers::ClientOptions,
    metrics::Metrics,
    reconcile::Reconciler,
    serving::{BindError, Checks},
};

/// How long running reconciles may take to finish after a stop, unless told otherwise.
const GRACE: Duration = Duration::from_secs(30);

/// Runs controllers on one shared set of caches until it is told to stop.
///
/// It starts in this order: the listener; the CRDs, if it is to [install](Self::install) any; [services](Self::service) and
/// the caches; when those are complete, [tasks](Self::task) and the [election](Self::elect); and the controllers' workers,
/// with an election when this process leads.
///
/// On stop no new reconcile starts, and running ones and tasks, and after them services, have the [grace
/// period](Self::grace) to finish; then events that wait are written, the lease is given back, the caches end, and the
/// listener last. Every task is gone before `run` returns. A part that fails stops the others and is the error.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_runtime::{Action, Controller, ElectionConfig, Manager};
///
/// # async fn run(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let controller = Controller::<ConfigMap>::new("settings").reconcile(|_, _| async { Ok(Action::done()) });
/// Manager::new(client)
///     .controller(controller)
///     .elect(ElectionConfig::new("settings"))
///     .listen("0.0.0.0:8080")
///     .run()
///     .await?;
/// # Ok(()) }
/// ```
#[must_use = "a manager does nothing until it runs"]
pub struct Manager {
    client: Client,
    client_options: ClientOptions,
    host: String,
    selection: Selection,
    controllers: Vec<Prepared>,
    tasks: Vec<Task>,
    election: Option<ElectionConfig>,
    install: Option<Install>,
    /// The address, and what its user calls the option that says it.
    listen: Option<(String, &'static str)>,
    /// The same for debug pages alone.
    debug_listen: Option<(String, &'static str)>,
    health: Checks,
    ready: Checks,
    grace: Duration,
    quiet: bool,
    metrics: Metrics,
}

/// Why a manager could not run, or stopped by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// Logs and metrics could not tell them apart.
    #[error("two controllers are named `{0}`: give each its own name")]
    DuplicateName(String),
    /// The name goes into labels and field managers.
    #[error(
        "`{0}` cannot be the name of a controller: use at most 63 letters, digits, `-`, `_` and `.`, and begin and end with a letter or digit"
    )]
    InvalidName(String),
    /// The address for health and metrics is not to be had.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Debug pages would be reachable from other machines.
    #[error(
        "`{address}` is not a loopback address, and debug pages show objects and errors to everyone who reaches them: set \
         `{option}` to an address such as `127.0.0.1:8081`; in a pod, use `kubectl port-forward` to reach it"
    )]
    DebugAddress {
        /// As it was given.
        address: String,
        /// What it was given with.
        option: &'static str,
    },
    /// The CRDs are not there.
    #[error("cannot start without the CRDs")]
    Install(#[source] InstallError),
    /// The election was asked for something that cannot be.
    #[error(transparent)]
    ElectionConfig(#[from] ElectionConfigError),
    /// This process was the leader and is not any more.
    #[error(transparent)]
    Election(#[from] ElectionError),
    /// A controller stopped although nobody asked.
    #[error("controller `{controller}` failed: {cause}")]
    Controller {
        /// Its name.
        controller: String,
        /// What went wrong.
        #[source]
        cause: ControllerError,
    },
    /// A task failed.
    #[error("task `{task}` failed: {cause}")]
    Task {
        /// Its name.
        task: String,
        /// What went wrong.
        cause: Error,
    },
    /// A task panicked outside a reconcile.
    #[error("`{part}` panicked: {message}")]
    Panicked {
        /// The controller or task.
        part: String,
        /// What it said.
        message: String,
    },
    /// Not everything had ended when the grace period was over; the rest was dropped.
    #[error("still running after the grace period of {grace:?}, and dropped: {}", parts.join(", "))]
    Grace {
        /// How long it was.
        grace: Duration,
        /// The controllers and tasks.
        parts: Vec<String>,
    },
    /// The process cannot listen for SIGTERM and SIGINT.
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
}

impl Manager {
    /// A manager without controllers, for the cluster that the client talks to.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            client_options: ClientOptions::default(),
            host: "kubernetes".to_owned(),
            selection: Selection::all(),
            controllers: Vec::new(),
            tasks: Vec::new(),
            election: None,
            install: None,
            listen: None,
            debug_listen: None,
            health: Checks::new(),
            ready: Checks::new(),
            grace: GRACE,
            quiet: false,
            metrics: Metrics::new(),
        }
    }

    /// Adds a controller.
    pub fn controller<K, R: Reconciler>(mut self, controller: Controller<K, R>) -> Self
    where
        K: Cacheable + Resource<DynamicType: Send + Sync>,
    {
        self.controllers.push(controller.into());
        self
    }

    /// Also runs this, on every replica, from when the caches of all controllers are complete. One that ends well is done;
    /// one that fails stops the manager. It should end when [`TaskContext::stopping`] says so.
    pub fn task<F, Fut>(mut self, name: impl Into<String>, task: F) -> Self
    where
        F: Fn(TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Error>> + Send + 'static,
    {
        self.tasks.push(Task::new(name.into(), Scope::Replica, task));
        self
    }

    /// Also runs this while this process leads, once in each term; without an election, once.
    pub fn leader_task<F, Fut>(mut self, name: impl Into<String>, task: F) -> Self
    where
        F: Fn(TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Error>> + Send + 'static,
    {
        self.tasks.push(Task::new(name.into(), Scope::Leader, task));
        self
    }

    /// Also runs this, on every replica, from the start, whether or not caches are complete: for what controllers and tasks
    /// hand things to. It is told to stop when all of them have ended, and has what is left of the grace period then. One
    /// that fails stops the manager.
    pub fn service<F, Fut>(mut self, name: impl Into<String>, service: F) -> Self
    where
        F: Fn(TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Error>> + Send + 'static,
    {
        self.tasks.push(Task::new(name.into(), Scope::Service, service));
        self
    }

    /// Looks at this namespace only; kinds outside namespaces are not affected. For controllers that have rights in
    /// one namespace. Default: all namespaces.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        self.namespaces([namespace])
    }

    /// Looks at these namespaces only, with a watch for each.
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.selection = self.selection.namespaces(namespaces);
        self
    }

    /// Reconciles only while this process holds a lease. Default: always, as if there were only one of it.
    ///
    /// What reconciles write goes through a fence that closes when the lease ends.
    pub fn elect(mut self, election: ElectionConfig) -> Self {
        self.election = Some(election);
        self
    }

    /// Before anything is watched, makes sure that these CRDs are there.
    pub fn install(mut self, install: Install) -> Self {
        self.install = Some(install);
        self
    }

    /// Serves `/healthz`, `/readyz` and `/metrics` on this address, for example `0.0.0.0:8080` in a pod, where kubelet and
    /// Prometheus have to reach it. Default: nothing is served.
    ///
    /// The debug pages, `/debug/controllers` and `/debug/caches`, are served there too if it is a loopback address, such as
    /// `127.0.0.1:8080`, and [`debug_listen`](Self::debug_listen) does not give them one of their own.
    pub fn listen(self, address: impl Into<String>) -> Self {
        self.listen_as(address.into(), "Manager::listen")
    }

    pub(crate) fn listen_as(mut self, address: String, option: &'static str) -> Self {
        self.listen = Some((address, option));
        self
    }

    /// Serves the debug pages on this address and on no other. It must be a loopback address: debug pages name objects and show
    /// errors, and there is no authentication. In a pod, `kubectl port-forward` reaches it, which the API server authorises.
    /// Default: see [`listen`](Self::listen).
    pub fn debug_listen(self, address: impl Into<String>) -> Self {
        self.debug_listen_as(address.into(), "Manager::debug_listen")
    }

    pub(crate) fn debug_listen_as(mut self, address: String, option: &'static str) -> Self {
        self.debug_listen = Some((address, option));
        self
    }

    /// Another thing that must hold for the process to be alive; if it fails, the kubelet starts it anew.
    pub fn check_health<F, Fut>(mut self, name: impl Into<String>, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        self.health = self.health.add(name, check);
        self
    }

    /// Another thing that must hold for the process to be ready.
    pub fn check_ready<F, Fut>(mut self, name: impl Into<String>, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        self.ready = self.ready.add(name, check);
        self
    }

    /// How long running reconciles and tasks may take to finish after a stop; zero drops them at once. Default: 30 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Logs when controllers start and stop at the level debug: for a manager that is a part of something else, whose users
    /// look for their own controllers in the log. Default: at info.
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// How the client limits and retries requests. Default: no limit; what the server says to try later is tried later.
    pub fn client_options(mut self, options: ClientOptions) -> Self {
        self.client_options = options;
        self
    }

    /// What the metric `rest_client_requests_total` calls the server. Default: `kubernetes`.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = host.into();
        self
    }

    /// What the controllers that it has by now do, for a program that shows it; the same as `/debug/controllers`.
    pub fn controllers(&self) -> Controllers {
        Controllers::of(&self.controllers)
    }

    /// The metrics, to add some of one's own.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }
}

//! The manager: runs controllers with one client, one set of caches, one leader election and one shutdown.

mod controllers;
mod run;
mod signals;
mod task;
mod task_set;

use std::{future::Future, io, sync::Arc, time::Duration};

use kube::Client;
use tokio::sync::SetOnce;
use windlass_cache::WatchScope;

use self::task::{Task, TaskScope};
pub use self::{controllers::Controllers, task::TaskContext};
use crate::{
    controller::Controller,
    controller_run::{ControllerError, ErasedController},
    election::{ElectionConfig, ElectionConfigError, ElectionError},
    error::Error,
    install::{CrdInstaller, InstallError},
    key::Reconcilable,
    layers::ClientOptions,
    metrics::Metrics,
    reconcile::Reconciler,
    serving::{BindError, Checks},
    start_report::OnBlocked,
};

/// How long a cache may be stale before the process is not ready.
pub(crate) const DEFAULT_MAX_STALENESS: Duration = Duration::from_mins(2);

/// Default grace period for running reconciles after a stop.
const DEFAULT_GRACE_PERIOD: Duration = Duration::from_secs(30);

/// Runs controllers on one shared set of caches until it is stopped.
///
/// Start order: the listener; the CRDs to [install](Self::install), if any; [services](Self::service) and the caches; once
/// these have synced, [tasks](Self::task) and the [leader election](Self::elect); then the controllers' workers, with leader
/// election only while this process leads. A controller that [cannot start](Self::on_blocked), because a CRD or a right is
/// missing, does not hold the others; the log names what is missing and the fix.
///
/// On stop no new reconcile starts. Running reconciles and tasks, and after them services, have the [grace
/// period](Self::grace_period) to finish. Then pending events are written, the lease is released, the caches end, and the listener
/// closes last. Every task has ended before `run` returns. If a controller, task or service fails, the others stop and `run`
/// returns its error.
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
    server_url: Option<String>,
    max_staleness: Duration,
    scope: WatchScope,
    controllers: Vec<ErasedController>,
    tasks: Vec<Task>,
    election: Option<ElectionConfig>,
    install: Option<CrdInstaller>,
    /// Set when what is installed is served.
    installed: Arc<SetOnce<()>>,
    /// The address, and the name of the option that set it, for error messages.
    listen: Option<(String, &'static str)>,
    /// The same for a separate listener of the debug pages.
    debug_listen: Option<(String, &'static str)>,
    health: Checks,
    ready: Checks,
    grace: Duration,
    on_blocked: OnBlocked,
    quiet: bool,
    metrics: Metrics,
    #[cfg(feature = "opentelemetry")]
    telemetry: Option<crate::Telemetry>,
}

/// Why a manager could not start, or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// Controller names must be unique, because they identify controllers in logs and metrics.
    #[error("two controllers are named `{0}`: give each its own name")]
    DuplicateName(String),
    /// The name must be valid as a label value and a field manager.
    #[error(
        "invalid controller name {0:?}: use at most 63 letters, digits, `-`, `_` and `.`, and begin and end with a letter or digit"
    )]
    InvalidName(String),
    /// The listener's address could not be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The debug pages would be reachable from other machines.
    #[error(
        "`{address}` is not a loopback address, and debug pages show objects and errors without authentication: set \
         `{option}` to an address such as `127.0.0.1:8081`; in a pod, use `kubectl port-forward` to reach it"
    )]
    DebugAddress {
        /// The configured address.
        address: String,
        /// The option that set it.
        option: &'static str,
    },
    /// The CRDs are not installed.
    #[error("cannot start without the CRDs")]
    Install(#[source] InstallError),
    /// The leader election's configuration is invalid.
    #[error(transparent)]
    ElectionConfig(#[from] ElectionConfigError),
    /// This process lost leadership.
    #[error(transparent)]
    Election(#[from] ElectionError),
    /// A controller failed.
    #[error("controller `{controller}` failed: {cause}")]
    Controller {
        /// The controller's name.
        controller: String,
        /// The error.
        #[source]
        cause: ControllerError,
    },
    /// A controller cannot start, and [`OnBlocked::Fail`] is set.
    #[error("cannot start: {0}")]
    Blocked(String),
    /// A task failed.
    #[error("task `{task}` failed: {cause}")]
    Task {
        /// The task's name.
        task: String,
        /// The error.
        cause: Error,
    },
    /// A task, or a controller outside its reconciler, panicked.
    #[error("`{part}` panicked: {message}")]
    Panicked {
        /// The controller or task.
        part: String,
        /// The panic message.
        message: String,
    },
    /// Some controllers or tasks did not finish within the grace period and were cancelled.
    #[error("cancelled after the grace period of {grace:?}: {}", parts.join(", "))]
    GracePeriodExceeded {
        /// The grace period.
        grace: Duration,
        /// The controllers and tasks.
        parts: Vec<String>,
    },
    /// The process cannot listen for SIGTERM and SIGINT.
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
}

impl Manager {
    /// Creates a manager without controllers, for the client's cluster.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            client_options: ClientOptions::default(),
            host: "kubernetes".to_owned(),
            server_url: None,
            max_staleness: DEFAULT_MAX_STALENESS,
            scope: WatchScope::all(),
            controllers: Vec::new(),
            tasks: Vec::new(),
            election: None,
            install: None,
            installed: Arc::default(),
            listen: None,
            debug_listen: None,
            health: Checks::new(),
            ready: Checks::new(),
            grace: DEFAULT_GRACE_PERIOD,
            on_blocked: OnBlocked::default(),
            quiet: false,
            metrics: Metrics::new(),
            #[cfg(feature = "opentelemetry")]
            telemetry: None,
        }
    }

    /// Adds a controller.
    pub fn controller<K, R>(mut self, controller: Controller<K, R>) -> Self
    where
        K: Reconcilable<Kind: Send> + 'static,
        R: Reconciler<K::Key>,
    {
        self.controllers.push(controller.into());
        self
    }

    /// Adds a task that runs on every replica once the caches of all controllers have synced, except of those that [cannot
    /// start](Self::on_blocked). It may return; if it fails, the manager stops. It should end when [`TaskContext::stopping`]
    /// completes.
    ///
    /// It is called once, so it may own what it needs, such as the receiver of a channel.
    pub fn task<F, Fut>(mut self, name: impl Into<String>, task: F) -> Self
    where
        F: FnOnce(TaskContext) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Error>> + Send + 'static,
    {
        self.tasks.push(Task::once(name.into(), TaskScope::Replica, task));
        self
    }

    /// Adds a task that runs while this process leads, once in each term. Without leader election it runs once.
    pub fn leader_task<F, Fut>(mut self, name: impl Into<String>, task: F) -> Self
    where
        F: Fn(TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Error>> + Send + 'static,
    {
        self.tasks.push(Task::each_term(name.into(), task));
        self
    }

    /// Adds a service that runs on every replica from the start, before the caches have synced: for background work that
    /// controllers and tasks depend on. It is stopped after they have ended, and then has the rest of the grace period. If
    /// it fails, the manager stops. Like a [task](Self::task), it is called once:
    ///
    /// ```
    /// # fn example(manager: windlass_runtime::Manager) {
    /// let (sender, mut receiver) = tokio::sync::mpsc::channel::<String>(16);
    /// let manager = manager.service("mailer", |ctx| async move {
    ///     tokio::select! {
    ///         () = ctx.stopping() => {}
    ///         Some(mail) = receiver.recv() => println!("{mail}"),
    ///     }
    ///     Ok(())
    /// });
    /// # }
    /// ```
    pub fn service<F, Fut>(mut self, name: impl Into<String>, service: F) -> Self
    where
        F: FnOnce(TaskContext) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Error>> + Send + 'static,
    {
        self.tasks
            .push(Task::once(name.into(), TaskScope::Service, service));
        self
    }

    /// Watches this namespace only, for controllers with permissions in one namespace. Cluster-scoped kinds are not affected.
    /// Default: all namespaces.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        self.namespaces([namespace])
    }

    /// Watches these namespaces only, with one watch for each.
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.scope = self.scope.namespaces(namespaces);
        self
    }

    /// Enables leader election: reconciles run only while this process holds the lease. Default: no election.
    ///
    /// Writes of reconciles go through a fence that closes when the lease expires.
    pub fn elect(mut self, election: ElectionConfig) -> Self {
        self.election = Some(election);
        self
    }

    /// With [`CrdInstaller::apply`], installs these CRDs before any watch starts. Without, a controller whose kind is not
    /// installed waits for it, as [`on_blocked`](Self::on_blocked) says, and the log names `--install` as a fix.
    pub fn install(mut self, install: CrdInstaller) -> Self {
        self.install = Some(install);
        self
    }

    /// Whether CRDs are installed at the start: `--install`. What else a program has to install, such as the registration of
    /// webhooks, is installed then too.
    pub fn installs(&self) -> bool {
        self.install.as_ref().is_some_and(CrdInstaller::is_applied)
    }

    /// Serves `/healthz`, `/readyz` and `/metrics` on this address, for example `0.0.0.0:8080` in a pod, so that the kubelet
    /// and Prometheus reach it. Default: nothing is served.
    ///
    /// The debug pages, `/debug/controllers` and `/debug/caches`, are served there too if it is a loopback address, such as
    /// `127.0.0.1:8080`, unless [`debug_listen`](Self::debug_listen) is set.
    pub fn listen(self, address: impl Into<String>) -> Self {
        self.listen_with_option(address.into(), "Manager::listen")
    }

    pub(crate) fn listen_with_option(mut self, address: String, option: &'static str) -> Self {
        self.listen = Some((address, option));
        self
    }

    /// Serves the debug pages on this address only. It must be a loopback address: debug pages show object names and errors
    /// without authentication. In a pod, use `kubectl port-forward`, which the API server authorizes. Default: see
    /// [`listen`](Self::listen).
    pub fn debug_listen(self, address: impl Into<String>) -> Self {
        self.debug_listen_with_option(address.into(), "Manager::debug_listen")
    }

    pub(crate) fn debug_listen_with_option(mut self, address: String, option: &'static str) -> Self {
        self.debug_listen = Some((address, option));
        self
    }

    /// Adds a liveness check to `/healthz`; if it fails, the kubelet restarts the process.
    pub fn check_health<F, Fut>(mut self, name: impl Into<String>, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        self.health = self.health.add(name, check);
        self
    }

    /// Adds a readiness check to `/readyz`.
    pub fn check_ready<F, Fut>(mut self, name: impl Into<String>, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        self.ready = self.ready.add(name, check);
        self
    }

    /// How long running reconciles and tasks may take to finish after a stop; zero cancels them at once. Default: 30 s.
    pub fn grace_period(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// What to do about a controller that cannot start because a CRD or a right is missing, or because one of its kinds cannot
    /// be listed. Default: the others start without it, [`OnBlocked::Continue`].
    ///
    /// Rights to what the runtime surely writes (children, the status, finalizers, events, the lease) are asked for at the
    /// start with access reviews, unless the manager is [quiet](Self::quiet). A missing one is logged with the rules to add,
    /// and does not block.
    pub fn on_blocked(mut self, policy: OnBlocked) -> Self {
        self.on_blocked = policy;
        self
    }

    /// Logs the lifecycle of controllers at debug level, for a manager embedded in another program. Default: info.
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// The client without the rate limit and retries that [`client_options`](Self::client_options) add.
    #[cfg(all(feature = "clap", feature = "logging"))]
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Rate limit and retries of the client. Default: no rate limit; requests are retried when the server asks for it.
    pub fn client_options(mut self, options: ClientOptions) -> Self {
        self.client_options = options;
        self
    }

    /// The `host` label of the metric `rest_client_requests_total`. Default: `kubernetes`.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = host.into();
        self
    }

    /// The server's URL in log lines about its connection. Default: none.
    pub fn server_url(mut self, url: impl Into<String>) -> Self {
        self.server_url = Some(url.into());
        self
    }

    /// `/readyz` fails when a cache has not been able to follow the server for longer than this: reconciles then work with
    /// old objects. `/healthz` does not, because a restart would not help. Default: two minutes.
    pub fn max_staleness(mut self, limit: Duration) -> Self {
        self.max_staleness = limit;
        self
    }

    /// Returns a handle to the status of the controllers added so far: the data of `/debug/controllers`.
    pub fn controllers(&self) -> Controllers {
        Controllers::new(&self.controllers, Arc::clone(&self.installed))
    }

    /// Exports spans and metrics while the manager runs, and the rest of them at the end, after everything else has stopped.
    /// Replaces an earlier one, such as that of [`launch`](crate::launch). Default: nothing is exported.
    #[cfg(feature = "opentelemetry")]
    pub fn telemetry(mut self, telemetry: crate::Telemetry) -> Self {
        self.telemetry = Some(telemetry);
        self
    }

    /// Returns the metrics registry, to add metrics to it.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }
}

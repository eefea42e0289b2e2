//! Runs a manager: start order and shutdown order.

use std::{
    collections::HashSet,
    future::{Future, pending},
    iter,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use futures::future::{Either, OptionFuture, select};
use kube::Client;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};
use windlass_api::naming::is_qualified_name;
use windlass_cache::{CacheSet, ConnectionLog, WatchScope};

use super::{
    Controllers, Manager, ManagerError, TaskContext,
    signals::Signals,
    task::{Task, TaskScope},
    task_set::TaskSet,
};
use crate::{
    controller_run::{ControllerEnv, ErasedController},
    election::{Election, ElectionError, ElectionStatus},
    error::Error,
    events::{self, DropReason, Recorder},
    install::CrdInstaller,
    layers::{ClientOptions, with_connection_log, wrap},
    metrics::{Metrics, Reading},
    serving::{CacheStatus, Checks, Endpoints, Listener},
    source::BoxFuture,
    start_report::{OnBlocked, StartReport, election_rights},
    stop::{StopPhase, StopSender, StopSignal},
    terms::{Term, Terms},
    writer::Writer,
};

impl Manager {
    /// Runs until SIGTERM or SIGINT. A second signal ends the process at once.
    pub async fn run(self) -> Result<(), ManagerError> {
        let mut signals = Signals::new().map_err(ManagerError::Signals)?;
        let mut second = Signals::new().map_err(ManagerError::Signals)?;
        let run = self.run_until(async move { signals.next().await });
        let killed = async move {
            second.next().await;
            second.next().await;
        };
        match select(pin!(run), pin!(killed)).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(_) => {
                tracing::error!("received a second signal; exiting at once");
                // A reconcile that never awaits would block a graceful exit.
                std::process::exit(1)
            }
        }
    }

    /// Runs until `shutdown` completes.
    ///
    /// Dropping the returned future instead cancels every task at its next await, including running reconciles, and does not
    /// release the lease.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<(), ManagerError> {
        // The future is large; boxed, it does not grow the caller's.
        Box::pin(self.run_all(shutdown)).await
    }

    async fn run_all(self, shutdown: impl Future<Output = ()>) -> Result<(), ManagerError> {
        check_names(&self.controllers)?;
        let shutdown = pin!(shutdown);
        let listener = match &self.listen {
            Some((address, option)) => Some(Listener::bind(address, option).await?),
            None => None,
        };
        let debug_listener = match &self.debug_listen {
            Some((address, option)) => Some(bind_loopback(address, option).await?),
            None => None,
        };
        let server_url: Option<Arc<str>> = self.server_url.as_deref().map(Arc::from);
        let connection = Arc::new(self.server_url.map(ConnectionLog::new).unwrap_or_default());
        let options = ClientOptions {
            metrics: Some(self.metrics.requests(&self.host)),
            connection_log: Some(Arc::clone(&connection)),
            ..self.client_options
        };
        let bare_client = self.client.clone();
        let client = wrap(bare_client.clone(), options);
        // Lease renewals must not queue behind the rate limit of controllers, so they use the bare client.
        let election = self
            .election
            .map(|config| {
                let log = Arc::clone(&connection);
                let client = with_connection_log(self.client, log, config.timing.retry);
                Election::new(client, config)
            })
            .transpose()?;
        let caches = CacheSet::new(client.clone()).with_connection_log(connection);
        let controllers = Controllers::new(&self.controllers, self.installed);
        let status = election.as_ref().map(Election::status);
        register_metrics(&self.metrics, &caches, status.as_ref());

        let (closing, closed) = StopSignal::new();
        let mut endpoints = endpoints(
            self.health,
            with_staleness(self.ready, &caches, self.max_staleness),
            &self.metrics,
            &controllers,
            status.as_ref(),
        );
        if debug_listener.is_none() && listener.as_ref().is_some_and(Listener::is_loopback) {
            endpoints = with_debug_pages(endpoints, &controllers, &caches);
        }
        let debug_endpoints = with_debug_pages(Endpoints::new(), &controllers, &caches);
        let serving = serve(listener, endpoints, closed.clone());
        let debugging = serve(debug_listener, debug_endpoints, closed.clone());
        #[cfg(feature = "opentelemetry")]
        let exporting = export(self.telemetry, self.metrics.clone(), closed);
        #[cfg(not(feature = "opentelemetry"))]
        let exporting = std::future::ready(());
        let running = async {
            let install = self.install;
            let running = ManagerRun {
                installs: install.as_ref().is_some_and(CrdInstaller::is_applied),
                server_url,
                client,
                bare_client,
                caches,
                controllers: &controllers,
                scope: self.scope,
                grace: self.grace,
                on_blocked: self.on_blocked,
                quiet: self.quiet,
                metrics: self.metrics,
            };
            let outcome = running
                .run(self.controllers, self.tasks, election, install, shutdown)
                .await;
            closing.advance_to(StopPhase::Finishing);
            outcome
        };
        futures::join!(running, serving, debugging, exporting).0
    }
}

/// Binds the address, which must be a loopback address.
async fn bind_loopback(address: &str, option: &'static str) -> Result<Listener, ManagerError> {
    let listener = Listener::bind(address, option).await?;
    if !listener.is_loopback() {
        return Err(ManagerError::DebugAddress {
            address: address.to_owned(),
            option,
        });
    }
    Ok(listener)
}

async fn serve(listener: Option<Listener>, endpoints: Endpoints, mut closed: StopSignal) {
    if let Some(listener) = listener {
        listener
            .serve(endpoints, async move { closed.requested().await })
            .await;
    }
}

/// Exports spans and metrics until everything else has ended.
#[cfg(feature = "opentelemetry")]
fn export(
    telemetry: Option<crate::Telemetry>,
    metrics: Metrics,
    closed: StopSignal,
) -> impl Future<Output = ()> {
    if let Some(telemetry) = &telemetry {
        telemetry.register(&metrics);
    }
    async move {
        if let Some(telemetry) = telemetry {
            telemetry.run(metrics, closed).await;
        }
    }
}

fn check_names(controllers: &[ErasedController]) -> Result<(), ManagerError> {
    let mut names = HashSet::new();
    for ErasedController { name, .. } in controllers {
        if !is_qualified_name(name) {
            return Err(ManagerError::InvalidName(name.clone()));
        }
        if !names.insert(name) {
            return Err(ManagerError::DuplicateName(name.clone()));
        }
    }
    Ok(())
}

/// Registers the metrics of the caches and the leader election.
fn register_metrics(metrics: &Metrics, caches: &CacheSet, election: Option<&ElectionStatus>) {
    let reported = caches.clone();
    metrics.caches(move || reported.reports());
    if let Some(status) = election {
        let (leader, slow_paths) = (status.clone(), status.clone());
        metrics.leader(
            status.name(),
            move || leader.is_leader(),
            move || slow_paths.slow_paths(),
        );
    }
}

fn endpoints(
    health: Checks,
    ready: Checks,
    metrics: &Metrics,
    controllers: &Controllers,
    election: Option<&ElectionStatus>,
) -> Endpoints {
    let mut health = health.add("ping", || async { Ok(()) });
    if let Some(status) = election.cloned() {
        health = health.add("leaderElection", move || {
            let checked = status.check(LEASE_TOLERANCE);
            async move { Ok(checked?) }
        });
    }
    let watched = controllers.clone();
    let ready = ready.add("controllers", move || {
        let unready = watched.not_ready_reasons();
        async move {
            if unready.is_empty() {
                return Ok(());
            }
            Err(unready.join("; ").into())
        }
    });
    Endpoints::new()
        .health(health)
        .ready(ready)
        .metrics(metrics.clone())
}

/// Adds the check that all caches follow the server.
fn with_staleness(ready: Checks, caches: &CacheSet, limit: Duration) -> Checks {
    let caches = caches.clone();
    ready.add("caches", move || {
        let stale = caches.stale(limit);
        let reasons: Vec<_> = stale
            .iter()
            .map(|cache| {
                let (kind, seconds, error) = (&cache.kind, cache.since.as_secs(), &cache.error);
                format!("the cache of {kind} is {seconds} s old: {error}")
            })
            .collect();
        async move {
            if reasons.is_empty() {
                return Ok(());
            }
            Err(reasons.join("; ").into())
        }
    })
}

fn with_debug_pages(endpoints: Endpoints, controllers: &Controllers, caches: &CacheSet) -> Endpoints {
    let (shown, reported) = (controllers.clone(), caches.clone());
    endpoints
        .controllers(move || shown.status())
        .caches(move || reported.reports().into_iter().map(CacheStatus::from).collect())
}

/// How long a leader may fail to renew its lease past expiry before it counts as unhealthy.
const LEASE_TOLERANCE: Duration = Duration::from_secs(20);

/// State shared by everything that a manager runs.
struct ManagerRun<'a> {
    client: Client,
    /// Without rate limit and retries.
    bare_client: Client,
    caches: CacheSet,
    controllers: &'a Controllers,
    installs: bool,
    server_url: Option<Arc<str>>,
    scope: WatchScope,
    grace: Duration,
    on_blocked: OnBlocked,
    quiet: bool,
    metrics: Metrics,
}

impl ManagerRun<'_> {
    async fn install(&self, crds: CrdInstaller) -> Result<(), ManagerError> {
        let writer = Writer::new(self.client.clone(), "windlass");
        crds.run(&writer).await.map_err(ManagerError::Install)
    }

    /// Logs what the controllers wait for, and which rights are missing. Completes only with [`OnBlocked::Fail`], with what is
    /// missing.
    fn start_report(&self, install: Option<&CrdInstaller>, election: Option<&Election>) -> BoxFuture<String> {
        let rights = election.map(|election| {
            let (namespace, lease) = election.lease();
            election_rights(namespace, lease)
        });
        let report = StartReport {
            controllers: self.controllers.trackers(),
            client: self.bare_client.clone(),
            policy: self.on_blocked,
            installable: install.into_iter().flat_map(CrdInstaller::names).collect(),
            rights: rights.unwrap_or_default(),
            quiet: self.quiet,
        };
        Box::pin(report.run())
    }

    async fn run(
        self,
        controllers: Vec<ErasedController>,
        tasks: Vec<Task>,
        election: Option<Election>,
        install: Option<CrdInstaller>,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), ManagerError> {
        let mut blocked = self.start_report(install.as_ref(), election.as_ref());
        // Otherwise each controller waits for its own kinds, so that a missing one does not hold the others.
        if let Some(install) = install.filter(CrdInstaller::is_applied) {
            tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                installed = self.install(install) => installed?,
            }
        }
        self.controllers.set_installed();
        let (stop_sender, stop) = StopSignal::new();
        // Services end after controllers and tasks.
        let (service_stop_sender, service_stop) = StopSignal::new();
        // The event writers outlive the work, and the lease outlives the event writers, which need it to write.
        let (work_done_sender, work_done) = StopSignal::new();
        let (events_done_sender, events_done) = StopSignal::new();
        let (recorder, events) = events::channel(self.client.clone(), "windlass");
        let fenced = election
            .as_ref()
            .map(|election| election.fence().client(self.client.clone()));
        let (leader_recorder, leader_events) =
            fenced.map(|client| events::channel(client, "windlass")).unzip();
        self.register_event_metrics(iter::once(&recorder).chain(&leader_recorder).cloned().collect());
        let leader_recorder = leader_recorder.unwrap_or_else(|| recorder.clone());
        let terms = election.as_ref().map_or_else(Terms::endless, |election| {
            Terms::elected(election.status().subscribe(), election.fence())
        });
        let (mut serving, mut parts) = (TaskSet::default(), TaskSet::default());
        let (services, tasks): (Vec<_>, _) = tasks.into_iter().partition(Task::is_service);
        for service in services {
            self.spawn_task(service, &mut serving, &terms, (&service_stop, &stop), &recorder);
        }
        for controller in controllers {
            let is_leaders = controller.leader_only;
            let recorder = if is_leaders { &leader_recorder } else { &recorder };
            self.spawn_controller(controller, &mut parts, &terms, &stop, recorder);
        }
        let (loss_sender, loss_receiver) = oneshot::channel();
        let electing = async {
            if let Some(election) = election
                && let Err(error) = self.take_part(election, stop.clone(), events_done).await
            {
                let _ = loss_sender.send(error);
            }
        };
        let working = async {
            let mut outcome = Ok(());
            let mut tasks = Some(tasks);
            let mut ready = pin!(self.controllers.started(self.on_blocked));
            let mut lost = pin!(leadership_lost(loss_receiver));
            loop {
                tokio::select! {
                    biased;
                    () = &mut shutdown => break,
                    lost = &mut lost => {
                        outcome = Err(lost.into());
                        break;
                    }
                    missing = &mut blocked => {
                        outcome = Err(ManagerError::Blocked(missing));
                        break;
                    }
                    ended = parts.join_next() => if ended.is_err() {
                        outcome = ended;
                        break;
                    },
                    ended = serving.join_next() => if ended.is_err() {
                        outcome = ended;
                        break;
                    },
                    () = &mut ready, if tasks.is_some() => {
                        for task in tasks.take().into_iter().flatten() {
                            let is_leaders = task.scope == TaskScope::Leader;
                            let recorder = if is_leaders { &leader_recorder } else { &recorder };
                            self.spawn_task(task, &mut parts, &terms, (&stop, &stop), recorder);
                        }
                    }
                }
            }
            // The first failure is the cause; later ones may be its consequence.
            let stopped = Instant::now();
            outcome = outcome.and(self.finish(&mut parts, &stop_sender, self.grace).await);
            let left = self.grace.saturating_sub(stopped.elapsed());
            outcome = outcome.and(self.finish(&mut serving, &service_stop_sender, left).await);
            work_done_sender.advance_to(StopPhase::Finishing);
            outcome
        };
        let writing = async {
            let until_work_done = || {
                let mut ended = work_done.clone();
                async move { ended.requested().await }
            };
            let led = leader_events.map(|events| events.run_until(until_work_done()));
            futures::join!(events.run_until(until_work_done()), OptionFuture::from(led));
            events_done_sender.advance_to(StopPhase::Finishing);
        };
        let (outcome, (), ()) = futures::join!(working, electing, writing);
        self.caches.close().await;
        outcome
    }

    /// Takes part in the election once the controllers have started, until stopped and the last events are written.
    async fn take_part(
        &self,
        election: Election,
        mut stop: StopSignal,
        mut events_done: StopSignal,
    ) -> Result<(), ElectionError> {
        tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            () = self.controllers.started(self.on_blocked) => {}
        }
        let ended = async move { events_done.requested().await };
        election
            .run_until(async move { stop.requested().await }, ended)
            .await
    }

    fn spawn_controller(
        &self,
        controller: ErasedController,
        parts: &mut TaskSet,
        terms: &Terms,
        stop: &StopSignal,
        recorder: &Recorder,
    ) {
        let env = ControllerEnv {
            caches: self.caches.clone(),
            scope: self.scope.clone(),
            terms: if controller.leader_only {
                terms.clone()
            } else {
                Terms::endless()
            },
            stop: stop.clone(),
            recorder: recorder.clone(),
            metrics: self.metrics.clone(),
            tracker: controller.tracker,
            quiet: self.quiet,
        };
        let (ended, name) = ((controller.run)(env), controller.name);
        let controller = name.clone();
        parts.spawn(name, async move {
            ended
                .await
                .map_err(|cause| ManagerError::Controller { controller, cause })
        });
    }

    /// Waits for everything to finish in the rest of the grace period, then cancels it.
    async fn finish(
        &self,
        parts: &mut TaskSet,
        stop_sender: &StopSender,
        left: Duration,
    ) -> Result<(), ManagerError> {
        stop_sender.advance_to(StopPhase::Finishing);
        let mut outcome = Ok(());
        let finished = async {
            while !parts.tasks.is_empty() {
                let ended = parts.join_next().await;
                outcome = std::mem::replace(&mut outcome, Ok(())).and(ended);
            }
        };
        if timeout(left, finished).await.is_ok() {
            return outcome;
        }
        let late = ManagerError::GracePeriodExceeded {
            grace: self.grace,
            parts: parts.remaining(),
        };
        // Without a grace period the cancellation is intended.
        if !self.grace.is_zero() {
            tracing::error!("{late}");
        }
        stop_sender.advance_to(StopPhase::Ended);
        while !parts.tasks.is_empty() {
            outcome = outcome.and(parts.join_next().await);
        }
        outcome.and(Err(late))
    }

    fn spawn_task(
        &self,
        task: Task,
        parts: &mut TaskSet,
        terms: &Terms,
        (stop, manager_stop): (&StopSignal, &StopSignal),
        recorder: &Recorder,
    ) {
        let Task {
            name,
            scope,
            mut start,
        } = task;
        let terms = match scope {
            TaskScope::Leader => terms.clone(),
            TaskScope::Replica | TaskScope::Service => Terms::endless(),
        };
        let (caches, scope, recorder) = (self.caches.clone(), self.scope.clone(), recorder.source(&name));
        let manager_stop = manager_stop.clone();
        let (installs, server_url) = (self.installs, self.server_url.clone());
        let start = move |term: &Term, stop: StopSignal| {
            start(TaskContext {
                client: term.client(caches.client().clone()),
                caches: caches.clone(),
                scope: scope.clone(),
                recorder: recorder.clone(),
                epoch: term.epoch(),
                stop,
                manager_stop: manager_stop.clone(),
                installs,
                server_url: server_url.clone(),
            })
        };
        let (task, stop) = (name.clone(), stop.clone());
        parts.spawn(name, async move {
            let ended = run_in_terms(terms, stop, start).await;
            ended.map_err(|cause| ManagerError::Task { task, cause })
        });
    }

    fn register_event_metrics(&self, recorders: Vec<Recorder>) {
        let writers = recorders.clone();
        self.metrics.read_counter(
            "windlass_events_written",
            "Requests that created or updated events",
            move || {
                let written = writers.iter().map(|recorder| recorder.counts().written());
                [Reading::new(written.sum())]
            },
        );
        self.metrics.read_counter(
            "windlass_events_dropped",
            "Events that were never written, by reason",
            move || {
                DropReason::ALL.map(|reason| {
                    let dropped = recorders.iter().map(|recorder| recorder.counts().dropped(reason));
                    Reading::new(dropped.sum()).label("reason", reason.label())
                })
            },
        );
    }
}

/// Completes when leadership is lost. Never completes without leader election, or after it has ended without error.
async fn leadership_lost(receiver: oneshot::Receiver<ElectionError>) -> ElectionError {
    match receiver.await {
        Ok(lost) => lost,
        Err(_) => pending().await,
    }
}

/// Runs a task once in each term, until stopped.
async fn run_in_terms(
    mut terms: Terms,
    mut stop: StopSignal,
    mut start: impl FnMut(&Term, StopSignal) -> BoxFuture<Result<(), Error>>,
) -> Result<(), Error> {
    loop {
        let mut term = tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            term = terms.next() => term,
        };
        let (stop_sender, stop_signal) = StopSignal::new();
        let mut task = start(&term, stop_signal);
        let ended = tokio::select! {
            biased;
            ended = &mut task => Some(ended),
            () = stop.requested() => None,
            () = term.lost() => None,
        };
        match ended {
            // The task is done for this term.
            Some(ended) => {
                ended?;
                if term.epoch().is_none() {
                    return Ok(());
                }
                tokio::select! {
                    () = stop.requested() => {}
                    () = term.lost() => {}
                }
            }
            None => {
                stop_sender.advance_to(StopPhase::Finishing);
                tokio::select! {
                    biased;
                    ended = &mut task => ended?,
                    () = stop.ended() => {}
                    () = term.expired() => {}
                }
            }
        }
    }
}

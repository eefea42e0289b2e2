//! A manager's run: what starts after what, and how it ends.

use std::{
    collections::HashSet,
    future::{Future, pending},
    iter,
    pin::{Pin, pin},
    time::Duration,
};

use futures::future::{Either, OptionFuture, select};
use kube::Client;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};
use windlass_cache::{Caches, Selection};

use super::{
    Controllers, Manager, ManagerError, TaskContext,
    parts::Parts,
    signals::Signals,
    task::{Scope, Task},
};
use crate::{
    control::{Env, Prepared},
    election::{Election, ElectionError, ElectionStatus},
    error::Error,
    events::{self, DropReason, Recorder},
    install::Install,
    layers::{ClientOptions, wrap},
    metrics::{Metrics, Reading},
    serving::{CacheStatus, Checks, Endpoints, Listener},
    source::Boxed,
    stop::{Phase, Stop, Switch},
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
                tracing::error!("a second signal: ending at once");
                // A reconcile that never awaits could hold up every gentler way.
                std::process::exit(1)
            }
        }
    }

    /// Runs until `shutdown` completes.
    ///
    /// Dropping the returned future instead ends every task at its next await, running reconciles included, and releases
    /// no lease.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<(), ManagerError> {
        // It is large, and whoever awaits it should not have to carry it.
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
        let options = ClientOptions {
            metrics: Some(self.metrics.requests(&self.host)),
            ..self.client_options
        };
        let client = wrap(self.client.clone(), options);
        // A lease must not wait for its turn behind a controller's requests.
        let election = self
            .election
            .map(|config| Election::new(self.client, config))
            .transpose()?;
        let caches = Caches::new(client.clone());
        let boards = Controllers::of(&self.controllers);
        let status = election.as_ref().map(Election::status);
        show(&self.metrics, &caches, status.as_ref());

        let (closing, closed) = Stop::new();
        let mut endpoints = endpoints(self.health, self.ready, &self.metrics, &boards, status.as_ref());
        if debug_listener.is_none() && listener.as_ref().is_some_and(Listener::is_loopback) {
            endpoints = with_debug_pages(endpoints, &boards, &caches);
        }
        let debug_endpoints = with_debug_pages(Endpoints::new(), &boards, &caches);
        let serving = serve(listener, endpoints, closed.clone());
        let debugging = serve(debug_listener, debug_endpoints, closed);
        let running = async {
            let install = self.install;
            let running = Running {
                client,
                caches,
                boards: &boards,
                selection: self.selection,
                grace: self.grace,
                quiet: self.quiet,
                metrics: self.metrics,
            };
            let outcome = running
                .run(self.controllers, self.tasks, election, install, shutdown)
                .await;
            closing.throw(Phase::Finishing);
            outcome
        };
        futures::join!(running, serving, debugging).0
    }
}

/// Takes an address that only this machine reaches.
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

async fn serve(listener: Option<Listener>, endpoints: Endpoints, mut closed: Stop) {
    if let Some(listener) = listener {
        listener
            .serve(endpoints, async move { closed.requested().await })
            .await;
    }
}

fn check_names(controllers: &[Prepared]) -> Result<(), ManagerError> {
    let mut names = HashSet::new();
    for Prepared { name, .. } in controllers {
        let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let bytes = name.as_bytes();
        if bytes.len() > 63
            || !edge(bytes.first())
            || !edge(bytes.last())
            || !bytes.iter().all(|byte| inner(*byte))
        {
            return Err(ManagerError::InvalidName(name.clone()));
        }
        if !names.insert(name) {
            return Err(ManagerError::DuplicateName(name.clone()));
        }
    }
    Ok(())
}

/// Figures that other parts keep.
fn show(metrics: &Metrics, caches: &Caches, election: Option<&ElectionStatus>) {
    let shown = caches.clone();
    metrics.caches(move || shown.reports());
    if let Some(status) = election {
        let (leads, slow) = (status.clone(), status.clone());
        metrics.leader(
            status.name(),
            move || leads.is_leader(),
            move || slow.slow_paths(),
        );
    }
}

fn endpoints(
    health: Checks,
    ready: Checks,
    metrics: &Metrics,
    boards: &Controllers,
    election: Option<&ElectionStatus>,
) -> Endpoints {
    let mut health = health.add("ping", || async { Ok(()) });
    if let Some(status) = election.cloned() {
        health = health.add("leaderElection", move || {
            let checked = status.check(LEASE_TOLERANCE);
            async move { Ok(checked?) }
        });
    }
    let watched = boards.clone();
    let ready = ready.add("controllers", move || {
        let unready = watched.unready();
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

fn with_debug_pages(endpoints: Endpoints, boards: &Controllers, caches: &Caches) -> Endpoints {
    let (shown, reported) = (boards.clone(), caches.clone());
    endpoints
        .controllers(move || shown.status())
        .caches(move || reported.reports().into_iter().map(CacheStatus::from).collect())
}

/// How long a leader may be overdue before it counts as unhealthy.
const LEASE_TOLERANCE: Duration = Duration::from_secs(20);

/// What everything that runs shares.
struct Running<'a> {
    client: Client,
    caches: Caches,
    boards: &'a Controllers,
    selection: Selection,
    grace: Duration,
    quiet: bool,
    metrics: Metrics,
}

impl Running<'_> {
    async fn run(
        self,
        controllers: Vec<Prepared>,
        tasks: Vec<Task>,
        election: Option<Election>,
        install: Option<Install>,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), ManagerError> {
        if let Some(install) = install {
            let writer = Writer::new(self.client.clone(), "windlass");
            tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                installed = install.run(&writer) => installed.map_err(ManagerError::Install)?,
            }
        }
        let (switch, stop) = Stop::new();
        // Services end when controllers and tasks have.
        let (service_switch, service_stop) = Stop::new();
        // What must outlive the work: the means to tell of it, and the lease, without which nothing of a term is written.
        let (over, work_over) = Stop::new();
        let (told_all, all_told) = Stop::new();
        let (recorder, events) = events::channel(self.client.clone(), "windlass");
        let fenced = election
            .as_ref()
            .map(|election| election.fence().client(self.client.clone()));
        let (led_recorder, led_events) = fenced.map(|client| events::channel(client, "windlass")).unzip();
        self.show_events(iter::once(&recorder).chain(&led_recorder).cloned().collect());
        let led_recorder = led_recorder.unwrap_or_else(|| recorder.clone());
        let terms = election.as_ref().map_or_else(Terms::endless, |election| {
            Terms::elected(election.status().subscribe(), election.fence())
        });
        let (mut serving, mut parts) = (Parts::default(), Parts::default());
        let (services, tasks): (Vec<_>, _) = tasks.into_iter().partition(Task::is_service);
        for service in services {
            self.start(service, &mut serving, &terms, &service_stop, &recorder);
        }
        for controller in controllers {
            let recorder = if controller.led { &led_recorder } else { &recorder };
            self.control(controller, &mut parts, &terms, &stop, recorder);
        }
        let (tell, told) = oneshot::channel();
        let electing = async {
            let Some(election) = election else { return };
            self.boards.ready().await;
            let (mut stopping, mut ended) = (stop.clone(), all_told);
            let run = election.run_until(async move { stopping.requested().await }, async move {
                ended.requested().await;
            });
            if let Err(error) = run.await {
                let _ = tell.send(error);
            }
        };
        let working = async {
            let mut outcome = Ok(());
            let mut tasks = Some(tasks);
            let mut ready = pin!(self.boards.ready());
            let mut lost = pin!(loss(told));
            loop {
                tokio::select! {
                    biased;
                    () = &mut shutdown => break,
                    lost = &mut lost => {
                        outcome = Err(lost.into());
                        break;
                    }
                    ended = parts.ended() => if ended.is_err() {
                        outcome = ended;
                        break;
                    },
                    ended = serving.ended() => if ended.is_err() {
                        outcome = ended;
                        break;
                    },
                    () = &mut ready, if tasks.is_some() => {
                        for task in tasks.take().into_iter().flatten() {
                            let recorder = match task.scope {
                                Scope::Leader => &led_recorder,
                                Scope::Replica | Scope::Service => &recorder,
                            };
                            self.start(task, &mut parts, &terms, &stop, recorder);
                        }
                    }
                }
            }
            // The first failure is the cause; later ones may be its consequence.
            let stopped = Instant::now();
            outcome = outcome.and(self.finish(&mut parts, &switch, self.grace).await);
            let left = self.grace.saturating_sub(stopped.elapsed());
            outcome = outcome.and(self.finish(&mut serving, &service_switch, left).await);
            over.throw(Phase::Finishing);
            outcome
        };
        let writing = async {
            let until_over = || {
                let mut ended = work_over.clone();
                async move { ended.requested().await }
            };
            let led = led_events.map(|events| events.run_until(until_over()));
            futures::join!(events.run_until(until_over()), OptionFuture::from(led));
            told_all.throw(Phase::Finishing);
        };
        let (outcome, (), ()) = futures::join!(working, electing, writing);
        self.caches.close().await;
        outcome
    }

    fn control(
        &self,
        controller: Prepared,
        parts: &mut Parts,
        terms: &Terms,
        stop: &Stop,
        recorder: &Recorder,
    ) {
        let env = Env {
            caches: self.caches.clone(),
            selection: self.selection.clone(),
            terms: if controller.led {
                terms.clone()
            } else {
                Terms::endless()
            },
            stop: stop.clone(),
            recorder: recorder.clone(),
            metrics: self.metrics.clone(),
            board: controller.board,
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

    /// Lets everything end by itself in what is left of the grace period, then ends it.
    async fn finish(&self, parts: &mut Parts, switch: &Switch, left: Duration) -> Result<(), ManagerError> {
        switch.throw(Phase::Finishing);
        let mut outcome = Ok(());
        let finished = async {
            while !parts.tasks.is_empty() {
                let ended = parts.ended().await;
                outcome = std::mem::replace(&mut outcome, Ok(())).and(ended);
            }
        };
        if timeout(left, finished).await.is_ok() {
            return outcome;
        }
        let late = ManagerError::Grace {
            grace: self.grace,
            parts: parts.left(),
        };
        // Without a grace period it is what was asked for.
        if !self.grace.is_zero() {
            tracing::error!("{late}");
        }
        switch.throw(Phase::Ended);
        while !parts.tasks.is_empty() {
            outcome = outcome.and(parts.ended().await);
        }
        outcome.and(Err(late))
    }

    fn start(&self, task: Task, parts: &mut Parts, terms: &Terms, stop: &Stop, recorder: &Recorder) {
        let Task { name, scope, start } = task;
        let terms = match scope {
            Scope::Leader => terms.clone(),
            Scope::Replica | Scope::Service => Terms::endless(),
        };
        let (caches, recorder) = (self.caches.clone(), recorder.source(&name));
        let start = move |term: &Term, stop: Stop| {
            start(TaskContext {
                client: term.client(caches.client().clone()),
                caches: caches.clone(),
                recorder: recorder.clone(),
                epoch: term.epoch(),
                stop,
            })
        };
        let (task, stop) = (name.clone(), stop.clone());
        parts.spawn(name, async move {
            let ended = in_terms(terms, stop, start).await;
            ended.map_err(|cause| ManagerError::Task { task, cause })
        });
    }

    fn show_events(&self, recorders: Vec<Recorder>) {
        let told = recorders.clone();
        self.metrics.read_counter(
            "windlass_events_written",
            "Requests by which events were created or updated",
            move || {
                [Reading::new(
                    told.iter().map(|told| told.counts().written()).sum(),
                )]
            },
        );
        self.metrics.read_counter(
            "windlass_events_dropped",
            "Events that were never written, by reason",
            move || {
                DropReason::ALL.map(|reason| {
                    let dropped = recorders.iter().map(|told| told.counts().dropped(reason));
                    Reading::new(dropped.sum()).label("reason", reason.label())
                })
            },
        );
    }
}

/// How the leadership was lost. Without an election, and after one that ended well, there is nothing to lose: never.
async fn loss(told: oneshot::Receiver<ElectionError>) -> ElectionError {
    match told.await {
        Ok(lost) => lost,
        Err(_) => pending().await,
    }
}

/// Runs a task once in each term, until it is time to stop.
async fn in_terms(
    mut terms: Terms,
    mut stop: Stop,
    start: impl Fn(&Term, Stop) -> Boxed<Result<(), Error>>,
) -> Result<(), Error> {
    loop {
        let mut term = tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            term = terms.next() => term,
        };
        let (switch, halted) = Stop::new();
        let mut task = start(&term, halted);
        let ended = tokio::select! {
            biased;
            ended = &mut task => Some(ended),
            () = stop.requested() => None,
            () = term.lost() => None,
        };
        match ended {
            // Its work is done for this term.
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
                switch.throw(Phase::Finishing);
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

//! A controller's run from start to stop.

use std::{future::Future, sync::Arc, time::Duration};

use futures::future::try_join_all;
use kube::Resource;
use tokio::{
    task::{JoinError, JoinSet},
    time::timeout,
};
use windlass_cache::{Cacheable, Caches, Lister, ObjectKey, Query, Selection, SyncError};
use windlass_workqueue::{Add, Priority, WorkQueue};

use crate::{
    board::Board,
    controller::Controller,
    events::Recorder,
    listers::Listers,
    metrics::Metrics,
    reconcile::{Reconciler, World},
    serving::ControllerState,
    source::{Anywhere, Boxed, Declared, Pump, Ready, Source},
    stop::{Phase, Stop},
    terms::Terms,
    worker::{Work, panic_message},
    writer::Writer,
};

/// Why a controller stopped that was not asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// One of its caches ended.
    #[error(transparent)]
    Cache(#[from] SyncError),
    /// Its caches were not complete in time.
    #[error("its caches are not complete after {0:?}; what is missing was logged")]
    SyncTimeout(Duration),
    /// A watch ended although nobody asked.
    #[error("a watch ended")]
    SourceEnded,
    /// A function that maps a change to keys panicked; what it would have said is lost, so nothing can be trusted.
    #[error("the mapping from a change to objects panicked: {0}")]
    MappingPanicked(String),
}

/// What a manager gives a controller to run in.
pub(crate) struct Env {
    pub(crate) caches: Caches,
    pub(crate) selection: Selection,
    /// When this controller may reconcile.
    pub(crate) terms: Terms,
    pub(crate) stop: Stop,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) board: Arc<Board>,
    /// Its comings and goings are told to those who debug only.
    pub(crate) quiet: bool,
}

/// Tells of a controller's comings and goings.
macro_rules! told {
    ($quiet:expr, $($what:tt)*) => {
        if $quiet { tracing::debug!($($what)*) } else { tracing::info!($($what)*) }
    };
}

/// The tasks that fill a controller's queue.
struct Pumps {
    endless: JoinSet<()>,
    ending: JoinSet<()>,
}

impl Pumps {
    /// Returns when one has failed; streams may end.
    async fn failed(&mut self) -> ControllerError {
        loop {
            tokio::select! {
                ended = self.endless.join_next(), if !self.endless.is_empty() => return pump_ended(ended),
                ended = self.ending.join_next(), if !self.ending.is_empty() => {
                    if let Some(Err(_)) = &ended {
                        return pump_ended(ended);
                    }
                }
                else => return std::future::pending().await,
            }
        }
    }

    async fn shutdown(mut self) {
        self.endless.shutdown().await;
        self.ending.shutdown().await;
    }
}

fn pump_ended(ended: Option<Result<(), JoinError>>) -> ControllerError {
    match ended.and_then(Result::err).map(JoinError::try_into_panic) {
        Some(Ok(panic)) => ControllerError::MappingPanicked(panic_message(&*panic).to_owned()),
        _ => ControllerError::SourceEnded,
    }
}

impl<K: Cacheable + Resource<DynamicType: Send + Sync>, R: Reconciler> Controller<K, R> {
    /// Runs until it is time to stop. Not cancellation-safe in one way: dropping it aborts running reconciles at
    /// their next await.
    pub(crate) async fn run(self, env: Env) -> Result<(), ControllerError> {
        let Self {
            name,
            kind,
            declared,
            options,
            reconciler,
            ..
        } = self;
        let (mut stop, quiet) = (env.stop.clone(), env.quiet);
        let queue = options.queue.metrics(env.metrics.queue(&name)).build();
        env.board.works_on(&queue);
        let measured = queue.clone();
        env.metrics.before_scrape(move || measured.report_metrics());
        told!(env.quiet, controller = name, "setting up event handlers");
        let (mut pumps, waits) = start(declared, &env, options.anywhere.as_ref(), &queue);
        told!(env.quiet, controller = name, "starting");
        told!(env.quiet, controller = name, "waiting for caches");
        let ready = tokio::select! {
            biased;
            () = stop.requested() => Err(None),
            failed = pumps.failed() => Err(Some(failed)),
            ready = within(options.sync_timeout, try_join_all(waits)) => ready.map_err(Some),
        };
        let outcome = match ready {
            Err(failed) => failed.map_or(Ok(()), Err),
            Ok(ready) => {
                let mut listers = Listers::new(name.clone());
                for ready in ready {
                    ready(&mut listers);
                }
                let own = listers.get::<K>(&kind).ok().cloned();
                let everything = queue_all(own.clone(), queue.clone());
                let work = Arc::new(Work {
                    listers: Arc::new(listers),
                    queue: queue.clone(),
                    reconciler,
                    timeout: options.timeout,
                    outcomes: options.outcomes,
                    metrics: env.metrics.controller(&name, options.concurrency),
                    board: Arc::clone(&env.board),
                    is_there: Box::new(move |key| {
                        own.as_ref()
                            .map_or(Ok(true), |own| Ok(own.try_get(key)?.is_some()))
                    }),
                });
                let component = options.component.unwrap_or(name.clone());
                serve(
                    options.concurrency.get(),
                    &work,
                    &component,
                    env,
                    &mut pumps,
                    everything,
                )
                .await
            }
        };
        queue.close();
        pumps.shutdown().await;
        told!(quiet, controller = name, "stopped");
        outcome
    }
}

type Wait = Boxed<Result<Ready, SyncError>>;

/// Starts every source, and says what to wait for until they can be read.
fn start(
    declared: Vec<Declared>,
    env: &Env,
    anywhere: Option<&Anywhere>,
    queue: &WorkQueue<ObjectKey>,
) -> (Pumps, Vec<Wait>) {
    let mut pumps = Pumps {
        endless: JoinSet::new(),
        ending: JoinSet::new(),
    };
    let (mut waits, mut waiting_for) = (Vec::new(), Vec::new());
    for declare in declared {
        let Source { kind, pump, ready } = declare(&env.caches, &env.selection, anywhere.cloned());
        if let Some(ready) = ready {
            let (board, kind) = (Arc::clone(&env.board), kind.unwrap_or_default());
            waiting_for.push(kind.clone());
            waits.push(Box::pin(async move {
                let ready = ready().await?;
                board.synced(&kind);
                Ok(ready)
            }) as Wait);
        }
        match pump {
            Some(Pump::Endless(pump)) => drop(pumps.endless.spawn(pump(queue.clone()))),
            Some(Pump::Ending(pump)) => drop(pumps.ending.spawn(pump(queue.clone()))),
            None => {}
        }
    }
    env.board.is(ControllerState::Syncing { waiting_for });
    (pumps, waits)
}

async fn within<T>(
    limit: Option<Duration>,
    waiting: impl Future<Output = Result<T, SyncError>>,
) -> Result<T, ControllerError> {
    match limit {
        None => Ok(waiting.await?),
        Some(limit) => match timeout(limit, waiting).await {
            Ok(ready) => Ok(ready?),
            Err(_) => Err(ControllerError::SyncTimeout(limit)),
        },
    }
}

/// Reconciles term after term, until it is time to stop.
async fn serve<R: Reconciler>(
    workers: usize,
    work: &Arc<Work<R>>,
    component: &str,
    env: Env,
    pumps: &mut Pumps,
    queue_all: impl Fn(),
) -> Result<(), ControllerError> {
    let name = &work.listers.controller;
    let Env {
        caches,
        mut terms,
        mut stop,
        recorder,
        board,
        quiet,
        ..
    } = env;
    let recorder = recorder.source(component);
    let mut first = true;
    loop {
        board.is(ControllerState::Standby);
        let mut term = tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            failed = pumps.failed() => return Err(failed),
            term = terms.next() => term,
        };
        if !std::mem::take(&mut first) {
            // What was settled in an earlier term may have been unsettled by others since.
            queue_all();
        }
        board.is(ControllerState::Running);
        told!(
            quiet,
            controller = name,
            workers,
            epoch = term.epoch().map(|epoch| epoch.0),
            "starting workers"
        );
        let world = Arc::new(World {
            writer: Writer::new(term.client(caches.client().clone()), component),
            recorder: recorder.clone(),
            listers: Arc::clone(&work.listers),
            queue: work.queue.clone(),
            epoch: term.epoch(),
            memory: parking_lot::Mutex::default(),
        });
        let (switch, halted) = Stop::new();
        let mut running = JoinSet::new();
        for _ in 0..workers {
            running.spawn(Arc::clone(work).run(Arc::clone(&world), halted.clone()));
        }
        told!(quiet, controller = name, "started workers");
        let ended = tokio::select! {
            biased;
            () = stop.requested() => Some(Ok(())),
            failed = pumps.failed() => Some(Err(failed)),
            () = term.lost() => None,
        };
        board.is(ControllerState::Stopping);
        switch.throw(Phase::Finishing);
        told!(
            quiet,
            controller = name,
            running = work.queue.running(),
            "shutting down workers"
        );
        tokio::select! {
            () = async { while running.join_next().await.is_some() {} } => {}
            // One that is quiet is part of something that ends with it, and was given no time.
            () = stop.ended() => if quiet {
                tracing::debug!(controller = name, "the grace period is over");
            } else {
                tracing::warn!(controller = name, "the grace period is over");
            },
            () = term.expired() => tracing::warn!(controller = name, "the lease is over"),
        }
        running.shutdown().await;
        if let Some(outcome) = ended {
            return outcome;
        }
    }
}

/// Queues every object of the controller's own kind, behind what changes in the meantime.
fn queue_all<K: Cacheable>(own: Option<Lister<K>>, queue: WorkQueue<ObjectKey>) -> impl Fn() {
    let add = Add {
        priority: Priority::LOW,
        ..Add::default()
    };
    move || {
        for object in own.iter().flat_map(|own| own.list_stored(&Query::all())) {
            queue.add_with(object.key().clone(), add);
        }
    }
}

/// A controller whose types a manager need not know.
pub(crate) struct Prepared {
    pub(crate) name: String,
    /// Only the leader reconciles.
    pub(crate) led: bool,
    pub(crate) board: Arc<Board>,
    pub(crate) run: Run,
}

type Run = Box<dyn FnOnce(Env) -> Boxed<Result<(), ControllerError>> + Send>;

impl<K: Cacheable + Resource<DynamicType: Send + Sync>, R: Reconciler> From<Controller<K, R>> for Prepared {
    fn from(controller: Controller<K, R>) -> Self {
        Self {
            name: controller.name.clone(),
            led: controller.options.led,
            board: Arc::new(Board::new(
                controller.options.concurrency,
                Arc::clone(&controller.options.outcomes),
            )),
            run: Box::new(move |env| Box::pin(controller.run(env))),
        }
    }
}

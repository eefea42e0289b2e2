//! Runs one controller, from its start to its stop.

use std::{future::Future, sync::Arc, time::Duration};

use futures::future::try_join_all;
use tokio::{
    task::{JoinError, JoinSet},
    time::timeout,
};
use windlass_cache::{CacheSet, ObjectKey, SyncError, WatchScope};

use crate::{
    controller::{Controller, ControllerOptions},
    events::Recorder,
    key::{Reconcilable, ReconcileKey},
    key_tracker::KeyTracker,
    listers::Listers,
    metrics::Metrics,
    own_objects::OwnObjectsFn,
    reconcile::{ErasedReconciler, Reconciler, TermContext},
    serving::ControllerState,
    source::{BoxFuture, EventFilter, Pump, RegisterListerFn, Source, SourceBuilder, WaitsFor},
    status_tracker::StatusTracker,
    stop::{StopPhase, StopSignal},
    terms::Terms,
    trigger::KeyQueue,
    worker::{Worker, panic_message},
    writer::Writer,
};

/// Why a controller failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// One of its caches ended.
    #[error(transparent)]
    Cache(#[from] SyncError),
    /// Its caches did not sync in time.
    #[error("caches did not sync within {0:?}; the log names the missing kinds")]
    SyncTimeout(Duration),
    /// A watch or a custom source ended before the controller did.
    #[error("a watch or custom source ended unexpectedly")]
    SourceEnded,
    /// A function that maps changes to keys panicked. Its keys are lost, so the controller cannot continue.
    #[error("mapping a change to keys panicked: {0}")]
    MappingPanicked(String),
}

/// What a manager provides to a controller.
pub struct ControllerEnv {
    pub(crate) caches: CacheSet,
    pub(crate) scope: WatchScope,
    /// The terms in which this controller may reconcile.
    pub(crate) terms: Terms,
    pub(crate) stop: StopSignal,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) tracker: Arc<StatusTracker>,
    /// Lifecycle is logged at debug level.
    pub(crate) quiet: bool,
}

/// Logs a controller's lifecycle: at info, or at debug for quiet ones.
macro_rules! log_lifecycle {
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
    /// Completes when a pump has failed; streams may end.
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

/// A controller without its kind and the type of its reconciler.
pub struct RunnableController<Key> {
    name: String,
    declared: Vec<SourceBuilder<Key>>,
    options: ControllerOptions<Key>,
    reconciler: Box<dyn ErasedReconciler<Key>>,
    own_objects: Option<OwnObjectsFn<Key>>,
}

/// Runs a controller of objects. All of it is compiled here, and not again in each crate that has a controller.
pub(crate) fn run_objects(
    controller: RunnableController<ObjectKey>,
    env: ControllerEnv,
) -> BoxFuture<Result<(), ControllerError>> {
    Box::pin(controller.run(env))
}

impl<Key: ReconcileKey> RunnableController<Key> {
    /// Runs until stopped. Dropping it cancels running reconciles at their next await.
    pub(crate) async fn run(self, env: ControllerEnv) -> Result<(), ControllerError> {
        let Self {
            name,
            declared,
            options,
            reconciler,
            own_objects,
        } = self;
        let (mut stop, quiet) = (env.stop.clone(), env.quiet);
        let writes = options.declarative_writes();
        let queue: KeyQueue<Key> = options.queue.metrics(env.metrics.queue(&name)).build_tagged();
        let tracker = Arc::new(KeyTracker::new(queue.clone(), options.concurrency.get()));
        env.tracker.set_keys(Arc::clone(&tracker) as _);
        let measured = queue.clone();
        env.metrics.before_scrape(move || measured.report_metrics());
        log_lifecycle!(env.quiet, controller = name, "setting up event handlers");
        let (mut pumps, waits, sources) =
            start_sources(declared, &env, options.event_filter.as_ref(), &queue);
        env.tracker.start_syncing(sources, writes);
        log_lifecycle!(env.quiet, controller = name, "starting");
        log_lifecycle!(env.quiet, controller = name, "waiting for caches");
        let ready = tokio::select! {
            biased;
            () = stop.requested() => Err(None),
            failed = pumps.failed() => Err(Some(failed)),
            ready = with_sync_timeout(options.sync_timeout, try_join_all(waits)) => ready.map_err(Some),
        };
        env.tracker.end_syncing();
        let outcome = match ready {
            Err(failed) => failed.map_or(Ok(()), Err),
            Ok(ready) => {
                let mut listers = Listers::new(name.clone(), options.children);
                for ready in ready {
                    ready(&mut listers);
                }
                let own_objects = own_objects.and_then(|of_kind| of_kind(&listers));
                let work = Arc::new(Worker {
                    listers: Arc::new(listers),
                    queue: queue.clone(),
                    reconciler,
                    timeout: options.timeout,
                    outcomes: options.outcomes,
                    metrics: env.metrics.controller(&name, options.concurrency),
                    tracker,
                    own_objects,
                });
                let field_manager = options.field_manager.unwrap_or(name.clone());
                run_terms(options.concurrency.get(), &work, &field_manager, env, &mut pumps).await
            }
        };
        queue.close();
        pumps.shutdown().await;
        log_lifecycle!(quiet, controller = name, "stopped");
        outcome
    }
}

type ReadyFuture = BoxFuture<Result<RegisterListerFn, SyncError>>;

/// Starts every source. Returns the pumps, a future per source that waits until it can be read, and what it waits for.
fn start_sources<Key: ReconcileKey>(
    declared: Vec<SourceBuilder<Key>>,
    env: &ControllerEnv,
    event_filter: Option<&EventFilter>,
    queue: &KeyQueue<Key>,
) -> (Pumps, Vec<ReadyFuture>, Vec<WaitsFor>) {
    let mut pumps = Pumps {
        endless: JoinSet::new(),
        ending: JoinSet::new(),
    };
    let (mut waits, mut sources) = (Vec::new(), Vec::new());
    for declare in declared {
        let Source {
            waits_for,
            pump,
            ready,
        } = declare(&env.caches, &env.scope, event_filter.cloned());
        if let Some((ready, source)) = ready.zip(waits_for) {
            let (tracker, kind) = (Arc::clone(&env.tracker), source.name().to_owned());
            sources.push(source);
            waits.push(Box::pin(async move {
                let ready = ready().await?;
                tracker.kind_synced(&kind);
                Ok(ready)
            }) as ReadyFuture);
        }
        match pump {
            Some(Pump::Endless(pump)) => drop(pumps.endless.spawn(pump(queue.clone()))),
            Some(Pump::Finite(pump)) => drop(pumps.ending.spawn(pump(queue.clone()))),
            None => {}
        }
    }
    (pumps, waits, sources)
}

async fn with_sync_timeout<T>(
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

/// Runs the workers, term after term, until stopped.
async fn run_terms<Key: ReconcileKey>(
    workers: usize,
    work: &Arc<Worker<Key>>,
    field_manager: &str,
    env: ControllerEnv,
    pumps: &mut Pumps,
) -> Result<(), ControllerError> {
    let name = &work.listers.controller;
    let ControllerEnv {
        caches,
        mut terms,
        mut stop,
        recorder,
        tracker,
        quiet,
        ..
    } = env;
    let recorder = recorder.source(field_manager);
    let mut first = true;
    loop {
        tracker.set_state(ControllerState::Standby);
        let mut term = tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            failed = pumps.failed() => return Err(failed),
            term = terms.next() => term,
        };
        if !std::mem::take(&mut first) {
            // Another leader may have changed objects that were reconciled in an earlier term.
            work.enqueue_all();
        }
        tracker.set_state(ControllerState::Running);
        log_lifecycle!(
            quiet,
            controller = name,
            workers,
            epoch = term.epoch().map(|epoch| epoch.0),
            "starting workers"
        );
        let (stop_sender, stop_signal) = StopSignal::new();
        let term_context = Arc::new(TermContext {
            writer: Writer::new(term.client(caches.client().clone()), field_manager),
            recorder: recorder.clone(),
            listers: Arc::clone(&work.listers),
            queue: work.queue.clone(),
            stop: stop_signal.clone(),
            epoch: term.epoch(),
            history: parking_lot::Mutex::default(),
        });
        let mut running = JoinSet::new();
        for number in 0..workers {
            running.spawn(Arc::clone(work).run(number, Arc::clone(&term_context)));
        }
        log_lifecycle!(quiet, controller = name, "started workers");
        let ended = tokio::select! {
            biased;
            () = stop.requested() => Some(Ok(())),
            failed = pumps.failed() => Some(Err(failed)),
            () = term.lost() => None,
        };
        tracker.set_state(ControllerState::Stopping);
        stop_sender.advance_to(StopPhase::Finishing);
        log_lifecycle!(
            quiet,
            controller = name,
            running = work.queue.running(),
            "shutting down workers"
        );
        tokio::select! {
            () = async { while running.join_next().await.is_some() {} } => {}
            // A quiet manager is part of another program that ends with it; its grace period is often zero.
            () = stop.ended() => if quiet {
                tracing::debug!(controller = name, "grace period exceeded; cancelling reconciles");
            } else {
                tracing::warn!(controller = name, "grace period exceeded; cancelling reconciles");
            },
            () = term.expired() => tracing::warn!(controller = name, "lease expired; cancelling reconciles"),
        }
        running.shutdown().await;
        if let Some(outcome) = ended {
            return outcome;
        }
    }
}

/// A controller with its types erased, for the manager.
pub(crate) struct ErasedController {
    pub(crate) name: String,
    /// Only the leader reconciles.
    pub(crate) leader_only: bool,
    pub(crate) tracker: Arc<StatusTracker>,
    pub(crate) run: RunFn,
}

type RunFn = Box<dyn FnOnce(ControllerEnv) -> BoxFuture<Result<(), ControllerError>> + Send>;

impl ErasedController {
    fn new<Key: ReconcileKey>(
        controller: RunnableController<Key>,
        run: fn(RunnableController<Key>, ControllerEnv) -> BoxFuture<Result<(), ControllerError>>,
    ) -> Self {
        Self {
            name: controller.name.clone(),
            leader_only: controller.options.leader_only,
            tracker: Arc::new(StatusTracker::new(
                controller.options.concurrency,
                Arc::clone(&controller.options.outcomes),
            )),
            run: Box::new(move |env| run(controller, env)),
        }
    }
}

impl<K: Reconcilable + 'static, R: Reconciler<K::Key>> From<Controller<K, R>> for ErasedController {
    fn from(controller: Controller<K, R>) -> Self {
        let Controller {
            name,
            declared,
            options,
            reconciler,
            own_objects,
            ..
        } = controller;
        Self::new(
            RunnableController {
                name,
                declared,
                options,
                reconciler: Box::new(reconciler),
                own_objects,
            },
            K::run,
        )
    }
}

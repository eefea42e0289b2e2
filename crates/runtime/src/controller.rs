//! A controller: what it watches, what it does, and the run from start to stop.

use std::{marker::PhantomData, num::NonZeroUsize, sync::Arc};

use futures::future::try_join_all;
use kube::Resource;
use tokio::task::{JoinError, JoinSet};
use windlass_cache::{Cacheable, Caches, ObjectKey, Selection, SyncError};
use windlass_workqueue::WorkQueue;

use crate::{
    listers::Listers,
    outcomes::Outcomes,
    reconcile::Reconciler,
    source::{self, Boxed, Declared},
    stop::Stop,
    worker::{Work, panic_message},
};

/// A loop that reconciles the objects of one kind. It runs in a [`Manager`](crate::Manager).
///
/// ```
/// use k8s_openapi::api::{apps::v1::Deployment, core::v1::{ConfigMap, Secret}};
/// use windlass_runtime::{Action, Context, Controller, Error, ObjectKey, Request};
///
/// async fn reconcile(request: Request, ctx: Context) -> Result<Action, Error> {
///     let Some(settings) = ctx.lister::<ConfigMap>()?.get(&request.key) else {
///         return Ok(Action::done()); // it is gone
///     };
///     println!("{:?}", settings.data);
///     Ok(Action::done())
/// }
///
/// let controller = Controller::<ConfigMap>::new("settings")
///     .owns::<Deployment>()
///     .watches::<Secret>(|secret| {
///         secret.metadata.namespace.iter().map(|ns| ObjectKey::namespaced(ns.as_str(), "settings")).collect()
///     })
///     .reconcile(reconcile);
/// ```
///
/// One that was not told how to reconcile does not run:
///
/// ```compile_fail,E0277
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use windlass_runtime::{Controller, Manager};
/// # fn run(manager: Manager) {
/// manager.controller(Controller::<ConfigMap>::new("settings"));
/// # }
/// ```
#[must_use = "a controller does nothing until a manager runs it"]
pub struct Controller<K, R = Undecided> {
    name: String,
    declared: Vec<Declared>,
    concurrency: NonZeroUsize,
    reconciler: R,
    outcomes: Arc<Outcomes>,
    primary: PhantomData<fn() -> K>,
}

/// A controller that was not yet told how to reconcile; a manager does not take it.
pub struct Undecided(());

impl<K: Cacheable + Resource<DynamicType: Default>> Controller<K> {
    /// A controller for all objects of `K`. The name is in its logs, and no other controller of the manager has it.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            declared: vec![source::triggers::<K>(source::itself)],
            concurrency: NonZeroUsize::MIN,
            reconciler: Undecided(()),
            outcomes: Arc::default(),
            primary: PhantomData,
        }
    }

    /// How to reconcile.
    pub fn reconcile<R: Reconciler>(self, reconciler: R) -> Controller<K, R> {
        let Self {
            name,
            declared,
            concurrency,
            reconciler: _,
            outcomes,
            primary,
        } = self;
        Controller {
            name,
            declared,
            concurrency,
            reconciler,
            outcomes,
            primary,
        }
    }
}

impl<K: Cacheable + Resource<DynamicType: Default>, R> Controller<K, R> {
    /// Also reconciles a `K` when an object that it controls (by owner reference) changes or goes.
    pub fn owns<Child>(mut self) -> Self
    where
        Child: Cacheable + Resource<DynamicType: Default>,
    {
        self.declared
            .push(source::triggers::<Child>(source::controller_of::<K, Child>));
        self
    }

    /// Also reconciles the objects that `map` names when an `Other` changes or goes. For a change it is asked about
    /// the state before as well as the state after, so that what an object no longer refers to is reconciled too.
    pub fn watches<Other>(mut self, map: impl Fn(&Other) -> Vec<ObjectKey> + Send + 'static) -> Self
    where
        Other: Cacheable + Resource<DynamicType: Default>,
    {
        self.declared.push(source::triggers::<Other>(move |change| {
            let states = change.old().into_iter().chain([change.stored()]);
            states
                .filter_map(|stored| stored.object().ok())
                .flat_map(|object| map(&object))
                .collect()
        }));
        self
    }

    /// Caches `Other` for [`Context::lister`](crate::Context::lister) without reconciling anything when it changes.
    pub fn reads<Other>(mut self) -> Self
    where
        Other: Cacheable + Resource<DynamicType: Default>,
    {
        self.declared.push(source::reads::<Other>());
        self
    }

    /// How many objects are reconciled at the same time; one object never twice. Default: 1.
    pub fn concurrency(mut self, reconciles: NonZeroUsize) -> Self {
        self.concurrency = reconciles;
        self
    }

    /// The counters of this controller; they go on counting while it runs.
    pub fn outcomes(&self) -> Arc<Outcomes> {
        Arc::clone(&self.outcomes)
    }
}

/// Why a controller stopped that was not asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// One of its caches ended.
    #[error(transparent)]
    Cache(#[from] SyncError),
    /// A watch ended although nobody asked.
    #[error("a watch ended")]
    SourceEnded,
    /// A function that maps a change to keys panicked; what it would have said is lost, so nothing can be trusted.
    #[error("the mapping from a change to objects panicked: {0}")]
    MappingPanicked(String),
}

impl<K: Cacheable, R: Reconciler> Controller<K, R> {
    /// Runs until it is time to stop. Not cancellation-safe in one way: dropping it aborts running reconciles at
    /// their next await.
    pub(crate) async fn run(
        self,
        caches: Caches,
        selection: Selection,
        mut stop: Stop,
    ) -> Result<(), ControllerError> {
        let queue = WorkQueue::new();
        let mut pumps = JoinSet::new();
        let mut waits = Vec::new();
        for declare in self.declared {
            let source = declare(&caches, &selection);
            waits.push((source.ready)());
            if let Some(pump) = source.pump {
                pumps.spawn(pump(queue.clone()));
            }
        }
        tracing::info!(controller = self.name, "waiting for caches");
        let mut listers = Listers::new(self.name.clone());
        tokio::select! {
            biased;
            () = stop.requested() => return stopped(&self.name, pumps).await,
            ended = pumps.join_next() => return Err(pump_ended(ended)),
            ready = try_join_all(waits) => ready?.into_iter().for_each(|ready| ready(&mut listers)),
        }

        tracing::info!(
            controller = self.name,
            workers = self.concurrency,
            "starting workers"
        );
        let own = listers.get::<K>().ok().cloned();
        let work = Arc::new(Work {
            queue: queue.clone(),
            reconciler: self.reconciler,
            client: caches.client().clone(),
            listers: Arc::new(listers),
            outcomes: self.outcomes,
            readable: Box::new(move |key| own.as_ref().map_or(Ok(()), |own| own.try_get(key).map(drop))),
        });
        // A switch of their own: they also stop when a pump has failed.
        let (halt, halted) = Stop::new();
        let mut workers = JoinSet::new();
        for _ in 0..self.concurrency.get() {
            workers.spawn(Arc::clone(&work).run(halted.clone()));
        }
        let outcome = tokio::select! {
            biased;
            () = stop.requested() => Ok(()),
            ended = pumps.join_next() => Err(pump_ended(ended)),
        };

        queue.close();
        halt.send_replace(true);
        tracing::info!(
            controller = self.name,
            running = queue.running(),
            "stopping workers"
        );
        while workers.join_next().await.is_some() {}
        stopped(&self.name, pumps).await?;
        outcome
    }
}

async fn stopped(name: &str, mut pumps: JoinSet<()>) -> Result<(), ControllerError> {
    pumps.shutdown().await;
    tracing::info!(controller = name, "stopped");
    Ok(())
}

fn pump_ended(ended: Option<Result<(), JoinError>>) -> ControllerError {
    match ended.and_then(Result::err).map(JoinError::try_into_panic) {
        Some(Ok(panic)) => ControllerError::MappingPanicked(panic_message(&*panic).to_owned()),
        _ => ControllerError::SourceEnded,
    }
}

/// A controller whose types a manager need not know.
pub(crate) struct Prepared {
    pub(crate) name: String,
    pub(crate) run: Run,
}

type Run = Box<dyn FnOnce(Caches, Selection, Stop) -> Boxed<Result<(), ControllerError>> + Send>;

impl<K: Cacheable, R: Reconciler> From<Controller<K, R>> for Prepared {
    fn from(controller: Controller<K, R>) -> Self {
        let name = controller.name.clone();
        Self {
            name,
            run: Box::new(move |caches, selection, stop| Box::pin(controller.run(caches, selection, stop))),
        }
    }
}

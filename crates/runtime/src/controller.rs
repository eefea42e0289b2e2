//! The controller builder: what to watch, and how to reconcile.

use std::{future::Future, num::NonZeroUsize, sync::Arc, time::Duration};

use futures::Stream;
use kube::Resource;
use serde::Serialize;
use windlass_cache::{Cacheable, Meta, ObjectKey};
use windlass_workqueue::{Builder, RateLimiter, WorkQueue};

use crate::{
    children::{ChildOptions, DesiredState, DesiredStateReconciler, PrunePolicy},
    custom_source::{self, SourceContext},
    error::Error,
    key::{Keyed, Reconcilable, ReconcileKey},
    outcomes::OutcomeCounters,
    own_objects::{self, OwnObjectsFn},
    reconcile::Reconciler,
    source::{self, EventFilter, OwnerKind, SourceBuilder},
    start_report::{DeclarativeWrites, status_fields},
    watch::{Watch, WatchSelector},
};

/// Reconciles the objects of one kind, or [keys](Keyed) of a type of its own. A [`Manager`](crate::Manager) runs it.
///
/// ```
/// use k8s_openapi::api::{apps::v1::Deployment, core::v1::{ConfigMap, Secret}};
/// use windlass_runtime::{Action, Context, Controller, Error, ObjectKey, Request};
///
/// async fn reconcile(request: Request, ctx: Context) -> Result<Action, Error> {
///     let Some(settings) = ctx.lister::<ConfigMap>()?.get(&request.key) else {
///         return Ok(Action::done()); // deleted
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
/// A manager does not accept a controller without a reconciler:
///
/// ```compile_fail,E0277
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use windlass_runtime::{Controller, Manager};
/// # fn run(manager: Manager) {
/// manager.controller(Controller::<ConfigMap>::new("settings"));
/// # }
/// ```
#[must_use = "a controller does nothing until a manager runs it"]
pub struct Controller<K: Reconcilable, R = NoReconciler> {
    pub(crate) name: String,
    pub(crate) declared: Vec<SourceBuilder<K::Key>>,
    pub(crate) options: ControllerOptions<K::Key>,
    pub(crate) reconciler: R,
    /// `None` without a kind.
    pub(crate) own_objects: Option<OwnObjectsFn<K::Key>>,
    kind: K::Kind,
    /// `None` without a kind.
    owner: Option<OwnerKind>,
    /// Which objects of the kind it reconciles.
    selector: WatchSelector,
}

/// Options that do not depend on the kind or the reconciler.
pub(crate) struct ControllerOptions<Key> {
    pub(crate) concurrency: NonZeroUsize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) sync_timeout: Option<Duration>,
    pub(crate) queue: Builder<Key>,
    pub(crate) event_filter: Option<EventFilter>,
    pub(crate) leader_only: bool,
    pub(crate) field_manager: Option<String>,
    pub(crate) children: ChildOptions,
    pub(crate) outcomes: Arc<OutcomeCounters>,
    /// `None` for an imperative controller.
    declarative: Option<Declarative>,
    /// It has a cleanup, and so a finalizer.
    pub(crate) has_cleanup: bool,
}

/// What is known about the kind of a declarative controller.
#[derive(Clone, Copy)]
struct Declarative {
    /// Its status has a place for the standard conditions, and is not that of a Kubernetes controller.
    has_conditions: bool,
    is_cluster_scoped: bool,
}

impl<Key> ControllerOptions<Key> {
    /// What the runtime itself writes; `None` for an imperative controller.
    pub(crate) fn declarative_writes(&self) -> Option<DeclarativeWrites> {
        let kind = self.declarative?;
        Some(DeclarativeWrites {
            conditions: kind.has_conditions && !self.children.without_conditions,
            finalizer: self.has_cleanup,
            is_cluster_scoped: kind.is_cluster_scoped,
        })
    }
}

/// Type state of a [`Controller`] without a reconciler; a manager does not accept it.
pub struct NoReconciler(());

impl<K: Cacheable + Resource<DynamicType: Clone + Default + Send + Sync>> Controller<K> {
    /// Creates a controller for all objects of `K`. The name appears in logs and metrics and is the default field manager.
    /// It must be unique within the manager.
    pub fn new(name: impl Into<String>) -> Self {
        Self::from_watch(name, Watch::new())
    }
}

impl<K: Cacheable + Resource<DynamicType: Clone + Send + Sync>> Controller<K> {
    /// Creates a controller for the objects of a [`Watch`]: a kind known only at run time, a label or field selector, or a
    /// filter on changes.
    ///
    /// ```
    /// use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
    /// use windlass_runtime::{Controller, Predicate, Watch};
    ///
    /// let cron_tabs = ApiResource::from_gvk(&GroupVersionKind::gvk("stable.example.com", "v1", "CronTab"));
    /// let watch = Watch::<DynamicObject>::dynamic(cron_tabs).filter(Predicate::generation_changed());
    /// let controller = Controller::from_watch("cron-tabs", watch);
    /// ```
    pub fn from_watch(name: impl Into<String>, watch: Watch<K>) -> Self {
        let (kind, owner) = (watch.dynamic.clone(), OwnerKind::from_watch(&watch));
        let mut controller = Self::without_watch(name.into(), kind.clone());
        controller.own_objects = Some(own_objects::of_kind::<K>(kind));
        controller.selector = watch.selector.clone();
        let itself = source::from_watch(watch.map_key(ObjectKey::clone), Some(&owner));
        controller.declared.push(itself);
        controller.owner = Some(owner);
        controller
    }

    /// Reconciles declaratively: the function returns the desired children and status of an object, and the controller
    /// applies them. See [`Desired`](crate::Desired).
    pub fn declare<D: DesiredState<K>>(
        mut self,
        declarative: D,
    ) -> Controller<K, DesiredStateReconciler<K, D>>
    where
        K: Serialize,
    {
        let group = K::group(&self.kind);
        let is_foreign = !group.contains('.') || group.ends_with(".k8s.io");
        self.options.declarative = Some(Declarative {
            has_conditions: !is_foreign && status_fields::<K>().contains(&"conditions"),
            is_cluster_scoped: self.selector.cluster_scoped,
        });
        let reconciler = DesiredStateReconciler::new(declarative, self.kind.clone());
        self.reconcile(reconciler)
    }
}

impl Controller<Keyed<ObjectKey>> {
    /// Creates a controller whose keys have a type of your own and do not name objects of one kind; see [`Keyed`]. Keys
    /// come from [mapped](Watch::mapped) watches, [streams](Self::triggered_by) and [custom sources](Self::source). A new
    /// term of leadership queues no other keys.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Namespace;
    /// use kube::ResourceExt;
    /// use windlass_runtime::{Action, Controller};
    ///
    /// let greetings = Controller::keyed::<String>("greetings")
    ///     .watches::<Namespace>(|namespace| {
    ///         ["hello", "goodbye"].map(|word| format!("{word}, {}", namespace.name_any())).to_vec()
    ///     })
    ///     .reconcile(|_, _| async { Ok(Action::done()) });
    /// ```
    pub fn keyed<Key: ReconcileKey>(name: impl Into<String>) -> Controller<Keyed<Key>> {
        Controller::without_watch(name.into(), ())
    }
}

impl<K: Reconcilable> Controller<K> {
    fn without_watch(name: String, kind: K::Kind) -> Self {
        Self {
            name,
            declared: Vec::new(),
            options: ControllerOptions {
                concurrency: NonZeroUsize::MIN,
                timeout: None,
                sync_timeout: None,
                queue: WorkQueue::builder(),
                event_filter: None,
                leader_only: true,
                field_manager: None,
                children: ChildOptions::default(),
                outcomes: Arc::default(),
                declarative: None,
                has_cleanup: false,
            },
            reconciler: NoReconciler(()),
            own_objects: None,
            kind,
            owner: None,
            selector: WatchSelector::default(),
        }
    }

    /// Sets the reconciler.
    pub fn reconcile<R: Reconciler<K::Key>>(self, reconciler: R) -> Controller<K, R> {
        let Self {
            name,
            declared,
            options,
            reconciler: _,
            own_objects,
            kind,
            owner,
            selector,
        } = self;
        Controller {
            name,
            declared,
            options,
            reconciler,
            own_objects,
            kind,
            owner,
            selector,
        }
    }
}

impl<K: Cacheable, R> Controller<K, R> {
    /// Reconciles a `K` when an object that it controls (by owner reference) changes or is deleted.
    pub fn owns<Child>(self) -> Self
    where
        Child: Cacheable + Resource<DynamicType: Clone + Default + Send + Sync>,
    {
        self.watch(Watch::<Child>::new().owned())
    }

    /// Reconciles the `K`s that share an index value with an object of another kind, when that object changes or is
    /// deleted. A value can be a name in a spec or a label. `ours` returns the values of a `K` and is kept as an index;
    /// `theirs` returns those of the other object and is called with its old and new state, so objects that no longer
    /// match are reconciled too. If both kinds are namespaced, only objects in the same namespace match.
    ///
    /// Of the watch, only the selectors, the filter and the tap are used.
    ///
    /// ```
    /// use k8s_openapi::api::{apps::v1::Deployment, core::v1::ServiceAccount};
    /// use kube::ResourceExt;
    /// use windlass_runtime::{Controller, Watch};
    ///
    /// fn account(deployment: &Deployment) -> Vec<String> {
    ///     let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    ///     pod.and_then(|pod| pod.service_account_name.clone()).into_iter().collect()
    /// }
    ///
    /// let controller = Controller::<Deployment>::new("accounts")
    ///     .watches_by_index(Watch::<ServiceAccount>::new(), account, |account| vec![account.name_any()]);
    /// ```
    pub fn watches_by_index<Other>(
        mut self,
        watch: Watch<Other>,
        ours: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
        theirs: impl Fn(&Other) -> Vec<String> + Send + 'static,
    ) -> Self
    where
        K: Resource<DynamicType: Clone + Send + Sync>,
        Other: Cacheable + Resource<DynamicType: Clone + Send + Sync>,
    {
        let own = (self.kind.clone(), self.selector.clone());
        self.declared.push(source::from_index(own, ours, watch, theirs));
        self
    }

    /// Reconciles every `K` when an object of another kind changes or is deleted, for objects that affect all of them.
    ///
    /// Of the watch, only the selectors, the filter and the tap are used.
    ///
    /// ```
    /// use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Node};
    /// use windlass_runtime::{Controller, Predicate, Watch};
    ///
    /// let controller = Controller::<DaemonSet>::new("daemons")
    ///     .watches_for_all(Watch::<Node>::new().filter(Predicate::labels_changed()));
    /// ```
    pub fn watches_for_all<Other>(mut self, watch: Watch<Other>) -> Self
    where
        K: Resource<DynamicType: Clone + Send + Sync>,
        Other: Cacheable + Resource<DynamicType: Clone + Send + Sync>,
    {
        let own = (self.kind.clone(), self.selector.clone());
        self.declared.push(source::from_all::<K, Other>(own, watch));
        self
    }
}

impl<K: Reconcilable, R> Controller<K, R> {
    /// Adds a custom source of keys: for watches that are opened and closed at run time, caches of projections, and keys
    /// whose priority depends on the change. It runs as long as the controller, on every replica. Reconciles begin after
    /// [`SourceContext::mark_ready`]. The controller stops with an error if the source returns.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use windlass_cache::WatchScope;
    /// use windlass_runtime::{Action, Controller, SourceContext, SourceEvent};
    /// use windlass_workqueue::Priority;
    ///
    /// let controller = Controller::keyed("settings")
    ///     .source(|source: SourceContext| async move {
    ///         let settings = source.caches().get::<ConfigMap>(&WatchScope::all().labels("settings"));
    ///         let keys = source.clone();
    ///         let mut watch = source.watch(&settings, move |event| match event {
    ///             SourceEvent::Change(change) => keys.add(change.key().clone(), Priority::NORMAL),
    ///             SourceEvent::Synced => keys.mark_ready(),
    ///         });
    ///         watch.ended().await;
    ///         Ok(())
    ///     })
    ///     .reconcile(|_, _| async { Ok(Action::done()) });
    /// ```
    pub fn source<F, Fut>(mut self, feeder: F) -> Self
    where
        F: FnOnce(SourceContext<K::Key>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Error>> + Send + 'static,
    {
        self.declared.push(custom_source::from_fn(feeder));
        self
    }

    /// Reconciles the keys that `map` returns when an `Other` changes or is deleted. `map` is called with the old and the
    /// new state, so objects that are no longer referenced are reconciled too.
    pub fn watches<Other>(self, map: impl Fn(&Other) -> Vec<K::Key> + Send + 'static) -> Self
    where
        Other: Cacheable + Resource<DynamicType: Clone + Default + Send + Sync>,
    {
        self.watch(Watch::<Other>::new().mapped(map))
    }

    /// Caches `Other` for [`Context::lister`](crate::Context::lister) without reconciling anything when it changes.
    pub fn reads<Other>(self) -> Self
    where
        Other: Cacheable + Resource<DynamicType: Clone + Default + Send + Sync>,
    {
        self.read(Watch::<Other>::new())
    }

    /// Caches the objects of a [`Watch`] for listers without reconciling anything when they change: of the watch, only the
    /// selectors are used.
    pub fn read<Other>(mut self, watch: Watch<Other>) -> Self
    where
        Other: Cacheable + Resource<DynamicType: Clone + Send + Sync>,
    {
        self.declared.push(source::read_only(watch));
        self
    }

    /// Watches another kind, with all the options of a [`Watch`].
    pub fn watch<Other>(mut self, watch: Watch<Other, K::Key>) -> Self
    where
        Other: Cacheable + Resource<DynamicType: Clone + Send + Sync>,
    {
        self.declared.push(source::from_watch(watch, self.owner.as_ref()));
        self
    }

    /// Reconciles the keys of this stream, for triggers outside the API. The stream may end. Keys that arrive before
    /// reconciles begin wait in the queue, each key once.
    pub fn triggered_by(mut self, keys: impl Stream<Item = K::Key> + Send + 'static) -> Self {
        self.declared.push(source::from_stream(keys));
        self
    }

    /// Filters the changes of every watched kind. Deletions, deletion timestamps and recreated objects always trigger. To
    /// filter one kind, use [`Watch::filter`] with a [`Predicate`](crate::Predicate). Default: all changes trigger.
    pub fn event_filter(
        mut self,
        test: impl Fn(Option<&Meta>, &Meta) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.options.event_filter = Some(Arc::new(test));
        self
    }

    /// Maximum number of concurrent reconciles. One object is never reconciled concurrently. Default: 1.
    pub fn concurrency(mut self, reconciles: NonZeroUsize) -> Self {
        self.options.concurrency = reconciles;
        self
    }

    /// [`concurrency`](Self::concurrency) with a constant: `.workers::<2>()`. Zero does not compile:
    ///
    /// ```compile_fail,E0080
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use windlass_runtime::Controller;
    /// Controller::<ConfigMap>::new("settings").workers::<0>();
    /// ```
    pub fn workers<const N: usize>(self) -> Self {
        self.concurrency(const { NonZeroUsize::new(N).expect("at least one") })
    }

    /// Timeout of one reconcile. A reconcile that takes longer is cancelled at its next await, counted and retried.
    /// Default: none.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.options.timeout = Some(limit);
        self
    }

    /// How long to wait for the caches to sync at the start. On timeout the controller fails, and the manager with it.
    /// Default: no limit, because a CRD may be installed later; a warning names the missing kinds.
    pub fn sync_timeout(mut self, limit: Duration) -> Self {
        self.options.sync_timeout = Some(limit);
        self
    }

    /// Backoff after a failed reconcile. Default: 5 ms doubling to 1000 s, and ten retries per second overall with bursts
    /// of a hundred ([`DefaultRateLimiter`](windlass_workqueue::DefaultRateLimiter)).
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<K::Key> + 'static) -> Self {
        self.options.queue = self.options.queue.rate_limiter(limiter);
        self
    }

    /// How often a failing object is retried before it waits for its next change: with 5, an object that always fails is
    /// reconciled six times, once and five retries. Success, a terminal error and giving up reset the count. Default: no
    /// limit.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.options.queue = self.options.queue.max_retries(retries);
        self
    }

    /// Called with the number of failures when an object exceeds [`max_retries`](Self::max_retries). Must not block.
    /// Default: the failure is logged.
    pub fn on_dropped(mut self, report: impl Fn(&K::Key, u32) + Send + Sync + 'static) -> Self {
        self.options.queue = self.options.queue.on_dropped(report);
        self
    }

    /// Reconciles whether or not this process is the leader: for controllers of the process itself or its node. Default:
    /// with leader election, only the leader reconciles.
    pub fn on_every_replica(mut self) -> Self {
        self.options.leader_only = false;
        self
    }

    /// Field manager of the controller's writes, and source of its events as `kubectl describe` shows it. Default: the
    /// controller's name.
    pub fn field_manager(mut self, name: impl Into<String>) -> Self {
        self.options.field_manager = Some(name.into());
        self
    }

    /// Which children that are no longer [desired](crate::Desired) are deleted. Default: [`PrunePolicy::Guarded`], which
    /// deletes only by declared intent.
    pub fn prune(mut self, policy: PrunePolicy) -> Self {
        self.options.children.prune = policy;
        self
    }

    /// Writes no standard conditions: for objects whose status belongs to another controller, of which two would undo each
    /// other's `Ready`. Conditions that `desired` returns are still written. Default: a declarative reconcile writes them
    /// if the status of the kind has `conditions`, except for Kubernetes' own kinds; see
    /// [`READY_CONDITION`](crate::READY_CONDITION).
    pub fn without_conditions(mut self) -> Self {
        self.options.children.without_conditions = true;
        self
    }

    /// Counters of this controller's reconciles by outcome. They keep counting while it runs.
    pub fn outcomes(&self) -> Arc<OutcomeCounters> {
        Arc::clone(&self.options.outcomes)
    }
}

//! A controller: what it watches, and what it does.

use std::{future::Future, num::NonZeroUsize, sync::Arc, time::Duration};

use futures::Stream;
use kube::{
    Resource,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde::Serialize;
use windlass_cache::{Cacheable, Meta, ObjectKey};
use windlass_workqueue::{Builder, RateLimiter, WorkQueue};

use crate::{
    children::{Declarative, Declaring},
    error::Error,
    feed::{self, Feed},
    outcomes::Outcomes,
    reconcile::Reconciler,
    source::{self, Anywhere, Declared, Owner},
    watch::{Part, Watch},
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
pub struct Controller<K: Cacheable, R = Undecided> {
    pub(crate) name: String,
    pub(crate) kind: K::DynamicType,
    pub(crate) declared: Vec<Declared>,
    pub(crate) options: Options,
    pub(crate) reconciler: R,
    owner: Owner,
    /// Which objects of the kind it is for.
    part: Part,
}

/// What is the same for every kind and reconciler.
pub(crate) struct Options {
    pub(crate) concurrency: NonZeroUsize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) sync_timeout: Option<Duration>,
    pub(crate) queue: Builder<ObjectKey>,
    pub(crate) anywhere: Option<Anywhere>,
    pub(crate) led: bool,
    pub(crate) component: Option<String>,
    pub(crate) outcomes: Arc<Outcomes>,
}

/// A controller that was not yet told how to reconcile; a manager does not take it.
pub struct Undecided(());

impl<K: Cacheable + Resource<DynamicType: Clone + Default + Send + Sync>> Controller<K> {
    /// A controller for all objects of `K`. The name is in its logs, metrics and field manager, and no other controller
    /// of the manager has it.
    pub fn new(name: impl Into<String>) -> Self {
        Self::of(name, Watch::new())
    }
}

impl<K: Cacheable + Resource<DynamicType: Clone + Send + Sync>> Controller<K> {
    /// A controller for the objects that this selects: of a kind that is known at run time, by label or field, or only
    /// when certain things change.
    ///
    /// ```
    /// use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
    /// use windlass_runtime::{Controller, Predicate, Watch};
    ///
    /// let cron_tabs = ApiResource::from_gvk(&GroupVersionKind::gvk("stable.example.com", "v1", "CronTab"));
    /// let watch = Watch::<DynamicObject>::dynamic(cron_tabs).when(Predicate::generation_changed());
    /// let controller = Controller::of("cron-tabs", watch);
    /// ```
    pub fn of(name: impl Into<String>, watch: Watch<K>) -> Self {
        let mut controller = Self::without_watch(name.into(), &watch);
        let itself = source::declare(watch.itself(), &controller.owner);
        controller.declared.push(itself);
        controller
    }

    fn without_watch(name: String, watch: &Watch<K>) -> Self {
        Self {
            name,
            kind: watch.dynamic.clone(),
            declared: Vec::new(),
            options: Options {
                concurrency: NonZeroUsize::MIN,
                timeout: None,
                sync_timeout: None,
                queue: WorkQueue::builder(),
                anywhere: None,
                led: true,
                component: None,
                outcomes: Arc::default(),
            },
            reconciler: Undecided(()),
            owner: Owner::of(watch),
            part: watch.part.clone(),
        }
    }

    /// How to reconcile, step by step.
    pub fn reconcile<R: Reconciler>(self, reconciler: R) -> Controller<K, R> {
        let Self {
            name,
            kind,
            declared,
            options,
            reconciler: _,
            owner,
            part,
        } = self;
        Controller {
            name,
            kind,
            declared,
            options,
            reconciler,
            owner,
            part,
        }
    }

    /// What should be there: a function from an object to its children and status, which are then brought about.
    /// See [`Desired`](crate::Desired).
    pub fn declare<D: Declarative<K>>(self, declarative: D) -> Controller<K, Declaring<K, D>>
    where
        K: Serialize,
    {
        let declaring = Declaring::new(declarative, self.kind.clone());
        self.reconcile(declaring)
    }
}

impl Controller<DynamicObject> {
    /// A controller whose keys are no objects: what they stand for is the author's business, for example one thing in one
    /// namespace. They come from [mapped](Watch::mapped) watches, [streams](Self::triggered_by) and
    /// [feeders](Self::fed_by); nothing else is queued, also not when a new term of leadership begins.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Namespace;
    /// use kube::ResourceExt;
    /// use windlass_runtime::{Action, Controller, ObjectKey};
    ///
    /// let greetings = Controller::keyed("greetings")
    ///     .watches::<Namespace>(|namespace| {
    ///         ["hello", "goodbye"].map(|word| ObjectKey::namespaced(namespace.name_any(), word)).to_vec()
    ///     })
    ///     .reconcile(|_, _| async { Ok(Action::done()) });
    /// ```
    pub fn keyed(name: impl Into<String>) -> Self {
        let nothing = GroupVersionKind::gvk("", "", "");
        Self::without_watch(
            name.into(),
            &Watch::dynamic(ApiResource::from_gvk_with_plural(&nothing, "")),
        )
    }
}

impl<K: Cacheable, R> Controller<K, R> {
    /// Also reconciles the keys that this puts into the queue: for watches that come and go while it runs, caches of
    /// projections, and keys whose priority depends on what happened. It runs as long as the controller does, on every
    /// replica; reconciles begin when it has said [`ready`](Feed::ready). One that returns stops the controller.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use windlass_cache::Selection;
    /// use windlass_runtime::{Action, Controller, Feed, Told};
    /// use windlass_workqueue::Priority;
    ///
    /// let controller = Controller::keyed("settings")
    ///     .fed_by(|feed: Feed| async move {
    ///         let settings = feed.caches().get::<ConfigMap>(&Selection::all().labels("settings"));
    ///         let keys = feed.clone();
    ///         let mut watching = feed.watch(&settings, move |told| match told {
    ///             Told::Change(change) => keys.add(change.key().clone(), Priority::NORMAL),
    ///             Told::Complete => keys.ready(),
    ///         });
    ///         watching.ended().await;
    ///         Ok(())
    ///     })
    ///     .reconcile(|_, _| async { Ok(Action::done()) });
    /// ```
    pub fn fed_by<F, Fut>(mut self, feeder: F) -> Self
    where
        F: FnOnce(Feed) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Error>> + Send + 'static,
    {
        self.declared.push(feed::declare(feeder));
        self
    }

    /// Also reconciles a `K` when an object that it controls (by owner reference) changes or goes.
    pub fn owns<Child>(self) -> Self
    where
        Child: Cacheable + Resource<DynamicType: Clone + Default + Send + Sync>,
    {
        self.watch(Watch::<Child>::new().owned())
    }

    /// Also reconciles the objects that `map` names when an `Other` changes or goes. For a change it is asked about
    /// the state before as well as the state after, so that what an object no longer refers to is reconciled too.
    pub fn watches<Other>(self, map: impl Fn(&Other) -> Vec<ObjectKey> + Send + 'static) -> Self
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
        self.watch(Watch::<Other>::new())
    }

    /// Also looks at another kind, in every detail that a [`Watch`] can say.
    pub fn watch<Other>(mut self, watch: Watch<Other>) -> Self
    where
        Other: Cacheable + Resource<DynamicType: Clone + Send + Sync>,
    {
        self.declared.push(source::declare(watch, &self.owner));
        self
    }

    /// Also reconciles the `K`s that have a value in common with an object of another kind, when that changes or goes: what
    /// a name in a spec, or a label, connects. `ours` says what a `K` stands for and is kept as an index; `theirs` says it
    /// of the other, before the change and after, so that what an object no longer has in common is reconciled too. Where
    /// both kinds live in namespaces, only within one.
    ///
    /// Of the watch, its selection and its predicate count.
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
    ///     .joins(Watch::<ServiceAccount>::new(), account, |account| vec![account.name_any()]);
    /// ```
    pub fn joins<Other>(
        mut self,
        watch: Watch<Other>,
        ours: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
        theirs: impl Fn(&Other) -> Vec<String> + Send + 'static,
    ) -> Self
    where
        K: Resource<DynamicType: Clone + Send + Sync>,
        Other: Cacheable + Resource<DynamicType: Clone + Send + Sync>,
    {
        let (kind, part) = (self.kind.clone(), self.part.clone());
        self.declared.push(source::join(kind, part, ours, watch, theirs));
        self
    }

    /// Also reconciles the keys of this stream: what happens outside the API. It may end; what it gives while nothing can be
    /// reconciled yet waits in the queue, each key once.
    pub fn triggered_by(mut self, keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Self {
        self.declared.push(source::stream(keys));
        self
    }

    /// Of every kind, only changes that pass trigger; deletions, their beginnings and replaced objects always do. For what
    /// concerns one kind, see [`Watch::when`] with a [`Predicate`](crate::Predicate). Default: all.
    pub fn only(mut self, test: impl Fn(Option<&Meta>, &Meta) -> bool + Send + Sync + 'static) -> Self {
        self.options.anywhere = Some(Arc::new(test));
        self
    }

    /// How many objects are reconciled at the same time; one object never twice. Default: 1.
    pub fn concurrency(mut self, reconciles: NonZeroUsize) -> Self {
        self.options.concurrency = reconciles;
        self
    }

    /// [`concurrency`](Self::concurrency) for a number that is known when the program is written: `.workers::<2>()`.
    /// Without any it does not compile:
    ///
    /// ```compile_fail,E0080
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use windlass_runtime::Controller;
    /// Controller::<ConfigMap>::new("settings").workers::<0>();
    /// ```
    pub fn workers<const N: usize>(self) -> Self {
        self.concurrency(const { NonZeroUsize::new(N).expect("at least one") })
    }

    /// How long one reconcile may take. One that takes longer is dropped at its next await, counted and retried.
    /// Default: as long as it likes.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.options.timeout = Some(limit);
        self
    }

    /// How long to wait for the caches at the start. When it is over the controller fails, and the manager with it.
    /// Default: for ever, since a kind may be installed later; a warning says what is missing.
    pub fn sync_timeout(mut self, limit: Duration) -> Self {
        self.options.sync_timeout = Some(limit);
        self
    }

    /// How long an object waits after a failure. Default: 5 ms doubling to 1000 s, and ten retries per second overall with
    /// bursts of a hundred ([`DefaultRateLimiter`](windlass_workqueue::DefaultRateLimiter)).
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<ObjectKey> + 'static) -> Self {
        self.options.queue = self.options.queue.rate_limiter(limiter);
        self
    }

    /// How often an object is retried that fails again and again; then it waits for its next change. Default: for ever.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.options.queue = self.options.queue.max_retries(retries);
        self
    }

    /// Called when an object was retried as often as [`max_retries`](Self::max_retries) allows and failed once more, with the
    /// number of failures. It must not block. Default: it is logged.
    pub fn on_dropped(mut self, report: impl Fn(&ObjectKey, u32) + Send + Sync + 'static) -> Self {
        self.options.queue = self.options.queue.on_dropped(report);
        self
    }

    /// Reconciles whether or not this process is the leader: for controllers that concern the process itself or its node.
    /// Default: with leader election, only the leader reconciles.
    pub fn on_every_replica(mut self) -> Self {
        self.options.led = false;
        self
    }

    /// Who its writes and events come from: the field manager, and what `kubectl describe` shows as the source.
    /// Default: the controller's name.
    pub fn component(mut self, name: impl Into<String>) -> Self {
        self.options.component = Some(name.into());
        self
    }

    /// The counters of this controller; they go on counting while it runs.
    pub fn outcomes(&self) -> Arc<Outcomes> {
        Arc::clone(&self.options.outcomes)
    }
}

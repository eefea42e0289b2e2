//! What a controller reconciles, and the type of its keys.
//!
//! ```text
//!   Controller<Deployment>   ── keys ──► ObjectKey    the objects of a kind: own-kind and owner watches, `declare`
//!   Controller<Keyed<Job>>   ── keys ──► Job          a type of your own: mapped watches, streams, custom sources
//! ```
//!
//! Queue, workers, logs and debug pages are the same for both: nothing in them assumes that a key has a namespace and a
//! name.

use std::{fmt, hash::Hash, marker::PhantomData};

use windlass_cache::{Cacheable, ObjectKey};

use crate::{
    controller_run::{ControllerEnv, ControllerError, RunnableController, run_objects},
    source::BoxFuture,
};

/// The bounds of a controller's key. Every type that has them implements it.
///
/// Logs and debug pages show a key by its `Display`. A key is cloned a few times in each reconcile, so strings in it
/// should be `Arc<str>`.
pub trait ReconcileKey: Clone + Eq + Hash + fmt::Display + Send + Sync + 'static {}

impl<Key: Clone + Eq + Hash + fmt::Display + Send + Sync + 'static> ReconcileKey for Key {}

/// What a [`Controller`](crate::Controller) can reconcile: the objects of a kind, with [`ObjectKey`]s, or keys of a type
/// of its own, as [`Keyed`].
///
/// Implemented for every API type and for `Keyed`; it cannot be implemented for other types.
pub trait Reconcilable: sealed::Sealed {
    /// The type of the controller's keys.
    type Key: ReconcileKey;

    /// The kind of a dynamic API type; `()` without a kind.
    #[doc(hidden)]
    type Kind;

    /// Runs a controller with these keys.
    #[doc(hidden)]
    fn run(
        controller: RunnableController<Self::Key>,
        env: ControllerEnv,
    ) -> BoxFuture<Result<(), ControllerError>>;
}

impl<K: Cacheable> Reconcilable for K {
    type Key = ObjectKey;
    type Kind = K::DynamicType;

    fn run(
        controller: RunnableController<ObjectKey>,
        env: ControllerEnv,
    ) -> BoxFuture<Result<(), ControllerError>> {
        run_objects(controller, env)
    }
}

/// Marks a controller that reconciles keys of its own type instead of the objects of a kind. Created by
/// [`Controller::keyed`](crate::Controller::keyed).
///
/// Use it when one object needs several independent pieces of work, when one piece of work concerns several objects, or
/// when it is not about an object at all:
///
/// ```
/// use std::{fmt, sync::Arc};
///
/// use k8s_openapi::api::core::v1::Namespace;
/// use kube::ResourceExt;
/// use windlass_runtime::{Action, Context, Controller, Error, Keyed, Reconciler, Request};
///
/// #[derive(Clone, PartialEq, Eq, Hash)]
/// enum Job {
///     Quota { namespace: Arc<str> },
///     Report,
/// }
///
/// impl fmt::Display for Job {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         match self {
///             Self::Quota { namespace } => write!(f, "quota/{namespace}"),
///             Self::Report => f.write_str("report"),
///         }
///     }
/// }
///
/// async fn reconcile(request: Request<Job>, _ctx: Context<Job>) -> Result<Action, Error> {
///     match request.key {
///         Job::Quota { namespace } => println!("set the quota of {namespace}"),
///         Job::Report => println!("write the report"),
///     }
///     Ok(Action::done())
/// }
///
/// fn controller() -> Controller<Keyed<Job>, impl Reconciler<Job>> {
///     Controller::keyed("quotas")
///         .watches::<Namespace>(|namespace| {
///             vec![Job::Quota { namespace: namespace.name_any().into() }, Job::Report]
///         })
///         .reconcile(reconcile)
/// }
/// ```
///
/// # Many clusters
///
/// A key may name the cluster of an object. A [custom source](crate::Controller::source) watches each cluster with its
/// own caches, and the reconciler takes the client of the key's cluster:
///
/// ```
/// use std::{fmt, sync::Arc};
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_cache::{CacheSet, WatchScope};
/// use windlass_runtime::{Action, Controller, Keyed, ObjectKey, Reconciler, Request, SourceContext, SourceEvent};
/// use windlass_workqueue::Priority;
///
/// #[derive(Clone, PartialEq, Eq, Hash)]
/// struct ClusterKey {
///     cluster: Arc<str>,
///     object: ObjectKey,
/// }
///
/// impl fmt::Display for ClusterKey {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         write!(f, "{}: {}", self.cluster, self.object)
///     }
/// }
///
/// fn controller(clusters: Vec<(Arc<str>, CacheSet)>) -> Controller<Keyed<ClusterKey>, impl Reconciler<ClusterKey>> {
///     Controller::keyed("settings")
///         .source(move |source: SourceContext<ClusterKey>| async move {
///             let watches = clusters.iter().map(|(cluster, caches)| {
///                 let (keys, cluster) = (source.clone(), Arc::clone(cluster));
///                 source.watch(&caches.get::<ConfigMap>(&WatchScope::all()), move |event| {
///                     if let SourceEvent::Change(change) = event {
///                         let (cluster, object) = (Arc::clone(&cluster), change.key().clone());
///                         keys.add(ClusterKey { cluster, object }, Priority::NORMAL);
///                     }
///                 })
///             });
///             let _watches: Vec<_> = watches.collect();
///             source.mark_ready();
///             std::future::pending().await
///         })
///         .reconcile(|request: Request<ClusterKey>, _| async move {
///             println!("{} in {}", request.key.object, request.key.cluster);
///             Ok(Action::done())
///         })
/// }
/// ```
///
/// # What needs a kind
///
/// Such a controller has no objects of its own, so watches cannot map to owners. Neither of these compiles:
///
/// ```compile_fail,E0599
/// # use k8s_openapi::api::apps::v1::Deployment;
/// # use windlass_runtime::Controller;
/// Controller::keyed::<String>("quotas").owns::<Deployment>();
/// ```
///
/// ```compile_fail,E0308
/// # use k8s_openapi::api::apps::v1::Deployment;
/// # use windlass_runtime::{Controller, Watch};
/// Controller::keyed::<String>("quotas").watch(Watch::<Deployment>::new().owned());
/// ```
///
/// A reconciler of other keys does not compile either:
///
/// ```compile_fail,E0631
/// # use windlass_runtime::{Action, Context, Controller, Error, Request};
/// async fn reconcile(_request: Request, _ctx: Context) -> Result<Action, Error> {
///     Ok(Action::done())
/// }
/// Controller::keyed::<String>("quotas").reconcile(reconcile);
/// ```
pub struct Keyed<Key>(PhantomData<fn() -> Key>);

impl<Key: ReconcileKey> Reconcilable for Keyed<Key> {
    type Key = Key;
    type Kind = ();

    fn run(
        controller: RunnableController<Key>,
        env: ControllerEnv,
    ) -> BoxFuture<Result<(), ControllerError>> {
        Box::pin(controller.run(env))
    }
}

mod sealed {
    pub trait Sealed {}

    impl<K: windlass_cache::Cacheable> Sealed for K {}
    impl<Key> Sealed for super::Keyed<Key> {}
}

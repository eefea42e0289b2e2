//! What an author writes: one function from a key to the next action.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use kube::{Client, Resource};
use parking_lot::Mutex;
use windlass_cache::{Cacheable, Lister, ObjectKey};
use windlass_workqueue::{Priority, WorkQueue};

use crate::{
    children::Memory, election::Epoch, error::Error, events::Recorder, listers::Listers, stop::Stop,
    writer::Writer,
};

/// Brings the world closer to what one object asks for.
///
/// It is told which object, not what happened: it reads the current state and acts on it, so that a missed or
/// repeated call does no harm. It is also called for objects that are gone. One key is never with two calls at the
/// same time.
///
/// Every `Fn(Request, Context) -> impl Future` with the right result is one; a type of its own is one like this:
///
/// ```
/// use windlass_runtime::{Action, Context, Error, Reconciler, Request};
///
/// struct Greeter {
///     greeting: String,
/// }
///
/// impl Reconciler for Greeter {
///     async fn reconcile(&self, request: Request, _ctx: Context) -> Result<Action, Error> {
///         println!("{}, {}", self.greeting, request.key);
///         Ok(Action::done())
///     }
/// }
/// ```
///
/// One that does not say what comes next does not compile:
///
/// ```compile_fail,E0271
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_runtime::{Context, Controller, Request};
///
/// async fn reconcile(request: Request, _ctx: Context) {
///     println!("hello, {}", request.key);
/// }
/// let controller = Controller::<ConfigMap>::new("greeter").reconcile(reconcile);
/// ```
///
/// Nor does one that changes what it read: objects are shared with the cache and everybody who reads it.
///
/// ```compile_fail,E0594
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_runtime::{Action, Context, Error, Request};
///
/// async fn reconcile(request: Request, ctx: Context) -> Result<Action, Error> {
///     if let Some(mut config) = ctx.lister::<ConfigMap>()?.get(&request.key) {
///         config.immutable = Some(true);
///     }
///     Ok(Action::done())
/// }
/// ```
pub trait Reconciler: Send + Sync + 'static {
    /// Reconciles one object. An error, also a panic, means: again, after a backoff that grows.
    fn reconcile(&self, request: Request, ctx: Context)
    -> impl Future<Output = Result<Action, Error>> + Send;
}

impl<F, Fut> Reconciler for F
where
    F: Fn(Request, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, Error>> + Send,
{
    fn reconcile(
        &self,
        request: Request,
        ctx: Context,
    ) -> impl Future<Output = Result<Action, Error>> + Send {
        self(request, ctx)
    }
}

/// Which object to reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// Its key; the object may be gone.
    pub key: ObjectKey,
}

/// What to do after a reconcile that worked.
///
/// One that is made and not returned is a warning of the compiler, and an error where those are:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use std::time::Duration;
/// # use windlass_runtime::{Action, Context, Error, Request};
/// async fn reconcile(_request: Request, _ctx: Context) -> Result<Action, Error> {
///     Action::requeue_after(Duration::from_secs(5)); // and then?
///     Ok(Action::done())
/// }
/// ```
///
/// It is nothing else that is wrong with it:
///
/// ```
/// #![deny(unused_must_use)]
/// # use std::time::Duration;
/// # use windlass_runtime::{Action, Context, Error, Request};
/// async fn reconcile(_request: Request, _ctx: Context) -> Result<Action, Error> {
///     Ok(Action::requeue_after(Duration::from_secs(5)))
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "return it: what comes next depends on it"]
pub struct Action {
    pub(crate) requeue_after: Option<Duration>,
    pub(crate) priority: Option<Priority>,
}

impl Action {
    /// Nothing until something changes.
    pub fn done() -> Self {
        Self {
            requeue_after: None,
            priority: None,
        }
    }

    /// Again after this time, or earlier if something changes.
    pub fn requeue_after(delay: Duration) -> Self {
        Self {
            requeue_after: Some(delay),
            priority: None,
        }
    }

    /// Should it run again, then with this priority. Default: the one that it had.
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Of two wishes, the earlier one.
    pub(crate) fn sooner(self, other: Option<Duration>) -> Self {
        let requeue_after = match (self.requeue_after, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self {
            requeue_after,
            ..self
        }
    }
}

/// What a reconcile may use. It exists only when every cache of the controller is complete. Clones are cheap.
#[derive(Clone)]
pub struct Context {
    pub(crate) world: Arc<World>,
    pub(crate) key: ObjectKey,
    pub(crate) id: ReconcileId,
    /// Of the term in which it runs.
    pub(crate) stop: Stop,
}

/// What the reconciles of one controller share, in one term of leadership.
pub(crate) struct World {
    pub(crate) writer: Writer,
    pub(crate) recorder: Recorder,
    pub(crate) listers: Arc<Listers>,
    pub(crate) queue: WorkQueue<ObjectKey>,
    pub(crate) epoch: Option<Epoch>,
    /// Locked for one look, never across a wait.
    pub(crate) memory: Mutex<Memory>,
}

impl Context {
    /// The client, for writes and for reads that must not be stale. What it writes is visible to the next cached read;
    /// with leader election it writes only while this process is the leader.
    pub fn client(&self) -> &Client {
        self.world.writer.client()
    }

    /// Writes with the controller's name as field manager, through the same client.
    pub fn writer(&self) -> &Writer {
        &self.world.writer
    }

    /// Records events about objects; it never fails and never waits.
    pub fn recorder(&self) -> &Recorder {
        &self.world.recorder
    }

    /// Reads a kind that the controller declared: its own, or one that it owns, watches or reads.
    ///
    /// For any other kind it is a terminal error that names the missing declaration: no watch starts by accident.
    pub fn lister<K: Cacheable + Resource<DynamicType: Default>>(&self) -> Result<&Lister<K>, Error> {
        self.lister_of(&K::DynamicType::default())
    }

    /// Like [`lister`](Self::lister) for a kind that is known at run time.
    pub fn lister_of<K: Cacheable>(&self, kind: &K::DynamicType) -> Result<&Lister<K>, Error> {
        self.world.listers.get::<K>(kind)
    }

    /// The cached object of this kind and name in the namespace of the object that is reconciled: most often a child.
    pub fn get<K: Cacheable + Resource<DynamicType: Default>>(
        &self,
        name: &str,
    ) -> Result<Option<Arc<K>>, Error> {
        let key = match self.key.namespace() {
            Some(namespace) => ObjectKey::namespaced(namespace, name),
            None => ObjectKey::cluster(name),
        };
        Ok(self.lister::<K>()?.try_get(&key)?)
    }

    /// The id of this reconcile; it is in the span of every log line too.
    pub fn id(&self) -> ReconcileId {
        self.id
    }

    /// Which term of leadership this is, to fence writes to the world outside the API: later leaders have greater ones.
    /// `None` without leader election.
    pub fn epoch(&self) -> Option<Epoch> {
        self.world.epoch
    }

    /// Whether the object was queued again while this reconcile runs: what it has read may be stale, and it may want to
    /// return early; it will run again.
    pub fn is_queued_again(&self) -> bool {
        self.world.queue.is_wanted(&self.key)
    }

    /// Returns once this reconcile should come to its end, because the process stops or is no longer the leader. One that
    /// goes on is dropped when the grace period, or the lease, is over. Cancellation-safe.
    pub async fn stopping(&self) {
        self.stop.clone().requested().await;
    }

    /// Whether it should come to its end; see [`stopping`](Self::stopping).
    pub fn is_stopping(&self) -> bool {
        self.stop.is_requested()
    }
}

/// Tells one reconcile from another in logs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReconcileId(uuid::Uuid);

impl ReconcileId {
    /// Unique, not secret: no entropy of the system is used up.
    pub(crate) fn new() -> Self {
        let bits = fastrand::u128(..).to_ne_bytes();
        Self(uuid::Builder::from_random_bytes(bits).into_uuid())
    }
}

impl fmt::Display for ReconcileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ReconcileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

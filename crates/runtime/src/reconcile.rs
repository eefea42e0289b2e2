//! The reconciler interface: a function from a key to the next action.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use kube::{Client, Resource};
use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_cache::{Cacheable, Lister, ObjectKey};
use windlass_clock::Clock;
use windlass_workqueue::Priority;

use crate::{
    children::ApplyHistory,
    election::Epoch,
    error::Error,
    events::Recorder,
    key::ReconcileKey,
    listers::Listers,
    stop::StopSignal,
    trigger::{KeyQueue, Trigger},
    writer::Writer,
};

/// Moves the cluster towards the desired state of one object.
///
/// It receives the object's key, not the event: it reads the current state and acts on it, so a missed or repeated call
/// does no harm. It is also called for deleted objects. Calls for one key never overlap.
///
/// `Key` is the type of the controller's keys; only a [keyed](crate::Keyed) controller has other keys than [`ObjectKey`]s.
///
/// Implemented for every `Fn(Request, Context) -> impl Future` with the right result. For a type of your own:
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
/// A reconciler must return an [`Action`]; this does not compile:
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
/// Nor does changing a cached object: it is shared with the cache's other readers.
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
pub trait Reconciler<Key = ObjectKey>: Send + Sync + 'static {
    /// Reconciles one object. After an error or a panic it is retried with exponential backoff.
    fn reconcile(
        &self,
        request: Request<Key>,
        ctx: Context<Key>,
    ) -> impl Future<Output = Result<Action, Error>> + Send;

    /// Called after a reconcile was cancelled because it exceeded [`Controller::timeout`](crate::Controller::timeout), before
    /// it is retried, so that it can be reported where users look. It is cancelled itself after ten seconds. Default:
    /// nothing; a declarative controller reports it in the status.
    fn timed_out(
        &self,
        request: Request<Key>,
        ctx: Context<Key>,
        limit: Duration,
    ) -> impl Future<Output = ()> + Send {
        let _ = (request, ctx, limit);
        std::future::ready(())
    }

    /// Called instead of [`reconcile`](Self::reconcile) for an object of the controller's kind that does not decode, with a
    /// [terminal](Error::terminal) error that says why, so that it can be reported where users look. Returns the error of
    /// the reconcile. Default: the same error; a declarative controller reports it in the status.
    fn undecodable(
        &self,
        request: Request<Key>,
        ctx: Context<Key>,
        error: Error,
    ) -> impl Future<Output = Error> + Send {
        let _ = (request, ctx);
        std::future::ready(error)
    }
}

impl<Key, F, Fut> Reconciler<Key> for F
where
    F: Fn(Request<Key>, Context<Key>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, Error>> + Send,
{
    fn reconcile(
        &self,
        request: Request<Key>,
        ctx: Context<Key>,
    ) -> impl Future<Output = Result<Action, Error>> + Send {
        self(request, ctx)
    }
}

/// A [`Reconciler`] without its type: what runs a controller is compiled once for each type of key, not for each
/// reconciler.
pub(crate) trait ErasedReconciler<Key>: Send + Sync {
    fn reconcile_boxed(
        &self,
        request: Request<Key>,
        ctx: Context<Key>,
    ) -> Pin<Box<dyn Future<Output = Result<Action, Error>> + Send + '_>>;

    fn timed_out_boxed(
        &self,
        request: Request<Key>,
        ctx: Context<Key>,
        limit: Duration,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    fn undecodable_boxed(
        &self,
        request: Request<Key>,
        ctx: Context<Key>,
        error: Error,
    ) -> Pin<Box<dyn Future<Output = Error> + Send + '_>>;
}

impl<Key: 'static, R: Reconciler<Key>> ErasedReconciler<Key> for R {
    fn reconcile_boxed(
        &self,
        request: Request<Key>,
        ctx: Context<Key>,
    ) -> Pin<Box<dyn Future<Output = Result<Action, Error>> + Send + '_>> {
        Box::pin(self.reconcile(request, ctx))
    }

    fn timed_out_boxed(
        &self,
        request: Request<Key>,
        ctx: Context<Key>,
        limit: Duration,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.timed_out(request, ctx, limit))
    }

    fn undecodable_boxed(
        &self,
        request: Request<Key>,
        ctx: Context<Key>,
        error: Error,
    ) -> Pin<Box<dyn Future<Output = Error> + Send + '_>> {
        Box::pin(self.undecodable(request, ctx, error))
    }
}

/// Which object, or other key, to reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request<Key = ObjectKey> {
    /// The object's key; the object may be deleted.
    pub key: Key,
}

/// What to do after a successful reconcile.
///
/// The compiler warns about an action that is not returned; with that warning denied, this does not compile:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use std::time::Duration;
/// # use windlass_runtime::{Action, Context, Error, Request};
/// async fn reconcile(_request: Request, _ctx: Context) -> Result<Action, Error> {
///     Action::requeue_after(Duration::from_secs(5)); // not returned
///     Ok(Action::done())
/// }
/// ```
///
/// This does:
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
#[must_use = "an action has no effect unless the reconciler returns it"]
pub struct Action {
    pub(crate) requeue_after: Option<Duration>,
    pub(crate) priority: Option<Priority>,
}

impl Action {
    /// Reconciles again when something changes.
    pub fn done() -> Self {
        Self {
            requeue_after: None,
            priority: None,
        }
    }

    /// Reconciles again after this delay, or earlier if something changes.
    pub fn requeue_after(delay: Duration) -> Self {
        Self {
            requeue_after: Some(delay),
            priority: None,
        }
    }

    /// Priority of the next run. Default: unchanged.
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Requeues after the shorter of both delays.
    pub(crate) fn with_earlier_requeue(self, other: Option<Duration>) -> Self {
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

/// Gives a reconcile its client, writer, listers and event recorder. It exists only after every cache of the controller
/// has synced. Clones are cheap.
#[derive(Clone)]
pub struct Context<Key = ObjectKey> {
    pub(crate) term: Arc<TermContext<Key>>,
    pub(crate) run: Arc<Run<Key>>,
}

/// One reconcile of a key, shared by its context and the debug page.
pub(crate) struct Run<Key> {
    pub(crate) key: Key,
    pub(crate) id: ReconcileId,
    pub(crate) trigger: Trigger,
    /// Whether a failure of this reconcile is not retried any more.
    pub(crate) is_last_attempt: bool,
    pub(crate) since: Instant,
}

/// State shared by the reconciles of one controller in one term of leadership.
pub(crate) struct TermContext<Key = ObjectKey> {
    pub(crate) writer: Writer,
    pub(crate) recorder: Recorder,
    pub(crate) listers: Arc<Listers>,
    pub(crate) queue: KeyQueue<Key>,
    pub(crate) stop: StopSignal,
    pub(crate) epoch: Option<Epoch>,
    /// Locked briefly, never across an await.
    pub(crate) history: Mutex<ApplyHistory>,
}

impl Context {
    /// Returns the cached object of this kind and name in the namespace of the reconciled object, most often a child.
    pub fn get<K: Cacheable + Resource<DynamicType: Default>>(
        &self,
        name: &str,
    ) -> Result<Option<Arc<K>>, Error> {
        let key = match self.run.key.namespace() {
            Some(namespace) => ObjectKey::namespaced(namespace, name),
            None => ObjectKey::cluster_scoped(name),
        };
        Ok(self.lister::<K>()?.try_get(&key)?)
    }
}

impl<Key: ReconcileKey> Context<Key> {
    /// Returns the client, for writes and for reads that must not be stale. Its writes are visible to the next cached
    /// read. With leader election it writes only while this process is the leader.
    pub fn client(&self) -> &Client {
        self.term.writer.client()
    }

    /// Returns the writer: server-side apply and other writes with the controller's field manager, through the same client.
    pub fn writer(&self) -> &Writer {
        &self.term.writer
    }

    /// Returns the event recorder. Recording never fails and never waits.
    pub fn recorder(&self) -> &Recorder {
        &self.term.recorder
    }

    /// Returns the lister of a kind that the controller declared: its own, or one that it owns, watches or reads.
    ///
    /// Fails with a terminal error that names the missing declaration for any other kind, so no watch starts by accident.
    pub fn lister<K: Cacheable + Resource<DynamicType: Default>>(&self) -> Result<&Lister<K>, Error> {
        self.dynamic_lister(&K::DynamicType::default())
    }

    /// Like [`lister`](Self::lister), for a kind known only at run time.
    pub fn dynamic_lister<K: Cacheable>(&self, kind: &K::DynamicType) -> Result<&Lister<K>, Error> {
        self.term.listers.get::<K>(kind)
    }

    /// The current time in whole seconds, like the timestamps of objects: the system's, or the paused time of a test. See
    /// [`Clock::system`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::ResourceExt;
    /// use windlass_runtime::{Action, Context, Error, Request};
    ///
    /// /// Deletes a ConfigMap an hour after its creation.
    /// async fn reconcile(request: Request, ctx: Context) -> Result<Action, Error> {
    ///     let Some(config) = ctx.lister::<ConfigMap>()?.get(&request.key) else {
    ///         return Ok(Action::done());
    ///     };
    ///     let created = config.creation_timestamp().map_or(ctx.now(), |time| time.0);
    ///     let age = Duration::try_from(ctx.now().duration_since(created)).unwrap_or_default();
    ///     let left = Duration::from_hours(1).saturating_sub(age);
    ///     if !left.is_zero() {
    ///         return Ok(Action::requeue_after(left));
    ///     }
    ///     ctx.writer().delete(&*config).await?;
    ///     Ok(Action::done())
    /// }
    /// ```
    pub fn now(&self) -> Timestamp {
        Clock::system().now()
    }

    /// The id of this reconcile, which is also in the span of its log lines.
    pub fn id(&self) -> ReconcileId {
        self.run.id
    }

    /// Why this reconcile runs: which object changed and how, a retry, a requeue, the start. For logs and debugging; it is also
    /// in the span of the log lines, as `trigger`.
    pub fn trigger(&self) -> &Trigger {
        &self.run.trigger
    }

    /// The current term of leadership, to fence writes outside the Kubernetes API: later leaders have greater epochs. `None`
    /// without leader election.
    pub fn epoch(&self) -> Option<Epoch> {
        self.term.epoch
    }

    /// Whether the object was queued again during this reconcile. What it has read may be stale; it may return early and
    /// will run again.
    pub fn is_queued_again(&self) -> bool {
        self.term.queue.is_pending(&self.run.key)
    }

    /// Completes when this reconcile should finish, because the process is stopping or is no longer the leader. A reconcile
    /// that continues is cancelled when the grace period or the lease ends. Cancellation-safe.
    pub async fn stopping(&self) {
        self.term.stop.clone().requested().await;
    }

    /// Whether this reconcile should finish; see [`stopping`](Self::stopping).
    pub fn is_stopping(&self) -> bool {
        self.term.stop.is_requested()
    }
}

/// Identifies one reconcile in logs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReconcileId(uuid::Uuid);

impl ReconcileId {
    /// Unique but not secret, so it does not use the system's entropy.
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

//! What an author writes: one function from a key to the next action.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use kube::Client;
use windlass_cache::{Cacheable, Lister, ObjectKey};

use crate::{error::Error, listers::Listers};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Action {
    pub(crate) requeue_after: Option<Duration>,
}

impl Action {
    /// Nothing until something changes.
    pub fn done() -> Self {
        Self { requeue_after: None }
    }

    /// Again after this time, or earlier if something changes.
    pub fn requeue_after(delay: Duration) -> Self {
        Self {
            requeue_after: Some(delay),
        }
    }
}

/// What a reconcile may use. It exists only when every cache of the controller is complete. Clones are cheap.
#[derive(Clone)]
pub struct Context {
    pub(crate) client: Client,
    pub(crate) listers: Arc<Listers>,
    pub(crate) id: ReconcileId,
}

impl Context {
    /// The client, for writes and for reads that must not be stale.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Reads a kind that the controller declared: its own, or one that it owns, watches or reads.
    ///
    /// For any other kind it is a terminal error that names the missing declaration: no watch starts by accident.
    pub fn lister<K: Cacheable>(&self) -> Result<&Lister<K>, Error> {
        self.listers.get::<K>()
    }

    /// The id of this reconcile; it is in the span of every log line too.
    pub fn id(&self) -> ReconcileId {
        self.id
    }
}

/// Tells one reconcile from another in logs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReconcileId(uuid::Uuid);

impl ReconcileId {
    pub(crate) fn new() -> Self {
        Self(uuid::Uuid::new_v4())
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

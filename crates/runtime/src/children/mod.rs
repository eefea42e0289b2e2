//! The declarative style: an author says what should be there, and the runtime brings it about.
//!
//! ```text
//!   object ──► Declarative::desired ──► Desired { children, status }
//!                                           │
//!            apply what differs ◄── compare ┤        (child; one that was made: ask again, then the status)
//!            delete what is not wanted ◄────┤        (brood)
//!            write the status if it differs ┘        (status)
//!            tell people what they must put right    (tell)
//! ```
//!
//! What is a child of an object is known by two marks on it, never by its name or shape: an owner reference with the
//! object's UID that says *controller*, and the label [`CONTROLLER`] with the controller's name. Only what has the first
//! is written, only what has both is deleted, and each delete carries the UID and version of what was looked at.
//!
//! A child that the cache does not show is made by an apply that the server refuses if there is one, so that nobody's object
//! is written under its name, whatever the cache has missed; only then is it asked whose that one is.
//!
//! No state is needed to find children again. What is remembered in memory (`memory`) only saves requests.

mod brood;
mod child;
mod compare;
mod desired;
mod error;
mod memory;
mod status;
mod tell;

use std::{future::Future, sync::Arc, time::Duration};

use kube::{
    Resource,
    core::{ApiResource, DynamicObject},
};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use windlass_cache::{Cacheable, ObjectKey};

use self::child::Did;
pub(crate) use self::{
    brood::{Brood, Offspring},
    memory::Memory,
};
pub use self::{
    child::{APPLIED, CONTROLLER},
    desired::Desired,
    error::ChildError,
};
use crate::{
    controller::Controller,
    error::Error,
    reconcile::{Action, Context, Reconciler, Request},
    source::Boxed,
    writer::Writer,
};

/// Says what should be there for an object.
///
/// Every `Fn(Arc<K>, Context) -> impl Future` with the right result is one. It is called for objects that exist and are
/// not being deleted; children of those that are gone go by their owner references.
pub trait Declarative<K>: Send + Sync + 'static {
    /// The children and the status that the object should have. An error, also a panic, means: again, after a backoff
    /// that grows, and nothing is changed meanwhile. What is [terminal](Error::terminal) waits for the object to change, and
    /// is told as a warning about it.
    fn desired(&self, object: Arc<K>, ctx: Context) -> impl Future<Output = Result<Desired, Error>> + Send;
}

impl<K, F, Fut> Declarative<K> for F
where
    F: Fn(Arc<K>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Desired, Error>> + Send,
{
    fn desired(&self, object: Arc<K>, ctx: Context) -> impl Future<Output = Result<Desired, Error>> + Send {
        self(object, ctx)
    }
}

/// The reconciler of a controller that [declares](crate::Controller::declare).
pub struct Declaring<K: Resource, D> {
    declarative: D,
    kind: K::DynamicType,
    cleanup: Option<(String, Cleanup<K>)>,
}

type Cleanup<K> = Box<dyn Fn(Arc<K>, Context) -> Boxed<Result<(), Error>> + Send + Sync>;

impl<K: Resource, D> Declaring<K, D> {
    pub(crate) fn new(declarative: D, kind: K::DynamicType) -> Self {
        Self {
            declarative,
            kind,
            cleanup: None,
        }
    }
}

impl<K, D> Controller<K, Declaring<K, D>>
where
    K: Cacheable + Serialize,
{
    /// What to do before an object goes, for what owner references do not reach: things outside the cluster, or in other
    /// namespaces. Objects get the finalizer before anything else is done for them; when one is being deleted,
    /// `cleanup` is called until it works, and then the finalizer is taken off.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use windlass_runtime::{Context, Controller, Desired};
    /// let controller = Controller::<ConfigMap>::new("buckets")
    ///     .declare(|_: Arc<ConfigMap>, _: Context| async { Ok(Desired::new()) })
    ///     .cleanup("buckets.example.com/tidy", |_config, _ctx| async { Ok(()) });
    /// ```
    pub fn cleanup<F, Fut>(mut self, finalizer: impl Into<String>, cleanup: F) -> Self
    where
        F: Fn(Arc<K>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let cleanup: Cleanup<K> = Box::new(move |object, ctx| Box::pin(cleanup(object, ctx)));
        self.reconciler.cleanup = Some((finalizer.into(), cleanup));
        self
    }
}

/// The object whose children are looked at.
struct Parent<'a, K: Resource> {
    object: &'a K,
    kind: &'a K::DynamicType,
    key: ObjectKey,
    ctx: &'a Context,
    memory: &'a Mutex<Memory>,
}

impl<'a, K: Resource> Parent<'a, K> {
    fn new(object: &'a K, kind: &'a K::DynamicType, ctx: &'a Context) -> Self {
        Self {
            object,
            kind,
            key: ObjectKey::of(object),
            ctx,
            memory: &ctx.world.memory,
        }
    }
}

impl Context {
    /// Brings about what should be there for an object: the declarative style as one step of an imperative reconcile.
    /// Children that are not said are deleted, those of somebody else never touched, and nothing is written when nothing
    /// differs; see [`Desired`].
    ///
    /// ```
    /// use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
    /// use windlass_runtime::{Action, Context, Desired, Error, Request};
    ///
    /// async fn reconcile(request: Request, ctx: Context) -> Result<Action, Error> {
    ///     let Some(deployment) = ctx.lister::<Deployment>()?.get(&request.key) else {
    ///         return Ok(Action::done());
    ///     };
    ///     let mut notes = ConfigMap::default();
    ///     notes.metadata.name = deployment.metadata.name.clone();
    ///     ctx.bring_about(&*deployment, Desired::new().child(notes)).await?;
    ///     // … and whatever else is to be done.
    ///     Ok(Action::done())
    /// }
    /// ```
    pub async fn bring_about<K>(&self, object: &K, desired: Desired) -> Result<Action, Error>
    where
        K: Cacheable + Serialize + Resource<DynamicType: Clone + Default + Send + Sync>,
    {
        let kind = K::DynamicType::default();
        let parent = Parent::new(object, &kind, self);
        parent
            .bring_about(desired, Thought::Once)
            .await
            .inspect_err(|error| parent.tell(error))
    }
}

impl<K, D> Reconciler for Declaring<K, D>
where
    K: Cacheable + Resource<DynamicType: Clone + Send + Sync> + Serialize,
    D: Declarative<K>,
{
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let Some(object) = ctx.lister_of::<K>(&self.kind)?.get(&request.key) else {
            return Ok(Action::done());
        };
        if object.meta().deletion_timestamp.is_some() {
            return self.leave(object, ctx).await;
        }
        if let Some((finalizer, _)) = &self.cleanup {
            self.writer(&ctx)
                .add_finalizer(&bare(&*object), finalizer)
                .await?;
        }
        let parent = Parent::new(&*object, &self.kind, &ctx);
        let brought_about = async {
            let desired = self.declarative.desired(Arc::clone(&object), ctx.clone()).await?;
            parent.bring_about(desired, Thought::Again).await
        };
        brought_about.await.inspect_err(|error| parent.tell(error))
    }
}

impl<K: Resource, D> Declaring<K, D> {
    /// The last things for an object that is going.
    async fn leave(&self, object: Arc<K>, ctx: Context) -> Result<Action, Error> {
        let finalizers = object.meta().finalizers.as_deref().unwrap_or_default();
        if let Some((finalizer, cleanup)) = &self.cleanup
            && finalizers.contains(finalizer)
        {
            cleanup(Arc::clone(&object), ctx.clone()).await?;
            let writer = self.writer(&ctx);
            writer.remove_finalizer(&bare(&*object), finalizer).await?;
        }
        Ok(Action::done())
    }

    fn writer(&self, ctx: &Context) -> Writer<ApiResource> {
        ctx.writer().of(ApiResource::erase::<K>(&self.kind))
    }
}

/// What may become of a status that was thought of before there were children to see.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Thought {
    /// It is written.
    Once,
    /// It is not: the author is asked again at once, and sees them. Often more has become of them by then.
    Again,
}

/// The object's metadata alone, to write with: nothing here needs to know its type.
fn bare<K: Resource>(object: &K) -> DynamicObject {
    DynamicObject {
        types: None,
        metadata: object.meta().clone(),
        data: Value::Null,
    }
}

impl<K> Parent<'_, K>
where
    K: Cacheable + Resource<DynamicType: Clone + Send + Sync> + Serialize,
{
    async fn bring_about(&self, desired: Desired, thought: Thought) -> Result<Action, Error> {
        let mut wanted = Vec::new();
        let (mut did, mut failed) = (Did::Nothing, None);
        for child in desired.children {
            match self.ensure(child).await {
                Ok((identity, done)) => {
                    wanted.push(identity);
                    did = did.max(done);
                }
                // The others are independent of it.
                Err(error) => {
                    tracing::warn!(%error, "a child is not as it should be");
                    failed = failed.or(Some(error));
                }
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        // Last, so that what takes its place is there before something goes.
        let deleted = self.prune(&wanted).await?;
        let has_status = desired.status.is_some() || !desired.conditions.is_empty();
        // Where there is no next time, what was thought is better than nothing.
        let comes_again = thought == Thought::Again && !self.ctx.is_stopping();
        if did == Did::Created && has_status && comes_again && self.memory.lock().put_off(&self.key) {
            return Ok(desired.action.sooner(Some(Duration::ZERO)));
        }
        let written = self.write_status(desired.status, desired.conditions).await?;
        self.memory.lock().caught_up(&self.key);
        let did_something = did != Did::Nothing || deleted > 0 || written.is_some();
        let version = written
            .as_deref()
            .or(self.object.meta().resource_version.as_deref());
        if let Some((reason, message)) = desired.event
            && (self.memory.lock().tells(&self.key, version) || did_something)
        {
            let about = self.object.object_ref(self.kind);
            self.ctx.recorder().normal(&about, &reason, message);
        }
        Ok(desired.action)
    }
}

//! Declarative reconciles: a function returns the desired children and status, and the runtime applies them.
//!
//! ```text
//!   object ──► DesiredState::desired ──► Desired { children, status }, or an error, or undecided
//!                                           │
//!            apply changed children ◄───────┤        (child; after a create, call `desired` again before the status)
//!            delete unwanted children ◄─────┤        (prune: only if all children are applied, by declared intent)
//!            report the outcome ◄───────────┤        (report, failure: an outcome as standard conditions)
//!            write the status if it differs ┘        (status; support: has the kind conditions?; owned_fields: what an apply must repeat)
//!            record errors as warning events         (warnings)
//! ```
//!
//! The status is written at every outcome: it must never lie or vanish because something failed.
//!
//! Two marks identify a child, never its name or shape: an owner reference with the object's UID and `controller: true`,
//! and the label [`CONTROLLER_LABEL`] with the controller's name. Only objects with the first are written, only objects
//! with both are deleted, and each delete has the observed UID and resource version as preconditions.
//!
//! A child that is not in the cache is created by an apply that fails if the object exists, so a stale cache cannot lead to
//! a write to a foreign object. After such a conflict the live object is read to find its owner.
//!
//! Finding children needs no state. The in-memory `history` only saves requests.

mod apply;
mod child;
mod child_ref;
mod compare;
mod desired;
mod error;
mod failure;
mod history;
mod inspect;
mod owned;
mod owned_fields;
mod prune;
mod report;
mod status;
mod support;
mod warnings;

use std::{
    future::Future,
    panic::{AssertUnwindSafe, resume_unwind},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt;

use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Resource,
    core::{ApiResource, DynamicObject},
};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use windlass_cache::{Cacheable, ObjectKey, Query};

use self::{apply::StatusMode, failure::TimedOut, status::read_live};
pub use self::{
    child::{APPLIED_HASH_ANNOTATION, CONTROLLER_LABEL},
    child_ref::ChildRef,
    desired::Desired,
    error::ChildError,
    inspect::DesiredView,
    prune::{ALLOW_PRUNE_ANNOTATION, PrunePolicy},
};
pub(crate) use self::{
    history::ApplyHistory,
    owned::{ChildLister, OwnedKind},
    warnings::warning_reason,
};
use crate::{
    controller::Controller,
    error::Error,
    reconcile::{Action, Context, Reconciler, Request},
    source::BoxFuture,
    worker::panic_message,
    writer::{Writer, decode},
};

/// A controller's options for children and their status.
#[derive(Clone, Copy, Default)]
pub(crate) struct ChildOptions {
    pub(crate) prune: PrunePolicy,
    pub(crate) without_conditions: bool,
}

/// Computes the desired children and status of an object.
///
/// Implemented for every `Fn(Arc<K>, Context) -> impl Future` with the right result. It is called for objects that exist
/// and are not being deleted; children of deleted objects are garbage collected by their owner references.
pub trait DesiredState<K>: Send + Sync + 'static {
    /// Returns the desired children and status. After an error or a panic the children stay as they are, the conditions
    /// in the status tell why, and it is retried with exponential backoff. After a [terminal](Error::terminal) error it
    /// waits for the object to change and records a warning event about it.
    fn desired(&self, object: Arc<K>, ctx: Context) -> impl Future<Output = Result<Desired, Error>> + Send;
}

impl<K, F, Fut> DesiredState<K> for F
where
    F: Fn(Arc<K>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Desired, Error>> + Send,
{
    fn desired(&self, object: Arc<K>, ctx: Context) -> impl Future<Output = Result<Desired, Error>> + Send {
        self(object, ctx)
    }
}

/// The reconciler of a [declarative](crate::Controller::declare) controller.
pub struct DesiredStateReconciler<K: Resource, D> {
    desired_state: D,
    kind: K::DynamicType,
    cleanup: Option<(String, CleanupFn<K>)>,
}

type CleanupFn<K> = Box<dyn Fn(Arc<K>, Context) -> BoxFuture<Result<(), Error>> + Send + Sync>;

impl<K: Resource, D> DesiredStateReconciler<K, D> {
    pub(crate) fn new(desired_state: D, kind: K::DynamicType) -> Self {
        Self {
            desired_state,
            kind,
            cleanup: None,
        }
    }
}

impl<K, D> Controller<K, DesiredStateReconciler<K, D>>
where
    K: Cacheable + Serialize,
{
    /// Runs `cleanup` before an object is deleted, for what garbage collection does not reach: resources outside the cluster
    /// or in other namespaces. Objects get the finalizer before anything else. When an object is being deleted, `cleanup` is
    /// retried until it succeeds, and then the finalizer is removed. Conditions in the status tell why it failed.
    ///
    /// `cleanup` runs **at least once** for each object: until it succeeds, and after that again only if the process ends,
    /// or loses its lease, before the finalizer is removed. A run that fails or times out may have done a part of the
    /// work. So it must be idempotent.
    /// Use the object's UID as the key of what it removes, because a new object may have the same name, and take "not
    /// found" for success:
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use windlass_runtime::{Context, Controller, Desired, Error};
    /// # async fn delete_bucket(name: &str) -> Result<bool, Error> { Ok(false) }
    /// let controller = Controller::<ConfigMap>::new("buckets")
    ///     .declare(|_: Arc<ConfigMap>, _: Context| async { Ok(Desired::new()) })
    ///     .cleanup("buckets.example.com/tidy", |config, _ctx| async move {
    ///         let uid = config.metadata.uid.as_deref().unwrap_or_default();
    ///         let existed = delete_bucket(&format!("bucket-{uid}")).await?;
    ///         tracing::info!(existed, "bucket is gone");
    ///         Ok(())
    ///     });
    /// ```
    pub fn cleanup<F, Fut>(mut self, finalizer: impl Into<String>, cleanup: F) -> Self
    where
        F: Fn(Arc<K>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let cleanup: CleanupFn<K> = Box::new(move |object, ctx| Box::pin(cleanup(object, ctx)));
        self.reconciler.cleanup = Some((finalizer.into(), cleanup));
        self.options.has_cleanup = true;
        self
    }
}

/// The reconciled object, as the parent of its children.
struct Parent<'a> {
    object: &'a dyn ParentObject,
    key: ObjectKey,
    ctx: &'a Context,
    history: &'a Mutex<ApplyHistory>,
}

impl<'a> Parent<'a> {
    fn new(object: &'a dyn ParentObject, ctx: &'a Context) -> Self {
        Self {
            key: object.key(),
            object,
            ctx,
            history: &ctx.term.history,
        }
    }
}

/// A parent without its type: what applies and deletes children is compiled once, not for each kind.
trait ParentObject: Send + Sync {
    fn key(&self) -> ObjectKey;
    fn meta(&self) -> &ObjectMeta;
    fn kind(&self) -> String;
    fn resource(&self) -> ApiResource;
    /// Whether it is read without its type, into which it does not decode.
    fn is_raw(&self) -> bool;
    fn object_ref(&self) -> ObjectReference;
    fn owner_ref(&self) -> Option<OwnerReference>;
    fn to_value(&self) -> Result<Value, serde_json::Error>;
    /// Returns another state of the object, round-tripped through the type like [`to_value`](Self::to_value).
    fn value_of(&self, other: &DynamicObject) -> Result<Value, serde_json::Error>;
    fn status(&self) -> Result<Value, serde_json::Error> {
        Ok(self.to_value()?["status"].take())
    }
    /// Returns what is left of a status after a round trip through the type.
    fn with_status(&self, status: Value) -> Result<Value, serde_json::Error>;
}

/// An object and its kind.
struct TypedParent<'a, K: Resource> {
    object: &'a K,
    kind: &'a K::DynamicType,
    is_raw: bool,
}

impl<'a, K: Resource> TypedParent<'a, K> {
    fn new(object: &'a K, kind: &'a K::DynamicType) -> Self {
        let is_raw = false;
        Self { object, kind, is_raw }
    }
}

impl<K: Cacheable + Resource<DynamicType: Sync> + Serialize> ParentObject for TypedParent<'_, K> {
    fn key(&self) -> ObjectKey {
        ObjectKey::of(self.object)
    }

    fn meta(&self) -> &ObjectMeta {
        self.object.meta()
    }

    fn kind(&self) -> String {
        K::kind(self.kind).into_owned()
    }

    fn resource(&self) -> ApiResource {
        ApiResource::erase::<K>(self.kind)
    }

    fn is_raw(&self) -> bool {
        self.is_raw
    }

    fn object_ref(&self) -> ObjectReference {
        self.object.object_ref(self.kind)
    }

    fn owner_ref(&self) -> Option<OwnerReference> {
        self.object.controller_owner_ref(self.kind)
    }

    fn to_value(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(self.object)
    }

    fn value_of(&self, other: &DynamicObject) -> Result<Value, serde_json::Error> {
        let other: K = decode(&serde_json::to_vec(other)?)?;
        serde_json::to_value(other)
    }

    fn with_status(&self, status: Value) -> Result<Value, serde_json::Error> {
        let mut object = serde_json::to_value(self.object)?;
        object["status"] = status;
        let object: K = decode(&serde_json::to_vec(&object)?)?;
        Ok(serde_json::to_value(object)?["status"].take())
    }
}

impl Context {
    /// Applies the desired children and status of an object, as one step of an imperative reconcile. Children that are no
    /// longer desired are deleted, foreign objects are never touched, and nothing is written if nothing differs; see
    /// [`Desired`].
    ///
    /// The status is the reconciler's own, and is left alone, unless it is part of the desired state: with a
    /// [status](Desired::status), a [condition](Desired::condition) or [undecided](Desired::undecided), the standard
    /// conditions are written too. Then do not write the status with the [writer](Self::writer) as well: each would undo
    /// the other's.
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
    ///     ctx.apply_desired(&*deployment, Desired::new().child(notes)).await?;
    ///     // … further steps.
    ///     Ok(Action::done())
    /// }
    /// ```
    pub async fn apply_desired<K>(&self, object: &K, desired: Desired) -> Result<Action, Error>
    where
        K: Cacheable + Serialize + Resource<DynamicType: Clone + Default + Send + Sync>,
    {
        let kind = K::DynamicType::default();
        let object = TypedParent::new(object, &kind);
        let parent = Parent::new(&object, self);
        parent.apply_desired(desired, StatusMode::Imperative).await
    }
}

impl<K, D> Reconciler for DesiredStateReconciler<K, D>
where
    K: Cacheable + Resource<DynamicType: Clone + Send + Sync> + Serialize,
    D: DesiredState<K>,
{
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let Some(object) = ctx.dynamic_lister::<K>(&self.kind)?.get(&request.key) else {
            return Ok(Action::done());
        };
        let typed = TypedParent::new(&*object, &self.kind);
        let parent = Parent::new(&typed, &ctx);
        let calls = async {
            if object.meta().deletion_timestamp.is_some() {
                self.finalize(Arc::clone(&object), &ctx).await?;
                self.report_terminating(&ctx).await?;
                return Ok(None);
            }
            if let Some((finalizer, _)) = &self.cleanup {
                let writer = self.writer(&ctx);
                writer.add_finalizer(&metadata_only(&*object), finalizer).await?;
            }
            let desired = self.desired_state.desired(Arc::clone(&object), ctx.clone());
            desired.await.map(Some)
        };
        match AssertUnwindSafe(calls).catch_unwind().await {
            // `desired` may have deleted the object: its children go with it.
            Ok(Ok(Some(_))) if !self.exists(&object, &ctx)? => Ok(Action::done()),
            Ok(Ok(Some(desired))) => parent.apply_desired(desired, StatusMode::Declarative).await,
            Ok(Ok(None)) => Ok(Action::done()),
            Ok(Err(error)) => Err(parent.report_error(error).await),
            Err(panic) => {
                let error = format!("panicked: {}", panic_message(&*panic));
                parent.report_error(error.into()).await;
                resume_unwind(panic)
            }
        }
    }

    async fn timed_out(&self, request: Request, ctx: Context, limit: Duration) {
        let lister = ctx.dynamic_lister::<K>(&self.kind);
        let Some(object) = lister.ok().and_then(|lister| lister.get(&request.key)) else {
            return;
        };
        let typed = TypedParent::new(&*object, &self.kind);
        let error = Parent::new(&typed, &ctx)
            .report_error(TimedOut(limit).into())
            .await;
        tracing::debug!(%error, "reported in the status");
    }

    async fn undecodable(&self, request: Request, ctx: Context, error: Error) -> Error {
        // The object may have changed since, or be gone; then it is reconciled again.
        let resource = ApiResource::erase::<K>(&self.kind);
        let object = match read_live(&ctx, &resource, &request.key).await {
            Ok(Some(object)) => object,
            Ok(None) => return error,
            Err(unread) => return unread,
        };
        let text = serde_json::to_vec(&object).unwrap_or_default();
        if decode::<K>(&text).is_ok() {
            return error;
        }
        let raw = TypedParent {
            object: &object,
            kind: &resource,
            is_raw: true,
        };
        self.learn_support(&ctx);
        Parent::new(&raw, &ctx).report_error(error).await
    }
}

impl<K, D> DesiredStateReconciler<K, D>
where
    K: Cacheable + Resource<DynamicType: Sync> + Serialize,
{
    /// Finds out whether the kind has conditions from an object that decodes.
    fn learn_support(&self, ctx: &Context) {
        let Ok(lister) = ctx.dynamic_lister::<K>(&self.kind) else {
            return;
        };
        let mut objects = lister.list_cached(&Query::all()).into_iter();
        if let Some(object) = objects.find_map(|object| object.object().ok()) {
            let typed = TypedParent::new(&*object, &self.kind);
            Parent::new(&typed, ctx).learn_support();
        }
    }

    /// Ends the report of a cleanup that failed and has succeeded since, while others hold the object.
    async fn report_terminating(&self, ctx: &Context) -> Result<(), Error> {
        let Some(object) = ctx.dynamic_lister::<K>(&self.kind)?.get(&ctx.run.key) else {
            return Ok(());
        };
        if object.meta().deletion_timestamp.is_none() {
            return Ok(());
        }
        let typed = TypedParent::new(&*object, &self.kind);
        Parent::new(&typed, ctx).report_terminating().await
    }
}

impl<K: Cacheable, D> DesiredStateReconciler<K, D> {
    /// Whether the object still exists and is not being deleted.
    fn exists(&self, object: &K, ctx: &Context) -> Result<bool, Error> {
        let current = ctx.dynamic_lister::<K>(&self.kind)?.get(&ctx.run.key);
        Ok(current.is_some_and(|current| {
            current.meta().uid == object.meta().uid && current.meta().deletion_timestamp.is_none()
        }))
    }
}

impl<K: Resource, D> DesiredStateReconciler<K, D> {
    /// Runs the cleanup of an object that is being deleted, and removes the finalizer.
    async fn finalize(&self, object: Arc<K>, ctx: &Context) -> Result<(), Error> {
        let finalizers = object.meta().finalizers.as_deref().unwrap_or_default();
        if let Some((finalizer, cleanup)) = &self.cleanup
            && finalizers.contains(finalizer)
        {
            let (key, uid) = (ObjectKey::of(&*object), object.meta().uid.as_deref());
            let history = &ctx.term.history;
            // The removal of the finalizer may have failed, most often by a conflict.
            let is_cleaned_up = history.lock().is_cleaned_up(&key, uid);
            if !is_cleaned_up {
                cleanup(Arc::clone(&object), ctx.clone()).await?;
                history.lock().record_cleanup(&key, uid);
            }
            let writer = self.writer(ctx);
            writer
                .remove_finalizer(&metadata_only(&*object), finalizer)
                .await?;
        }
        Ok(())
    }

    fn writer(&self, ctx: &Context) -> Writer<ApiResource> {
        ctx.writer().dynamic(ApiResource::erase::<K>(&self.kind))
    }
}

/// The object's metadata without its type, for writes.
fn metadata_only<K: Resource>(object: &K) -> DynamicObject {
    DynamicObject {
        types: None,
        metadata: object.meta().clone(),
        data: Value::Null,
    }
}

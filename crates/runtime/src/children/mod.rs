//! Declarative reconciles: a function returns the desired children and status, and the runtime applies them.
//!
//! ```text
//!   object ──► DesiredState::desired ──► Desired { children, status }
//!                                           │
//!            apply changed children ◄───────┤        (child; after a create, call `desired` again before the status)
//!            delete unwanted children ◄─────┤        (owned)
//!            write the status if it differs ┘        (status)
//!            record errors as warning events         (warnings)
//! ```
//!
//! Two marks identify a child, never its name or shape: an owner reference with the object's UID and `controller: true`,
//! and the label [`CONTROLLER_LABEL`] with the controller's name. Only objects with the first are written, only objects
//! with both are deleted, and each delete has the observed UID and resource version as preconditions.
//!
//! A child that is not in the cache is created by an apply that fails if the object exists, so a stale cache cannot lead to
//! a write to a foreign object. After such a conflict the live object is read to find its owner.
//!
//! Finding children needs no state. The in-memory `history` only saves requests.

mod child;
mod compare;
mod desired;
mod error;
mod history;
mod owned;
mod status;
mod warnings;

use std::{future::Future, sync::Arc, time::Duration};

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
use windlass_cache::{Cacheable, ObjectKey};

use self::child::ChildChange;
pub use self::{
    child::{APPLIED_HASH_ANNOTATION, CONTROLLER_LABEL},
    desired::Desired,
    error::ChildError,
};
pub(crate) use self::{
    history::ApplyHistory,
    owned::{ChildLister, OwnedKind},
};
use crate::{
    controller::Controller,
    error::Error,
    reconcile::{Action, Context, Reconciler, Request},
    source::BoxFuture,
    writer::{Writer, decode},
};

/// Computes the desired children and status of an object.
///
/// Implemented for every `Fn(Arc<K>, Context) -> impl Future` with the right result. It is called for objects that exist
/// and are not being deleted; children of deleted objects are garbage collected by their owner references.
pub trait DesiredState<K>: Send + Sync + 'static {
    /// Returns the desired children and status. After an error or a panic nothing is changed, and it is retried with
    /// exponential backoff. After a [terminal](Error::terminal) error it waits for the object to change and records a
    /// warning event about it.
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
    /// retried until it succeeds, and then the finalizer is removed.
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
        let cleanup: CleanupFn<K> = Box::new(move |object, ctx| Box::pin(cleanup(object, ctx)));
        self.reconciler.cleanup = Some((finalizer.into(), cleanup));
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
    fn object_ref(&self) -> ObjectReference;
    fn owner_ref(&self) -> Option<OwnerReference>;
    fn status(&self) -> Result<Value, serde_json::Error>;
    /// Returns the status of another state of the object, round-tripped through the type like [`status`](Self::status).
    fn status_of(&self, other: &DynamicObject) -> Result<Value, serde_json::Error>;
}

/// An object and its kind.
struct TypedParent<'a, K: Resource> {
    object: &'a K,
    kind: &'a K::DynamicType,
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

    fn object_ref(&self) -> ObjectReference {
        self.object.object_ref(self.kind)
    }

    fn owner_ref(&self) -> Option<OwnerReference> {
        self.object.controller_owner_ref(self.kind)
    }

    fn status(&self) -> Result<Value, serde_json::Error> {
        Ok(serde_json::to_value(self.object)?["status"].take())
    }

    fn status_of(&self, other: &DynamicObject) -> Result<Value, serde_json::Error> {
        let other: K = decode(&serde_json::to_vec(other)?)?;
        Ok(serde_json::to_value(other)?["status"].take())
    }
}

impl Context {
    /// Applies the desired children and status of an object, as one step of an imperative reconcile. Children that are no
    /// longer desired are deleted, foreign objects are never touched, and nothing is written if nothing differs; see
    /// [`Desired`].
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
        let object = TypedParent { object, kind: &kind };
        let parent = Parent::new(&object, self);
        parent
            .apply_desired(desired, StaleStatus::Write)
            .await
            .inspect_err(|error| parent.record_warning(error))
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
        if object.meta().deletion_timestamp.is_some() {
            return self.finalize(object, ctx).await;
        }
        if let Some((finalizer, _)) = &self.cleanup {
            self.writer(&ctx)
                .add_finalizer(&metadata_only(&*object), finalizer)
                .await?;
        }
        let typed = TypedParent {
            object: &*object,
            kind: &self.kind,
        };
        let parent = Parent::new(&typed, &ctx);
        let applied = async {
            let desired = self
                .desired_state
                .desired(Arc::clone(&object), ctx.clone())
                .await?;
            parent.apply_desired(desired, StaleStatus::Recompute).await
        };
        applied.await.inspect_err(|error| parent.record_warning(error))
    }
}

impl<K: Resource, D> DesiredStateReconciler<K, D> {
    /// Runs the cleanup of an object that is being deleted, and removes the finalizer.
    async fn finalize(&self, object: Arc<K>, ctx: Context) -> Result<Action, Error> {
        let finalizers = object.meta().finalizers.as_deref().unwrap_or_default();
        if let Some((finalizer, cleanup)) = &self.cleanup
            && finalizers.contains(finalizer)
        {
            cleanup(Arc::clone(&object), ctx.clone()).await?;
            let writer = self.writer(&ctx);
            writer
                .remove_finalizer(&metadata_only(&*object), finalizer)
                .await?;
        }
        Ok(Action::done())
    }

    fn writer(&self, ctx: &Context) -> Writer<ApiResource> {
        ctx.writer().dynamic(ApiResource::erase::<K>(&self.kind))
    }
}

/// What to do with a status that was computed before the children existed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StaleStatus {
    /// Write it.
    Write,
    /// Do not write it; compute it again at once, with the new children.
    Recompute,
}

/// The object's metadata without its type, for writes.
fn metadata_only<K: Resource>(object: &K) -> DynamicObject {
    DynamicObject {
        types: None,
        metadata: object.meta().clone(),
        data: Value::Null,
    }
}

impl Parent<'_> {
    async fn apply_desired(&self, desired: Desired, stale_status: StaleStatus) -> Result<Action, Error> {
        let mut wanted = Vec::new();
        let (mut change, mut failed) = (ChildChange::Unchanged, None);
        for child in desired.children {
            match self.ensure_child(child).await {
                Ok((identity, child_change)) => {
                    wanted.push(identity);
                    change = change.max(child_change);
                }
                // The other children are independent of it.
                Err(error) => {
                    tracing::warn!(%error, "cannot apply child");
                    failed = failed.or(Some(error));
                }
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        // Last, so that a replacement exists before its predecessor is deleted.
        let deleted = self.prune(&wanted).await?;
        let has_status = desired.status.is_some() || !desired.conditions.is_empty();
        // While stopping, a status from before the children is better than none.
        let can_recompute = stale_status == StaleStatus::Recompute && !self.ctx.is_stopping();
        if change == ChildChange::Created
            && has_status
            && can_recompute
            && self.history.lock().defer_status(&self.key)
        {
            return Ok(desired.action.with_earlier_requeue(Some(Duration::ZERO)));
        }
        let written = self.write_status(desired.status, desired.conditions).await?;
        self.history.lock().clear_deferred_status(&self.key);
        let has_written = change != ChildChange::Unchanged || deleted > 0 || written.is_some();
        let version = written
            .as_deref()
            .or(self.object.meta().resource_version.as_deref());
        if let Some((reason, message)) = desired.event
            && (self.history.lock().is_event_due(&self.key, version) || has_written)
        {
            let about = self.object.object_ref();
            self.ctx.recorder().normal(&about, &reason, message);
        }
        Ok(desired.action)
    }
}

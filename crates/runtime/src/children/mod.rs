//! The declarative style: an author says what should be there, and the runtime brings it about.
//!
//! ```text
//!   object ──► Declarative::desired ──► Desired { children, status }
//!                                           │
//!            apply what differs ◄── compare ┤        (child)
//!            delete what is not wanted ◄────┤        (brood)
//!            write the status if it differs ┘        (status)
//! ```
//!
//! What is a child of an object is known by two marks on it, never by its name or shape: an owner reference with the
//! object's UID that says *controller*, and the label [`CONTROLLER`] with the controller's name. Only what has the first
//! is written, only what has both is deleted, and each delete carries the UID and version of what was looked at.
//!
//! No state is needed to find children again. What is remembered in memory (`memory`) only saves requests.

mod brood;
mod child;
mod compare;
mod desired;
mod error;
mod memory;
mod status;

use std::{future::Future, sync::Arc};

use kube::Resource;
use parking_lot::Mutex;
use serde::Serialize;
use windlass_cache::{Cacheable, ObjectKey};

pub(crate) use self::brood::{Brood, Offspring};
use self::memory::Memory;
pub use self::{
    child::{APPLIED, CONTROLLER},
    desired::Desired,
    error::ChildError,
};
use crate::{
    error::Error,
    reconcile::{Action, Context, Reconciler, Request},
};

/// Says what should be there for an object.
///
/// Every `Fn(Arc<K>, Context) -> impl Future` with the right result is one. It is called for objects that exist and are
/// not being deleted; children of those that are gone go by their owner references.
pub trait Declarative<K>: Send + Sync + 'static {
    /// The children and the status that the object should have. An error, also a panic, means: again, after a backoff
    /// that grows, and nothing is changed meanwhile.
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
    memory: Mutex<Memory>,
}

impl<K: Resource, D> Declaring<K, D> {
    pub(crate) fn new(declarative: D, kind: K::DynamicType) -> Self {
        Self {
            declarative,
            kind,
            memory: Mutex::default(),
        }
    }
}

/// The object whose children are looked at.
struct Parent<'a, K: Resource> {
    object: &'a K,
    kind: &'a K::DynamicType,
    key: &'a ObjectKey,
    ctx: &'a Context,
    memory: &'a Mutex<Memory>,
}

impl<K, D> Reconciler for Declaring<K, D>
where
    K: Cacheable + Resource<DynamicType: Clone + Send + Sync> + Serialize,
    D: Declarative<K>,
{
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let Some(object) = ctx.lister_of::<K>(&self.kind)?.get(&request.key) else {
            self.memory.lock().forget(&request.key);
            return Ok(Action::done());
        };
        if object.meta().deletion_timestamp.is_some() {
            return Ok(Action::done());
        }
        let desired = self.declarative.desired(Arc::clone(&object), ctx.clone()).await?;
        let parent = Parent {
            object: &*object,
            kind: &self.kind,
            key: &request.key,
            ctx: &ctx,
            memory: &self.memory,
        };
        parent.bring_about(desired).await
    }
}

impl<K> Parent<'_, K>
where
    K: Cacheable + Resource<DynamicType: Clone + Send + Sync> + Serialize,
{
    async fn bring_about(&self, desired: Desired) -> Result<Action, Error> {
        let mut wanted = Vec::new();
        let mut failed = None;
        for child in desired.children {
            match self.ensure(child).await {
                Ok(identity) => wanted.push(identity),
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
        self.prune(&wanted).await?;
        if let Some(status) = desired.status {
            self.write_status(status).await?;
        }
        Ok(desired.action)
    }
}

//! The desired children and status of an object.

use std::time::Duration;

use kube::Resource;
use serde::Serialize;
use serde_json::Value;
use windlass_cache::Cacheable;

use super::child::Child;
use crate::{conditions::ConditionUpdate, reconcile::Action};

/// The desired children and status of an object.
///
/// Children get the object's namespace if they have none, an owner reference to it, and the label
/// `windlass.dev/controller`. They are applied server-side with the controller's field manager, so fields that are not set
/// here are left to other managers. A child that is no longer desired is deleted. If nothing differs, nothing is written.
///
/// The controller must [own](crate::Controller::owns) the kinds of the children, so that it watches them.
///
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
/// use windlass_runtime::{Context, Controller, Desired, Error};
///
/// /// Every Deployment gets a ConfigMap with its number of replicas.
/// async fn desired(deployment: Arc<Deployment>, _ctx: Context) -> Result<Desired, Error> {
///     let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default();
///     let mut config = ConfigMap::default();
///     config.metadata.name = deployment.metadata.name.clone();
///     config.data = Some([("replicas".to_owned(), replicas.to_string())].into());
///     Ok(Desired::new().child(config))
/// }
///
/// let controller = Controller::<Deployment>::new("sizes").owns::<ConfigMap>().declare(desired);
/// ```
///
/// A function that returns nothing does not compile:
///
/// ```compile_fail,E0271
/// # use std::sync::Arc;
/// # use k8s_openapi::api::apps::v1::Deployment;
/// # use windlass_runtime::{Context, Controller};
/// async fn desired(_deployment: Arc<Deployment>, _ctx: Context) {}
/// let controller = Controller::<Deployment>::new("sizes").declare(desired);
/// ```
#[must_use = "a desired state has no effect unless it is returned or applied"]
pub struct Desired {
    pub(super) children: Vec<Child>,
    pub(super) status: Option<Result<Value, serde_json::Error>>,
    pub(super) conditions: Vec<ConditionUpdate>,
    pub(super) event: Option<(String, String)>,
    pub(super) action: Action,
}

impl Default for Desired {
    fn default() -> Self {
        Self::new()
    }
}

impl Desired {
    /// No children, and an unchanged status.
    pub fn new() -> Self {
        Self {
            children: Vec::new(),
            status: None,
            conditions: Vec::new(),
            event: None,
            action: Action::done(),
        }
    }

    /// Adds a child.
    pub fn child<C>(self, child: C) -> Self
    where
        C: Cacheable + Serialize + Resource<DynamicType: Default + Send + Sync>,
    {
        self.dynamic_child(child, C::DynamicType::default())
    }

    /// Adds children.
    pub fn children<C>(self, children: impl IntoIterator<Item = C>) -> Self
    where
        C: Cacheable + Serialize + Resource<DynamicType: Default + Send + Sync>,
    {
        children.into_iter().fold(self, Self::child)
    }

    /// Adds a child of a kind known only at run time.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "taking the child prevents later changes, which would have no effect"
    )]
    pub fn dynamic_child<C>(mut self, child: C, kind: C::DynamicType) -> Self
    where
        C: Cacheable + Serialize + Resource<DynamicType: Send + Sync>,
    {
        self.children.push(Child::new(&child, kind));
        self
    }

    /// Sets the status: all fields that this controller owns. It is applied to the `status` subresource if it differs. If a
    /// child was just created, the status was computed without it: it is not written, and the function is called again at
    /// once. Default: the status is left alone.
    pub fn status(mut self, status: impl Serialize) -> Self {
        self.status = Some(serde_json::to_value(status));
        self
    }

    /// Adds a condition to the status, with the object's generation as observed generation. Its transition time changes only
    /// with its status. If other controllers write conditions too, the CRD must declare the list as a map by type
    /// (`x-kubernetes-list-type: map`).
    ///
    /// ```
    /// use windlass_runtime::{ConditionUpdate, Desired};
    /// let desired = Desired::new().condition(ConditionUpdate::true_("Ready", "AllReplicasRun"));
    /// ```
    pub fn condition(mut self, condition: ConditionUpdate) -> Self {
        self.conditions.push(condition);
        self
    }

    /// Records this event about the object when it is reconciled, for example `Synced`: each time the object has changed or
    /// the controller has written something, but not for reconciles caused by its own writes. Default: none.
    pub fn event(mut self, reason: impl Into<String>, message: impl Into<String>) -> Self {
        self.event = Some((reason.into(), message.into()));
        self
    }

    /// Reconciles again after this delay even if nothing changes. Default: only when something changes.
    pub fn requeue_after(mut self, delay: Duration) -> Self {
        self.action = self.action.with_earlier_requeue(Some(delay));
        self
    }
}

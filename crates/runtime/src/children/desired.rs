//! What an author wants to be there.

use std::time::Duration;

use kube::Resource;
use serde::Serialize;
use serde_json::Value;
use windlass_cache::Cacheable;

use super::child::Child;
use crate::{conditions::Finding, reconcile::Action};

/// What should be there for an object: its children, and its status.
///
/// Children get the object's namespace if they name none, an owner reference to it, and the label
/// `windlass.dev/controller`. They are applied server-side under the controller's name as field manager, so that what is
/// not said here is left to others. A child that was wanted before and is not said any more is deleted. When nothing
/// differs nothing is written.
///
/// The kinds of the children must be [owned](crate::Controller::owns) by the controller, which then hears of their
/// changes.
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
/// A function that returns nothing says nothing of what should be there, and does not compile:
///
/// ```compile_fail,E0271
/// # use std::sync::Arc;
/// # use k8s_openapi::api::apps::v1::Deployment;
/// # use windlass_runtime::{Context, Controller};
/// async fn desired(_deployment: Arc<Deployment>, _ctx: Context) {}
/// let controller = Controller::<Deployment>::new("sizes").declare(desired);
/// ```
#[must_use = "return it: nothing happens otherwise"]
pub struct Desired {
    pub(super) children: Vec<Child>,
    pub(super) status: Option<Result<Value, serde_json::Error>>,
    pub(super) conditions: Vec<Finding>,
    pub(super) event: Option<(String, String)>,
    pub(super) action: Action,
}

impl Default for Desired {
    fn default() -> Self {
        Self::new()
    }
}

impl Desired {
    /// No children, and whatever status there is.
    pub fn new() -> Self {
        Self {
            children: Vec::new(),
            status: None,
            conditions: Vec::new(),
            event: None,
            action: Action::done(),
        }
    }

    /// And this child.
    pub fn child<C>(self, child: C) -> Self
    where
        C: Cacheable + Serialize + Resource<DynamicType: Default + Send + Sync>,
    {
        self.dynamic_child(child, C::DynamicType::default())
    }

    /// And these children.
    pub fn children<C>(self, children: impl IntoIterator<Item = C>) -> Self
    where
        C: Cacheable + Serialize + Resource<DynamicType: Default + Send + Sync>,
    {
        children.into_iter().fold(self, Self::child)
    }

    /// And this child of a kind that is known at run time.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a child is given away: what was changed in it afterwards would have no effect"
    )]
    pub fn dynamic_child<C>(mut self, child: C, kind: C::DynamicType) -> Self
    where
        C: Cacheable + Serialize + Resource<DynamicType: Send + Sync>,
    {
        self.children.push(Child::new(&child, kind));
        self
    }

    /// The status that the object should have, all of it as far as this controller is concerned. Written to the `status`
    /// subresource if it differs from what is there. When a child had to be made, what was said of the status was said
    /// without it: nothing is written, and the function is called again at once. Default: it is left alone.
    pub fn status(mut self, status: impl Serialize) -> Self {
        self.status = Some(serde_json::to_value(status));
        self
    }

    /// A condition of the status, with the generation that was looked at; the time of its last transition stays while it
    /// says the same. If others write conditions too, the CRD must say that the list is a map by type
    /// (`x-kubernetes-list-type: map`).
    ///
    /// ```
    /// use windlass_runtime::{Desired, Finding};
    /// let desired = Desired::new().condition(Finding::yes("Ready", "AllReplicasRun"));
    /// ```
    pub fn condition(mut self, finding: Finding) -> Self {
        self.conditions.push(finding);
        self
    }

    /// Records this event about the object once everything is as it should be, for example `Synced`: each time that the
    /// object has changed or something was done for it, and not for what the controller's own writes lead to. Default: none.
    pub fn event(mut self, reason: impl Into<String>, message: impl Into<String>) -> Self {
        self.event = Some((reason.into(), message.into()));
        self
    }

    /// Look again after this time, also if nothing changes. Default: only when something changes.
    pub fn requeue_after(mut self, delay: Duration) -> Self {
        self.action = self.action.sooner(Some(delay));
        self
    }
}

//! The desired children and status of an object.

use std::time::Duration;

use kube::Resource;
use serde::Serialize;
use serde_json::Value;
use windlass_cache::{Cacheable, GroupVersionKind};

use super::{child::Child, child_ref::ChildRef, prune::PrunePolicy};
use crate::{conditions::ConditionUpdate, reconcile::Action};

/// The desired children and status of an object.
///
/// Children get the object's namespace if they have none, an owner reference to it, and the label
/// `windlass.dev/controller`. They are applied server-side with the controller's field manager, so fields that are not set
/// here are left to other managers. If nothing differs, nothing is written.
///
/// A child that fails does not stop the others, except those that come [after](Self::after) it. A child that is no
/// longer desired is deleted, last, if no child failed and if that is declared intent: see [`PrunePolicy`]. If you cannot
/// decide now, return [`undecided`](Self::undecided).
///
/// If the status has `conditions`, they tell the outcome, whatever it is: see [`READY_CONDITION`](crate::READY_CONDITION)
/// and `docs/status.md`.
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
    /// The children from here on were added by the last call.
    last_added: usize,
    pub(super) mentioned: Vec<GroupVersionKind>,
    pub(super) removed: Vec<GroupVersionKind>,
    /// The kind of each optional child that is absent.
    pub(super) absent: Vec<GroupVersionKind>,
    pub(super) prune: Option<PrunePolicy>,
    /// Reason and message.
    pub(super) undecided: Option<(String, String)>,
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
    /// No children, and an unchanged status. Existing children are kept, because an empty desired state is more often a
    /// mistake than a decision; see [`without`](Self::without).
    pub fn new() -> Self {
        Self {
            children: Vec::new(),
            last_added: 0,
            mentioned: Vec::new(),
            removed: Vec::new(),
            absent: Vec::new(),
            prune: None,
            undecided: None,
            status: None,
            conditions: Vec::new(),
            event: None,
            action: Action::done(),
        }
    }

    /// Cannot decide now: a Secret is missing, an API is down. The children stay as they are: none is applied, none is
    /// deleted. `Ready` is `Unknown` with this reason and message, unless you add a `Ready` of your own, and
    /// `Reconciling` is `True`. Status fields and conditions that you do not set stay as they are too.
    ///
    /// It is not an error: there is no retry. The object is reconciled again when something that the controller watches
    /// changes, or after [`requeue_after`](Self::requeue_after).
    ///
    /// ```
    /// use std::{sync::Arc, time::Duration};
    /// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// use windlass_runtime::{Context, Desired, Error};
    ///
    /// async fn desired(_config: Arc<ConfigMap>, ctx: Context) -> Result<Desired, Error> {
    ///     let Some(_secret) = ctx.get::<Secret>("credentials")? else {
    ///         return Ok(Desired::undecided("SecretMissing", "Secret credentials does not exist"));
    ///     };
    ///     // … use it.
    ///     Ok(Desired::new())
    /// }
    /// ```
    pub fn undecided(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            undecided: Some((reason.into(), message.into())),
            ..Self::new()
        }
    }

    /// Adds a child.
    pub fn child<C>(self, child: C) -> Self
    where
        C: Cacheable + Serialize + Resource<DynamicType: Default + Send + Sync>,
    {
        self.dynamic_child(child, C::DynamicType::default())
    }

    /// Adds children. An empty list mentions the kind too, but deletes none of its children: it may be empty by mistake, see
    /// [`PrunePolicy`]. To remove them all, declare it with [`without`](Self::without).
    pub fn children<C>(mut self, children: impl IntoIterator<Item = C>) -> Self
    where
        C: Cacheable + Serialize + Resource<DynamicType: Default + Send + Sync>,
    {
        let first = self.children.len();
        self.mention(GroupVersionKind::of::<C>(&C::DynamicType::default()));
        let mut desired = children.into_iter().fold(self, Self::child);
        desired.last_added = first;
        desired
    }

    /// Adds a child, or says with `None` that it is not desired: then one existing child of its kind is deleted, beside
    /// those that [`PrunePolicy`] allows. For several children of a kind see [`without`](Self::without).
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use windlass_runtime::Desired;
    /// # let (is_enabled, config) = (true, ConfigMap::default());
    /// let desired = Desired::new().optional_child(is_enabled.then_some(config));
    /// ```
    pub fn optional_child<C>(self, child: Option<C>) -> Self
    where
        C: Cacheable + Serialize + Resource<DynamicType: Default + Send + Sync>,
    {
        match child {
            Some(child) => self.child(child),
            None => {
                let kind = GroupVersionKind::of::<C>(&C::DynamicType::default());
                let mut desired = self;
                desired.mention(kind.clone());
                desired.absent.push(kind);
                desired.last_added = desired.children.len();
                desired
            }
        }
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
        self.mention(GroupVersionKind::of::<C>(&kind));
        self.last_added = self.children.len();
        self.children.push(Child::new(&child, kind));
        self
    }

    /// Applies the children of the previous call only after these, which must have been added before. If one of them
    /// fails or waits, they wait too: they stay as they are, and the condition names them. Waits until a child is
    /// applied, not until it is ready.
    ///
    /// ```
    /// use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
    /// use windlass_runtime::{ChildRef, Desired};
    /// # let (settings, server) = (ConfigMap::default(), Deployment::default());
    /// let desired = Desired::new()
    ///     .child(settings) // named "web"
    ///     .child(server)
    ///     .after([ChildRef::of::<ConfigMap>("web")]);
    /// ```
    pub fn after(mut self, predecessors: impl IntoIterator<Item = ChildRef>) -> Self {
        let predecessors: Vec<_> = predecessors.into_iter().collect();
        let first = self.last_added.min(self.children.len());
        for child in &mut self.children[first..] {
            child.after.extend(predecessors.iter().cloned());
        }
        self
    }

    /// Says that no children of this kind are desired but those added here: existing ones are deleted. Without it, a kind
    /// that is not mentioned is kept, see [`PrunePolicy`].
    pub fn without<C: Resource<DynamicType: Default>>(self) -> Self {
        self.dynamic_without::<C>(&C::DynamicType::default())
    }

    /// Like [`without`](Self::without), for a kind known only at run time.
    pub fn dynamic_without<C: Resource>(mut self, kind: &C::DynamicType) -> Self {
        let kind = GroupVersionKind::of::<C>(kind);
        self.mention(kind.clone());
        self.removed.push(kind);
        self.last_added = self.children.len();
        self
    }

    /// Which unwanted children are deleted. Default: the controller's [policy](crate::Controller::prune).
    pub fn prune(mut self, policy: PrunePolicy) -> Self {
        self.prune = Some(policy);
        self
    }

    fn mention(&mut self, kind: GroupVersionKind) {
        if !self.mentioned.contains(&kind) {
            self.mentioned.push(kind);
        }
    }

    /// Sets the status: all fields that this controller owns. It is applied to the `status` subresource if it differs,
    /// also when a child failed and the status has conditions to say so. If a child was just created, the status was computed without it: it is not written, and
    /// the function is called again at once. Default: the fields are left alone.
    ///
    /// If the status has `observedGeneration`, it is set for you.
    pub fn status(mut self, status: impl Serialize) -> Self {
        self.status = Some(serde_json::to_value(status));
        self
    }

    /// Adds a condition to the status, with the object's generation as observed generation. Its transition time changes only
    /// with its status. If other controllers write conditions too, the CRD must declare the list as a map by type
    /// (`x-kubernetes-list-type: map`); `docs/status.md` shows how.
    ///
    /// A `Ready` condition replaces the runtime's, except when a child failed, waits, or is being deleted to be created again,
    /// or when pruning is blocked.
    ///
    /// ```
    /// use windlass_runtime::{ConditionUpdate, Desired};
    /// let desired = Desired::new().condition(ConditionUpdate::true_("Ready", "AllReplicasRun"));
    /// ```
    pub fn condition(mut self, condition: ConditionUpdate) -> Self {
        self.conditions.push(condition);
        self
    }

    /// Records this event about the object when it is reconciled, for example `Synced`: each time the controller has
    /// written something or has seen the object change, but not for reconciles caused by its own writes, and not for an
    /// unchanged object after a restart. Default: none.
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

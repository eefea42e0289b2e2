//! What is said about a webhook in code, from which it is registered with the server.

use std::{marker::PhantomData, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{
    Operation, Target,
    handler::{Handler, HandlerFn},
};

/// An admission webhook: a handler, and when the server calls it. Made by [`validate`](super::validate) and
/// [`mutate`](super::mutate), and added with [`Webhooks::with`](crate::Webhooks::with).
///
/// The defaults are those that rarely need a change: it sees what is created and updated; if it cannot be asked, the request is
/// refused; the server waits ten seconds; it has no side effects; requests in `kube-system` and in the own namespace do not
/// reach it, so that a webhook that is down cannot prevent its own repair.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_webhook::{Verdict, Webhooks, validate};
///
/// let quota = validate::<ConfigMap, _>(|change, request| {
///     if change.new_object().is_some_and(|map| map.data.as_ref().is_some_and(|data| data.len() > 100)) {
///         return Verdict::deny("at most 100 entries");
///     }
///     Verdict::allow()
/// });
/// let webhooks = Webhooks::new("quota").with(quota.fail_open().match_condition("large", "size(object.data) > 100"));
/// # let _ = webhooks;
/// ```
#[must_use = "a webhook does nothing until it is added to `Webhooks`"]
pub struct AdmissionWebhook<S> {
    pub(crate) declaration: Declaration,
    stage: PhantomData<S>,
}

/// The stage of a webhook that may change objects, before the server validates them.
#[derive(Debug)]
pub enum Mutating {}

/// The stage of a webhook that sees what will be stored.
#[derive(Debug)]
pub enum Validating {}

/// The two stages, at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Mutating,
    Validating,
}

/// What the server does if a webhook fails: it cannot be reached, is too slow, panics, or returns an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The request is refused: nothing that was not checked is stored.
    #[default]
    Fail,
    /// The request passes: the cluster works without the webhook.
    Ignore,
}

/// Whether a call changes something outside of the reviewed object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SideEffects {
    /// It changes nothing.
    #[default]
    None,
    /// It does, but not if the review is a [dry run](super::ReviewRequest::is_dry_run).
    NoneOnDryRun,
}

pub(crate) struct Declaration {
    pub(crate) stage: Stage,
    pub(crate) target: Target,
    pub(crate) name: Option<String>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) failure_policy: FailurePolicy,
    pub(crate) side_effects: SideEffects,
    pub(crate) timeout: Duration,
    pub(crate) match_conditions: Vec<(String, String)>,
    pub(crate) namespace_selector: Option<LabelSelector>,
    pub(crate) object_selector: Option<LabelSelector>,
    pub(crate) matches_exactly: bool,
    pub(crate) is_in_system_namespaces: bool,
    pub(crate) is_reinvoked: bool,
    pub(crate) handler: Handler,
}

impl<S> AdmissionWebhook<S> {
    pub(super) fn declare(stage: Stage, target: Target, handler: HandlerFn) -> Self {
        Self {
            declaration: Declaration {
                stage,
                target,
                name: None,
                operations: vec![Operation::Create, Operation::Update],
                failure_policy: FailurePolicy::default(),
                side_effects: SideEffects::default(),
                timeout: Duration::from_secs(10),
                match_conditions: Vec::new(),
                namespace_selector: None,
                object_selector: None,
                matches_exactly: false,
                is_in_system_namespaces: false,
                is_reinvoked: false,
                handler: Handler {
                    function: handler,
                    sees_terminating: false,
                },
            },
            stage: PhantomData,
        }
    }

    /// Its name, which users read in refusals: at least three parts with dots. Default: `validate.` or `mutate.` and the
    /// resource with its group, such as `validate.cones.example.com`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.declaration.name = Some(name.into());
        self
    }

    /// The operations it sees. Default: CREATE and UPDATE.
    pub fn operations(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        self.declaration.operations = operations.into_iter().collect();
        self
    }

    /// What the server does if the webhook fails. Default: [`FailurePolicy::Fail`].
    pub fn failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.declaration.failure_policy = policy;
        self
    }

    /// Lets requests pass if the webhook fails: [`FailurePolicy::Ignore`].
    pub fn fail_open(self) -> Self {
        self.failure_policy(FailurePolicy::Ignore)
    }

    /// Side effects of a call. Default: none.
    pub fn side_effects(mut self, effects: SideEffects) -> Self {
        self.declaration.side_effects = effects;
        self
    }

    /// How long the server waits, from 1 to 30 seconds. Users wait with it, so a short one is better. A handler has a tenth
    /// less, so that its own error reaches the user, and not the server's timeout. Default: 10 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.declaration.timeout = timeout.clamp(Duration::from_secs(1), Duration::from_secs(30));
        self
    }

    /// Calls the webhook only if this CEL expression is true: it may use `object`, `oldObject`, `request` and
    /// `authorizer`. Several must all be true. The server evaluates it, which is much cheaper than a call. Default: none.
    pub fn match_condition(mut self, name: impl Into<String>, expression: impl Into<String>) -> Self {
        self.declaration
            .match_conditions
            .push((name.into(), expression.into()));
        self
    }

    /// Calls the webhook only for objects in namespaces with these labels, in addition to the default, which leaves out the
    /// [system namespaces](Self::in_system_namespaces).
    pub fn namespace_selector(mut self, selector: LabelSelector) -> Self {
        self.declaration.namespace_selector = Some(selector);
        self
    }

    /// Calls the webhook only for objects with these labels. Users who may set an object's labels can evade it.
    pub fn object_selector(mut self, selector: LabelSelector) -> Self {
        self.declaration.object_selector = Some(selector);
        self
    }

    /// Calls the webhook only for requests in exactly this version. Default: also for those in other versions of the
    /// resource, which the server converts.
    pub fn exact_version(mut self) -> Self {
        self.declaration.matches_exactly = true;
        self
    }

    /// Calls the webhook also for objects in `kube-system` and in the namespace of the webhook itself. If it is down, and
    /// its failure policy is [`Fail`](FailurePolicy::Fail), nothing that it sees can be changed there, perhaps not even what
    /// would start it. Default: these namespaces are left out.
    pub fn in_system_namespaces(mut self) -> Self {
        self.declaration.is_in_system_namespaces = true;
        self
    }

    /// Calls the handler also for updates of objects that are being deleted. Default: they pass, because a handler that
    /// refuses one prevents the removal of finalizers, and the object is never deleted.
    pub fn on_terminating(mut self) -> Self {
        self.declaration.handler.sees_terminating = true;
        self
    }
}

impl AdmissionWebhook<Validating> {
    /// Sees deletions too, as [`Change::Deleted`](super::Change::Deleted).
    pub fn on_delete(mut self) -> Self {
        if !self.declaration.operations.contains(&Operation::Delete) {
            self.declaration.operations.push(Operation::Delete);
        }
        self
    }
}

impl AdmissionWebhook<Mutating> {
    /// Calls the webhook once more if a later one has changed the object. Default: each is called once.
    pub fn reinvoke(mut self) -> Self {
        self.declaration.is_reinvoked = true;
        self
    }
}

impl<S> From<AdmissionWebhook<S>> for Declaration {
    fn from(webhook: AdmissionWebhook<S>) -> Self {
        webhook.declaration
    }
}

impl Declaration {
    /// The webhook's name, if the server of this name has it.
    pub(crate) fn full_name(&self, server: &str) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let verb = match self.stage {
            Stage::Mutating => "mutate",
            Stage::Validating => "validate",
        };
        let group = if self.target.group.is_empty() {
            server
        } else {
            &self.target.group
        };
        let subresource = self.target.subresource.as_ref();
        let subresource = subresource.map_or_else(String::new, |name| format!("{name}."));
        format!("{verb}.{subresource}{}.{group}", self.target.plural)
    }
}

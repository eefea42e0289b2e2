//! The two controllers and their shared state.
//!
//! ```text
//!   Node ─────► reboot ──────────► one node's next step: one conditional write to it, evictions
//!    │  ▲          ▲ granted                                                    │
//!    │  └──────────┼────────────────────────────────────────────────────────────┘
//!    └────► reboot-policies ─────► grants and releases slots, counts, conditions: the policy's status
//!               ▲                       │
//!   RebootPolicy┴───────────────────────┘
//! ```
//!
//! `reboot` writes nodes and evicts pods, `reboot-policies` writes policies: every object has one writer. Neither
//! keeps state in memory, except when a pod's eviction may be retried, and Prometheus' answers for a few seconds.
//! [`state_machine`](crate::state_machine) and [`slots`](crate::slots) make the decisions.

mod conditions;
mod hook_jobs;
mod nodes;
mod policies;
mod policy_status;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;
use windlass::{
    cache::CachedObject,
    k8s_openapi::api::core::v1::{Node, Pod},
    kube::{self, Api},
    prelude::*,
    runtime::{Clock, Epoch},
};

use crate::{
    alerts::AlertGate,
    api::RebootPolicy,
    drain::{self, Drainer, OnTimeout},
    go_duration::GoDuration,
    metrics::RebootMetrics,
    slots,
    state::AnnotationKeys,
    state_machine::{DrainRule, HaltReason, NodeView, RebootRules},
    window::Windows,
};

/// Field manager and event source.
const FIELD_MANAGER: &str = "windlass-reboot";

/// Default backoff of an aborted node.
const DEFAULT_BACKOFF: GoDuration = GoDuration::from_mins(5);

/// State shared by both controllers.
pub(crate) struct SharedState {
    pub(crate) keys: AnnotationKeys,
    /// The node that this process runs on.
    pub(crate) own_node: Option<String>,
    /// The pod that this process runs in.
    own_pod: Option<ObjectKey>,
    pub(crate) clock: Clock,
    pub(crate) metrics: RebootMetrics,
    pub(crate) alerts: AlertGate,
    /// The namespace of the hooks' CronJobs and Jobs.
    hook_namespace: String,
    /// The drainer of the current leadership term: its writes are fenced by that term's epoch.
    drainer: Mutex<Option<(Option<Epoch>, Arc<Drainer>)>>,
}

impl SharedState {
    pub(crate) fn new(
        keys: AnnotationKeys,
        own_node: Option<String>,
        own_pod: Option<ObjectKey>,
        clock: Clock,
        metrics: RebootMetrics,
        alerts: AlertGate,
        hook_namespace: String,
    ) -> Self {
        Self {
            keys,
            own_node,
            own_pod,
            clock,
            metrics,
            alerts,
            hook_namespace,
            drainer: Mutex::default(),
        }
    }

    fn view(&self, node: &Node) -> NodeView {
        NodeView::from_node(node, &self.keys)
    }

    fn drainer(&self, ctx: &Context) -> Arc<Drainer> {
        let mut drainer = self.drainer.lock();
        match &*drainer {
            Some((epoch, drainer)) if *epoch == ctx.epoch() => Arc::clone(drainer),
            _ => {
                let new = Drainer::new(ctx.writer().clone(), self.clock).exclude_pod(self.own_pod.clone());
                let new = Arc::new(new);
                *drainer = Some((ctx.epoch(), Arc::clone(&new)));
                new
            }
        }
    }

    /// Returns how long to wait until then, at least a second: times in objects have no fractions.
    fn delay_until(&self, until: Timestamp) -> Duration {
        let wait = until.duration_since(self.clock.now());
        Duration::try_from(wait)
            .unwrap_or_default()
            .max(Duration::from_secs(1))
    }
}

/// The controller that moves nodes from one phase to the next.
pub(crate) fn node_controller(shared: &Arc<SharedState>) -> Controller<Node, impl Reconciler> {
    let reconciler = nodes::NodeReconciler(Arc::clone(shared));
    // Draining and health checks depend only on whether a pod exists, terminates or is ready.
    let moved = Predicate::new(|old: Option<&CachedObject<Pod>>, new| {
        old.map(nodes::pod_fingerprint) != Some(nodes::pod_fingerprint(new))
    });
    let on = |pod: &Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node.map(ObjectKey::cluster_scoped).into_iter().collect()
    };
    let granted = |policy: &RebootPolicy| {
        let status = policy.status.iter();
        let granted = status.flat_map(|status| &status.granted);
        granted
            .map(|grant| ObjectKey::cluster_scoped(grant.node.as_str()))
            .collect()
    };
    Controller::from_watch("reboot", Watch::<Node>::new().filter(relevant_changes(shared)))
        .field_manager(FIELD_MANAGER)
        .workers::<8>()
        .watches::<RebootPolicy>(granted)
        .watch(Watch::<Pod>::new().filter(moved).mapped(on))
        .reconcile(reconciler)
}

/// The controller that grants and releases slots.
pub(crate) fn policy_controller(shared: &Arc<SharedState>) -> Controller<RebootPolicy, impl Reconciler> {
    Controller::<RebootPolicy>::new("reboot-policies")
        .field_manager(FIELD_MANAGER)
        // A check of alerts may take seconds, and must not delay other policies.
        .workers::<4>()
        // Any node may belong to any policy.
        .watches_for_all(Watch::<Node>::new().filter(relevant_changes(shared)))
        .reconcile(policies::PolicyReconciler(Arc::clone(shared)))
}

/// Passes changes of a node that affect a decision.
fn relevant_changes(shared: &Arc<SharedState>) -> Predicate<Node> {
    let shared = Arc::clone(shared);
    Predicate::new(move |old, new| {
        let look = |node: &CachedObject<Node>| {
            let node = node.object().ok()?;
            let mut view = shared.view(&node);
            view.resource_version.clear();
            Some((view, conditions::managed_conditions(&node)))
        };
        old.is_none_or(|old| look(old) != look(new))
    })
}

/// Reads a policy from the server, bypassing the cache.
async fn get_live_policy(ctx: &Context, name: &str) -> Result<Option<RebootPolicy>, kube::Error> {
    Api::<RebootPolicy>::all(ctx.client().clone()).get_opt(name).await
}

/// Converts a policy into the rules of the state machine.
fn rules(policy: &RebootPolicy) -> RebootRules {
    let spec = &policy.spec;
    RebootRules {
        before_hook: spec.hooks.before.as_ref().map(|_| spec.hooks.timeout.get()),
        drain: spec.drain.enabled.then(|| DrainRule {
            timeout: spec.drain.timeout.get(),
            force: spec.drain.on_timeout == OnTimeout::Force,
        }),
        reboot_timeout: spec.reboot.timeout.get(),
        health_check_timeout: spec.health_check.timeout.get(),
        soak: spec.soak.get(),
        backoff: spec.backoff.unwrap_or(DEFAULT_BACKOFF).get(),
    }
}

/// Returns why no reboot may start under a policy, given how many of its nodes have failed.
fn halt_reason(policy: &RebootPolicy, failed: usize, now: Timestamp) -> Option<HaltReason> {
    let spec = &policy.spec;
    let budget = spec.failure_budget.unwrap_or(1).max(1);
    if spec.dry_run {
        Some(HaltReason::DryRun)
    } else if spec.paused {
        Some(HaltReason::Paused)
    } else if failed >= usize::try_from(budget).unwrap_or(usize::MAX) {
        Some(HaltReason::FailureBudgetExhausted)
    } else if validation_error(policy).is_some() {
        Some(HaltReason::InvalidSpec)
    } else {
        let windows = Windows::parse(&spec.windows, &spec.exclusions);
        let open = windows.is_ok_and(|windows| windows.open_at(now));
        (!open).then_some(HaltReason::WindowClosed)
    }
}

/// Returns the policy's first validation error.
fn validation_error(policy: &RebootPolicy) -> Option<String> {
    let spec = &policy.spec;
    let selectors = [
        ("drain.podSelector", &spec.drain.pod_selector),
        ("drain.ignoreSelector", &spec.drain.ignore_selector),
        ("healthCheck.podSelector", &spec.health_check.pod_selector),
    ];
    let mut selectors = selectors.into_iter();
    let limits = slots::validate_limits(spec).err().map(|error| error.to_string());
    limits
        .or_else(|| Some(Windows::parse(&spec.windows, &spec.exclusions).err()?.to_string()))
        .or_else(|| {
            selectors
                .find_map(|(field, one)| Some(drain::parse_selector(field, one.as_ref()).err()?.to_string()))
        })
}

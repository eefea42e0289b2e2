//! The two controllers, and what they share.
//!
//! ```text
//!   Node ─────► reboot ──────────► the next step of one node: one conditional write to it, evictions
//!    │  ▲          ▲ granted                                                    │
//!    │  └──────────┼────────────────────────────────────────────────────────────┘
//!    └────► reboot-policies ─────► slots given and taken back, counts, conditions: the policy's status
//!               ▲                       │
//!   RebootPolicy┴───────────────────────┘
//! ```
//!
//! `reboot` writes nodes and evicts pods, `reboot-policies` writes policies: nothing has two authors. Neither remembers
//! anything but when a pod may be asked about again; [`machine`](crate::machine) and [`ledger`](crate::ledger) decide.

mod conditions;
mod nodes;
mod policies;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;
use windlass::{
    cache::Stored,
    k8s_openapi::api::core::v1::{Node, Pod},
    kube::{self, Api},
    prelude::*,
    runtime::{Clock, Epoch},
};

use crate::{
    api::RebootPolicy,
    drain::{Drainer, OnTimeout},
    figures::Figures,
    machine::{DrainRule, Halt, NodeView, Rules},
    span::Span,
    state::Names,
    window::Windows,
};

/// The name under which it writes and speaks.
const COMPONENT: &str = "windlass-reboot";

/// How long a node rests after it was let go, unless its policy says otherwise.
const BACKOFF: Span = Span::from_mins(5);

/// What both controllers need.
pub(crate) struct Shared {
    pub(crate) names: Names,
    /// The node that this process runs on.
    pub(crate) own: Option<String>,
    pub(crate) clock: Clock,
    pub(crate) figures: Figures,
    /// That of the term in which it was last used: its writes pass that term's fence.
    drainer: Mutex<Option<(Option<Epoch>, Arc<Drainer>)>>,
}

impl Shared {
    pub(crate) fn new(names: Names, own: Option<String>, clock: Clock, figures: Figures) -> Self {
        Self {
            names,
            own,
            clock,
            figures,
            drainer: Mutex::default(),
        }
    }

    fn view(&self, node: &Node) -> NodeView {
        NodeView::of(node, &self.names)
    }

    fn drainer(&self, ctx: &Context) -> Arc<Drainer> {
        let mut drainer = self.drainer.lock();
        match &*drainer {
            Some((epoch, drainer)) if *epoch == ctx.epoch() => Arc::clone(drainer),
            _ => {
                let new = Arc::new(Drainer::new(ctx.writer().clone(), self.clock));
                *drainer = Some((ctx.epoch(), Arc::clone(&new)));
                new
            }
        }
    }

    /// How long until then. Times in objects have no fractions, so it is a second more than it seems.
    fn wait(&self, until: Timestamp) -> Duration {
        let wait = until.duration_since(self.clock.now());
        Duration::try_from(wait)
            .unwrap_or_default()
            .max(Duration::from_secs(1))
    }
}

/// The controller that takes nodes from one step to the next.
pub(crate) fn nodes(shared: &Arc<Shared>) -> Controller<Node, impl Reconciler> {
    let reconciler = nodes::Nodes(Arc::clone(shared));
    // Whether a pod is there, goes or is ready is all that a drain or a check waits for.
    let moved =
        Predicate::new(|old: Option<&Stored<Pod>>, new| old.map(nodes::seen) != Some(nodes::seen(new)));
    let on = |pod: &Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node.map(ObjectKey::cluster).into_iter().collect()
    };
    let granted = |policy: &RebootPolicy| {
        let status = policy.status.iter();
        let granted = status.flat_map(|status| &status.granted);
        granted
            .map(|grant| ObjectKey::cluster(grant.node.as_str()))
            .collect()
    };
    Controller::of("reboot", Watch::<Node>::new().when(changed(shared)))
        .component(COMPONENT)
        .workers::<8>()
        .watches::<RebootPolicy>(granted)
        .watch(Watch::<Pod>::new().when(moved).mapped(on))
        .reconcile(reconciler)
}

/// The controller that gives slots and takes them back.
pub(crate) fn policies(shared: &Arc<Shared>) -> Controller<RebootPolicy, impl Reconciler> {
    // Any node may concern any policy.
    let all = || vec![String::new()];
    Controller::<RebootPolicy>::new("reboot-policies")
        .component(COMPONENT)
        .joins(
            Watch::<Node>::new().when(changed(shared)),
            move |_| all(),
            move |_| all(),
        )
        .reconcile(policies::Policing(Arc::clone(shared)))
}

/// Whether a node changed in anything that decides.
fn changed(shared: &Arc<Shared>) -> Predicate<Node> {
    let shared = Arc::clone(shared);
    Predicate::new(move |old, new| {
        let look = |node: &Stored<Node>| {
            let node = node.object().ok()?;
            let mut view = shared.view(&node);
            view.version.clear();
            Some((view, conditions::ours(&node)))
        };
        old.is_none_or(|old| look(old) != look(new))
    })
}

/// A policy, as the server has it now.
async fn live(ctx: &Context, name: &str) -> Result<Option<RebootPolicy>, kube::Error> {
    Api::<RebootPolicy>::all(ctx.client().clone()).get_opt(name).await
}

/// What the machine has to know of a policy.
fn rules(policy: &RebootPolicy) -> Rules {
    let spec = &policy.spec;
    Rules {
        drain: spec.drain.enabled.then(|| DrainRule {
            timeout: spec.drain.timeout.get(),
            force: spec.drain.on_timeout == OnTimeout::Force,
        }),
        reboot: spec.reboot.timeout.get(),
        after: spec.after.timeout.get(),
        soak: spec.soak.get(),
        backoff: spec.backoff.unwrap_or(BACKOFF).get(),
    }
}

/// Why nothing new may begin under a policy of which so many nodes have failed.
fn halt(policy: &RebootPolicy, failed: usize, now: Timestamp) -> Option<Halt> {
    let spec = &policy.spec;
    let budget = spec.failure_budget.unwrap_or(1).max(1);
    if spec.dry_run {
        Some(Halt::DryRun)
    } else if spec.paused {
        Some(Halt::Paused)
    } else if failed >= usize::try_from(budget).unwrap_or(usize::MAX) {
        Some(Halt::BudgetSpent)
    } else {
        match Windows::parse(&spec.windows, &spec.exclusions) {
            Ok(windows) if windows.open_at(now) => None,
            Ok(_) => Some(Halt::WindowClosed),
            Err(_) => Some(Halt::Invalid),
        }
    }
}

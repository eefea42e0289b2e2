//! The scheduler: gives every pod that has no node one, or says why it cannot.
//!
//! ```text
//!   Pod ──► reconcile ──► Account ──► choose ──► binding (the event Scheduled)
//!                           ▲  │         └─────► PodScheduled=False, Unschedulable (the event FailedScheduling)
//!   Node ─► its facts ──────┘  └─ who waits and fits now ──► Wakes ──► reconcile
//! ```
//!
//! A pod that fits nowhere is tried again when a node that could take it changes, or when another pod makes room there;
//! there is no timer.

mod account;
mod demand;
pub(in crate::alive) mod place;
mod verdict;

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard},
};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
    core::Status,
};
use serde_json::json;
use windlass_runtime::{Action, Context, Controller, Error, Manager, ObjectKey, Reconciler, Request};

use self::{
    account::Account,
    demand::{Demand, Share},
    verdict::Verdict,
};
use super::{machines::Machines, wakes::Wakes};
use crate::alive::settings::Settings;

/// Who schedules, unless a pod says otherwise; also who the events come from.
const NAME: &str = "default-scheduler";

/// Who the server sees.
const COMPONENT: &str = "kube-scheduler";

/// How many pods are bound at the same time. The decisions are made one after the other.
const BINDINGS: NonZeroUsize = NonZeroUsize::new(8).expect("not zero");

pub(super) fn add(manager: Manager, settings: &Settings, machines: &Machines) -> Manager {
    let scheduler = Scheduler {
        account: Arc::default(),
        retries: Wakes::default(),
        clock: settings.clock,
        machines: machines.clone(),
    };
    let nodes = Controller::<Node>::new("scheduler-nodes")
        .component(COMPONENT)
        .reconcile(Nodes(scheduler.clone()));
    let pods = Controller::<Pod>::new("scheduler")
        .component(COMPONENT)
        .triggered_by(scheduler.retries.keys())
        .concurrency(BINDINGS)
        .reconcile(scheduler);
    manager.controller(nodes).controller(pods)
}

#[derive(Clone)]
struct Scheduler {
    /// Locked for one decision or one piece of news, never across a wait.
    account: Arc<Mutex<Account>>,
    /// The pods that may fit now.
    retries: Wakes,
    clock: windlass_runtime::Clock,
    machines: Machines,
}

impl Scheduler {
    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().expect("nobody panics with it")
    }

    fn leaves(&self, key: &ObjectKey) {
        let mut account = self.account();
        if let Some(node) = account.is_gone(key) {
            self.retries.wake_all(account.wait_for(&node));
        }
    }

    /// The node for the pod, which from now on counts there.
    fn choose(&self, key: &ObjectKey, uid: &str, pod: &Pod) -> Result<Arc<str>, Verdict> {
        let demand = Demand::of(pod);
        let mut account = self.account();
        let chosen = account.choose(&demand);
        match &chosen {
            Ok(node) => account.is_on(key, uid, node, demand.share),
            Err(_) => account.waits(key, demand),
        }
        chosen
    }

    async fn bind(&self, pod: &Pod, node: &str, ctx: &Context) -> Result<(), Error> {
        let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": namespace, "name": name, "uid": pod.metadata.uid},
            "target": {"kind": "Node", "name": node},
        });
        let params = PostParams {
            field_manager: Some(COMPONENT.to_owned()),
            ..PostParams::default()
        };
        let pods = Api::<Pod>::namespaced(ctx.client().clone(), namespace);
        let _: Status = pods
            .create_subresource("binding", name, &params, &binding)
            .await?;
        let events = ctx.recorder().source(NAME);
        let text = format!("Successfully assigned {namespace}/{name} to {node}");
        events.normal(pod, "Scheduled", text);
        Ok(())
    }

    async fn refuse(&self, pod: &Pod, verdict: &Verdict, ctx: &Context) -> Result<(), Error> {
        let message = verdict.to_string();
        ctx.recorder()
            .source(NAME)
            .warning(pod, "FailedScheduling", message.clone());
        let known = pod
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref())
            .and_then(|conditions| {
                conditions
                    .iter()
                    .find(|condition| condition.type_ == "PodScheduled")
            });
        let refused =
            known.filter(|known| known.status == "False" && known.reason.as_deref() == Some("Unschedulable"));
        if refused.is_some_and(|known| known.message.as_deref() == Some(&message)) {
            return Ok(());
        }
        let since = match known.filter(|known| known.status == "False") {
            Some(known) => known.last_transition_time.clone().map(|time| time.0),
            None => Some(self.clock.now()),
        };
        let patch = json!({
            "metadata": {"uid": pod.metadata.uid},
            "status": {"conditions": [{
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": message,
                "observedGeneration": pod.metadata.generation,
                "lastProbeTime": null,
                "lastTransitionTime": since.map(|since| since.to_string()),
            }]},
        });
        let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
        let pods = Api::<Pod>::namespaced(ctx.client().clone(), namespace.unwrap_or_default());
        let params = PatchParams {
            field_manager: Some(COMPONENT.to_owned()),
            ..PatchParams::default()
        };
        let patched = pods
            .patch_status(name.unwrap_or_default(), &params, &Patch::Strategic(patch))
            .await;
        super::unless_gone(patched).map(drop)
    }
}

impl Reconciler for Scheduler {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let key = &request.key;
        let Some(pod) = ctx.lister::<Pod>()?.get(key) else {
            self.leaves(key);
            return Ok(Action::done());
        };
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if has_ended(&pod) {
            self.leaves(key);
            return Ok(Action::done());
        }
        if let Some(node) = node_of(&pod) {
            self.account().is_on(key, uid, node, Share::of(&pod));
            return Ok(Action::done());
        }
        if self.account().knows(key, uid) {
            // It is bound, and only the news of it is not here yet.
            return Ok(Action::done());
        }
        self.leaves(key);
        if !is_ours(&pod) {
            return Ok(Action::done());
        }
        match self.choose(key, uid, &pod) {
            Ok(node) => {
                if let Err(error) = self.bind(&pod, &node, &ctx).await {
                    self.leaves(key);
                    return Err(error);
                }
            }
            Err(verdict) => self.refuse(&pod, &verdict, &ctx).await?,
        }
        Ok(Action::done())
    }
}

/// Whether it runs no more, and so takes no room.
fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn node_of(pod: &Pod) -> Option<&str> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.filter(|node| !node.is_empty())
}

/// Whether this scheduler is the one that is asked, and may act.
fn is_ours(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let scheduler = spec
        .and_then(|spec| spec.scheduler_name.as_deref())
        .unwrap_or(NAME);
    let gates = spec
        .and_then(|spec| spec.scheduling_gates.as_deref())
        .unwrap_or_default();
    scheduler == NAME && gates.is_empty() && pod.metadata.deletion_timestamp.is_none()
}

/// Keeps the account's facts about nodes.
struct Nodes(Scheduler);

impl Reconciler for Nodes {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let name = request.key.name();
        let node = ctx.lister::<Node>()?.get(&request.key);
        let mut account = self.0.account();
        match node {
            Some(node) => {
                account.node_is(name, &node);
                self.0.retries.wake_all(account.wait_for(name));
                if account.is_open(name) {
                    self.0.machines.is_open(name);
                }
            }
            None => account.node_is_gone(name),
        }
        Ok(Action::done())
    }
}

//! The scheduler: binds every pending pod to a node, or reports why it cannot.
//!
//! ```text
//!   Pod ──► reconcile ──► SchedulerCache ──► choose ──► binding (event Scheduled)
//!                           ▲  │                └─────► PodScheduled=False, Unschedulable (event FailedScheduling)
//!   Node ───────────────────┘  └─ unschedulable pods that fit now ──► WakeQueue ──► reconcile
//! ```
//!
//! An unschedulable pod is retried when a node that it fits changes, or when another pod leaves such a node; there is no
//! timer. A pod whose claims are not bound waits for a change of one of them.

mod cache;
mod claims;
mod fit_error;
pub(in crate::control_plane) mod node_matching;
mod requirements;

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard},
};

use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
    core::Status,
};
use serde_json::json;
use windlass_api::conditions;
use windlass_runtime::{Action, Clock, Context, Controller, Error, Manager, ObjectKey, Reconciler, Request};

use self::{
    cache::SchedulerCache,
    claims::WaitingPods,
    fit_error::FitError,
    requirements::{PodRequirements, PodResources},
};
use super::{machines::Machines, wake_queue::WakeQueue};

/// The default `schedulerName` of pods; also the source of the events.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Field manager of the writes.
const COMPONENT: &str = "kube-scheduler";

/// How many pods are bound concurrently. The decisions are made one at a time.
const CONCURRENT_BINDINGS: NonZeroUsize = NonZeroUsize::new(8).expect("not zero");

pub(super) fn add(manager: Manager, machines: &Machines) -> Manager {
    let scheduler = Scheduler {
        cache: Arc::default(),
        retry_queue: WakeQueue::default(),
        machines: machines.clone(),
        waiting: WaitingPods::default(),
    };
    let waiting = scheduler.waiting.clone();
    let nodes = Controller::<Node>::new("scheduler-nodes")
        .field_manager(COMPONENT)
        .reconcile(NodeUpdates(scheduler.clone()));
    let pods = Controller::<Pod>::new("scheduler")
        .field_manager(COMPONENT)
        .triggered_by(scheduler.retry_queue.keys())
        .watches(move |claim: &PersistentVolumeClaim| waiting.for_claim(claim))
        .concurrency(CONCURRENT_BINDINGS)
        .reconcile(scheduler);
    manager.controller(nodes).controller(pods)
}

#[derive(Clone)]
struct Scheduler {
    /// Locked for one decision or update, never across an await.
    cache: Arc<Mutex<SchedulerCache>>,
    /// Unschedulable pods that may fit now.
    retry_queue: WakeQueue,
    machines: Machines,
    /// The pods that wait for their claims.
    waiting: WaitingPods,
}

impl Scheduler {
    fn lock_cache(&self) -> MutexGuard<'_, SchedulerCache> {
        self.cache.lock().expect("no panic while locked")
    }

    fn remove_pod(&self, key: &ObjectKey) {
        self.waiting.remove(key);
        let mut cache = self.lock_cache();
        if let Some(node) = cache.remove_pod(key) {
            self.retry_queue.add_all(cache.pods_that_fit(&node));
        }
    }

    /// Chooses a node for the pod, and assigns the pod to it in the cache.
    fn choose(&self, key: &ObjectKey, uid: &str, pod: &Pod) -> Result<Arc<str>, FitError> {
        let requirements = PodRequirements::of(pod);
        let mut cache = self.lock_cache();
        let chosen = cache.choose(&requirements);
        match &chosen {
            Ok(node) => cache.assign(key, uid, node, requirements.resources),
            Err(_) => cache.add_unschedulable(key, requirements),
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
        let events = ctx.recorder().source(DEFAULT_SCHEDULER);
        let text = format!("Successfully assigned {namespace}/{name} to {node}");
        events.normal(pod, "Scheduled", text);
        Ok(())
    }

    async fn report_unschedulable(
        &self,
        pod: &Pod,
        fit_error: &FitError,
        ctx: &Context,
    ) -> Result<(), Error> {
        let message = fit_error.to_string();
        ctx.recorder()
            .source(DEFAULT_SCHEDULER)
            .warning(pod, "FailedScheduling", message.clone());
        let known = conditions::find(pod, "PodScheduled");
        let refused =
            known.filter(|known| known.status == "False" && known.reason.as_deref() == Some("Unschedulable"));
        if refused.is_some_and(|known| known.message.as_deref() == Some(&message)) {
            return Ok(());
        }
        let since = match known.filter(|known| known.status == "False") {
            Some(known) => known.last_transition_time.clone().map(|time| time.0),
            None => Some(Clock::system().now()),
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
        super::ignore_gone(patched).map(drop)
    }
}

impl Reconciler for Scheduler {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let key = &request.key;
        let Some(pod) = ctx.lister::<Pod>()?.get(key) else {
            self.remove_pod(key);
            return Ok(Action::done());
        };
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if has_ended(&pod) {
            self.remove_pod(key);
            return Ok(Action::done());
        }
        if let Some(node) = node_of(&pod) {
            self.lock_cache().assign(key, uid, node, PodResources::of(&pod));
            return Ok(Action::done());
        }
        if self.lock_cache().is_assigned(key, uid) {
            // It was bound; the watch event has not arrived yet.
            return Ok(Action::done());
        }
        self.remove_pod(key);
        if !is_ours(&pod) {
            return Ok(Action::done());
        }
        if let Some(reason) = self.waiting.check(key, &pod, &ctx)? {
            let fit_error = FitError::rejected(self.lock_cache().node_count(), reason);
            self.report_unschedulable(&pod, &fit_error, &ctx).await?;
            return Ok(Action::done());
        }
        match self.choose(key, uid, &pod) {
            Ok(node) => {
                if let Err(error) = self.bind(&pod, &node, &ctx).await {
                    self.remove_pod(key);
                    return Err(error);
                }
            }
            Err(fit_error) => self.report_unschedulable(&pod, &fit_error, &ctx).await?,
        }
        Ok(Action::done())
    }
}

/// Whether the pod has finished, and so uses no resources.
fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn node_of(pod: &Pod) -> Option<&str> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.filter(|node| !node.is_empty())
}

/// Whether this scheduler is responsible for the pod, and the pod is not gated or being deleted.
fn is_ours(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let scheduler = spec
        .and_then(|spec| spec.scheduler_name.as_deref())
        .unwrap_or(DEFAULT_SCHEDULER);
    let gates = spec
        .and_then(|spec| spec.scheduling_gates.as_deref())
        .unwrap_or_default();
    scheduler == DEFAULT_SCHEDULER && gates.is_empty() && pod.metadata.deletion_timestamp.is_none()
}

/// Keeps the nodes in the scheduler's cache up to date.
struct NodeUpdates(Scheduler);

impl Reconciler for NodeUpdates {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let name = request.key.name();
        let node = ctx.lister::<Node>()?.get(&request.key);
        let mut cache = self.0.lock_cache();
        match node {
            Some(node) => {
                cache.update_node(name, &node);
                self.0.retry_queue.add_all(cache.pods_that_fit(name));
                if cache.is_schedulable(name) {
                    self.0.machines.mark_schedulable(name);
                }
            }
            None => cache.remove_node(name),
        }
        Ok(Action::done())
    }
}

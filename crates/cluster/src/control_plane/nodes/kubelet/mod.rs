//! The kubelets: they simulate the containers of the pods on their nodes.
//!
//! ```text
//!   Pod with a node ──► reconcile ──► PodRun (in memory) ──► status · events · logs
//!                           ▲             └─ deadlines ──► requeue
//!   Machines ── WakeQueue ──┘
//! ```
//!
//! One controller does the work of all kubelets. The actual state of a pod is in memory, as on a real machine, and is
//! reported to the API. A machine that is off, hung or disconnected reports nothing.
//!
//! In an instant cluster, a starting pod's status is written once, Running and Ready. Only states that would otherwise be
//! invisible (a container that terminates, a pull that fails) are written on the way.

mod container_run;
mod pod_run;
mod references;
pub(crate) mod script;
mod status;

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::{
    Api, Resource,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::Instant;
use windlass_apiserver::Logs;
use windlass_runtime::{
    Action, Clock, Context, Controller, Error, Manager, ObjectKey, Predicate, Reconciler, Request, Watch,
};

use self::{
    container_run::{ContainerEvent, NextStep, Now, Role},
    pod_run::{PodRun, Volumes},
    status::Addresses,
};
use super::machines::{Machines, Power};
use crate::control_plane::settings::Settings;

/// Field manager of the writes and source of the events.
const COMPONENT: &str = "kubelet";

/// How many pods are reconciled concurrently.
const CONCURRENT_PODS: NonZeroUsize = NonZeroUsize::new(8).expect("not zero");

/// How long containers take to terminate after SIGTERM.
const STOP_DURATION: Duration = Duration::from_secs(1);

/// How many statuses are written for one pod before other pods get their turn.
const MAX_STATUS_WRITES: usize = 16;

pub(super) fn add(manager: Manager, settings: &Settings, machines: &Machines, logs: &Logs) -> Manager {
    let kubelets = Kubelets {
        settings: settings.clone(),
        machines: machines.clone(),
        logs: logs.clone(),
        pods: Arc::default(),
    };
    let placed = Predicate::new(|_, pod: &windlass_cache::CachedObject<Pod>| {
        pod.object().is_ok_and(|pod| node_of(&pod).is_some())
    });
    let controller = Controller::<Pod>::from_watch("kubelet", Watch::new().filter(placed))
        .field_manager(COMPONENT)
        .triggered_by(machines.pod_queue.keys())
        .concurrency(CONCURRENT_PODS)
        .reconcile(kubelets);
    manager.controller(controller)
}

struct Kubelets {
    settings: Settings,
    machines: Machines,
    logs: Logs,
    /// The state of every pod. A pod that is being reconciled is removed for the time being.
    pods: Arc<Mutex<HashMap<ObjectKey, PodRun>>>,
}

fn node_of(pod: &Pod) -> Option<&str> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.filter(|node| !node.is_empty())
}

impl Reconciler for Kubelets {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let key = &request.key;
        let run = self.lock_pods().remove(key);
        let Some(pod) = ctx.lister::<Pod>()?.get(key) else {
            self.forget(key, run);
            return Ok(Action::done());
        };
        let Some(node) = node_of(&pod) else {
            self.forget(key, run);
            return Ok(Action::done());
        };
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let run = match run {
            Some(run) if run.uid == uid => Some(run),
            other => {
                self.forget(key, other);
                None
            }
        };
        let Some(boot_id) = self.running_boot_id(node, key) else {
            // The machine is not running. Its return enqueues its pods.
            if let Some(run) = run {
                self.lock_pods().insert(key.clone(), run);
            }
            return Ok(Action::done());
        };
        let Some(mut run) = run.or_else(|| admit(&pod, node, &boot_id, &ctx)) else {
            return self.remove(&pod, &ctx).await;
        };
        let done = self.sync_pod(key, &pod, &mut run, &boot_id, &ctx).await;
        self.lock_pods().insert(key.clone(), run);
        done
    }
}

fn current_time() -> Now {
    Now {
        instant: Instant::now(),
        time: Clock::system().now(),
    }
}

/// Starts a pod that is new to its kubelet. Returns `None` if it has finished or is being deleted.
fn admit(pod: &Pod, node: &str, boot_id: &str, ctx: &Context) -> Option<PodRun> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let (run, wrong) = PodRun::new(pod, node, boot_id, Clock::system().now());
    if let Some(wrong) = wrong {
        let text = format!("annotation {}: {wrong}", script::POD_SCRIPT_ANNOTATION);
        ctx.recorder().warning(pod, "InvalidPodScript", text);
    }
    Some(run)
}

impl Kubelets {
    fn lock_pods(&self) -> MutexGuard<'_, HashMap<ObjectKey, PodRun>> {
        self.pods.lock().expect("no panic while locked")
    }

    /// Adds the pod to its machine. Returns the machine's boot ID if it is running and connected.
    fn running_boot_id(&self, node: &str, key: &ObjectKey) -> Option<String> {
        let mut state = self.machines.lock();
        let machine = state.machines.get_mut(node)?;
        machine.pods.insert(key.clone());
        (machine.power == Power::On && machine.can_reach_api()).then(|| machine.boot_id.clone())
    }

    fn forget(&self, key: &ObjectKey, run: Option<PodRun>) {
        if let Some(run) = run
            && let Some(machine) = self.machines.lock().machines.get_mut(&run.node)
        {
            machine.remove_pod(key);
        }
    }

    async fn sync_pod(
        &self,
        key: &ObjectKey,
        pod: &Pod,
        run: &mut PodRun,
        boot_id: &str,
        ctx: &Context,
    ) -> Result<Action, Error> {
        detect_foreign_readiness(pod, run, current_time());
        for _ in 0..MAX_STATUS_WRITES {
            let now = current_time();
            let mut events = Vec::new();
            if run.boot_id != boot_id {
                let text = "Pod sandbox changed, it will be killed and re-created.";
                ctx.recorder().normal(pod, "SandboxChanged", text);
                run.reboot(boot_id, now, &mut events);
            }
            if pod.metadata.deletion_timestamp.is_none() {
                self.prepare(pod, run, now, ctx).await?;
            }
            let next = match self.terminate(pod, run, now, &mut events) {
                Some(next) => next,
                None => self.advance(run, now, &mut events),
            };
            self.publish(pod, run, &events, ctx);
            let over = run.stops_at.is_some_and(|at| at <= now.instant);
            // In an instant cluster, the final status is skipped: the pod is removed right away.
            if !over || !self.settings.is_instant() {
                self.write_status(key, pod, run, now, ctx).await?;
            }
            if over {
                if !run.removed {
                    run.removed = true;
                    return self.remove(pod, ctx).await;
                }
                return Ok(Action::done());
            }
            match next {
                NextStep::Idle => return Ok(Action::done()),
                NextStep::At(at) => {
                    return Ok(Action::requeue_after(at.saturating_duration_since(now.instant)));
                }
                NextStep::AfterStatusWrite | NextStep::Immediately => {}
            }
        }
        Ok(Action::requeue_after(Duration::from_millis(1)))
    }

    /// Mounts the pod's volumes if it is time, and checks what its containers need to be created.
    async fn prepare(&self, pod: &Pod, run: &mut PodRun, now: Now, ctx: &Context) -> Result<(), Error> {
        if let Volumes::Pending { until, wait } = run.volumes {
            if until > now.instant {
                return Ok(());
            }
            let error = if run.references.has_volumes() {
                run.references.mount_error(ctx.client()).await?
            } else {
                None
            };
            match error {
                None => run.volumes = Volumes::Mounted,
                Some(error) => {
                    ctx.recorder().warning(pod, "FailedMount", error);
                    run.volumes = Volumes::failed(wait, &self.settings, now.instant);
                    return Ok(());
                }
            }
        }
        if run.references.has_environment() && run.is_starting() {
            run.config_errors = run.references.config_errors(ctx.client()).await?;
        }
        Ok(())
    }

    /// Terminates a pod that is being deleted, and returns the next step. `None` if it is not being deleted.
    fn terminate(
        &self,
        pod: &Pod,
        run: &mut PodRun,
        now: Now,
        events: &mut Vec<(usize, ContainerEvent)>,
    ) -> Option<NextStep> {
        pod.metadata.deletion_timestamp.as_ref()?;
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        if run.stops_at.is_none() {
            run.announce_stop(events);
        }
        let stubborn = run
            .containers
            .iter()
            .any(|container| container.script.ignores_term);
        let wait = if stubborn {
            self.settings.scale_wait(grace)
        } else {
            self.settings.scale_work(STOP_DURATION.min(grace))
        };
        let wait = if run.has_ended() { Duration::ZERO } else { wait };
        // A second deletion may shorten the grace period, but not extend it.
        let at = run
            .stops_at
            .map_or(now.instant + wait, |known| known.min(now.instant + wait));
        run.stops_at = Some(at);
        if at <= now.instant {
            run.stop(now, events);
            return Some(NextStep::Idle);
        }
        Some(NextStep::At(at))
    }

    fn advance(&self, run: &mut PodRun, now: Now, events: &mut Vec<(usize, ContainerEvent)>) -> NextStep {
        let mut state = self.machines.lock();
        let Some(machine) = state.machines.get_mut(&run.node) else {
            return NextStep::Idle;
        };
        let next = run.advance(&self.settings, now, &machine.images, events);
        let pulled = run.containers.iter().filter(|container| container.id.is_some());
        for container in pulled {
            if !machine.images.contains(&container.image) {
                machine.images.insert(container.image.clone());
            }
        }
        next
    }

    /// Publishes container events as Kubernetes events and log lines.
    fn publish(&self, pod: &Pod, run: &PodRun, events: &[(usize, ContainerEvent)], ctx: &Context) {
        let uid = &run.uid;
        for (index, event) in events {
            let container = &run.containers[*index];
            let regarding = || {
                let list = if container.role == Role::Main {
                    "containers"
                } else {
                    "initContainers"
                };
                ObjectReference {
                    field_path: Some(format!("spec.{list}{{{}}}", container.name)),
                    ..pod.object_ref(&())
                }
            };
            match event {
                ContainerEvent::Normal(reason, text) => {
                    ctx.recorder().normal(&regarding(), reason, text.clone());
                }
                ContainerEvent::Warning(reason, text) => {
                    ctx.recorder().warning(&regarding(), reason, text.clone());
                }
                ContainerEvent::Started(before) => {
                    if *before > 0 {
                        self.logs.restart(uid, &container.name);
                    }
                    let text = format!("{}: started from image {}", container.name, container.image);
                    self.logs.print(uid, &container.name, &text);
                }
                ContainerEvent::Stopped => {
                    self.logs
                        .print(uid, &container.name, &format!("{}: stopped", container.name));
                    self.logs.end(uid, &container.name);
                }
            }
        }
    }

    /// Writes the pod's status if it has changed.
    async fn write_status(
        &self,
        key: &ObjectKey,
        pod: &Pod,
        run: &mut PodRun,
        now: Now,
        ctx: &Context,
    ) -> Result<(), Error> {
        let Some(addresses) = self.addresses(key, pod, run) else {
            return Ok(());
        };
        let status = run.status(pod, &addresses, &self.settings, (now.instant, now.time));
        if run.written_status.as_ref() == Some(&status) {
            return Ok(());
        }
        let patch = json!({"metadata": {"uid": run.uid}, "status": status});
        let params = PatchParams {
            field_manager: Some(COMPONENT.to_owned()),
            ..PatchParams::default()
        };
        let written = pods(pod, ctx)
            .patch_status(key.name(), &params, &Patch::Strategic(&patch))
            .await;
        super::ignore_gone(written)?;
        run.written_status = Some(status);
        Ok(())
    }

    fn addresses(&self, key: &ObjectKey, pod: &Pod, run: &PodRun) -> Option<Addresses> {
        let mut state = self.machines.lock();
        let machine = state.machines.get_mut(&run.node)?;
        let host = machine.address();
        let shares = pod
            .spec
            .as_ref()
            .is_some_and(|spec| spec.host_network == Some(true));
        let own = if shares {
            Some(host)
        } else {
            machine.allocate_pod_address(key)
        };
        Some(Addresses { host, pod: own })
    }

    /// Deletes the pod from the API, now that its containers have terminated.
    async fn remove(&self, pod: &Pod, ctx: &Context) -> Result<Action, Error> {
        if pod.metadata.deletion_timestamp.is_none() {
            return Ok(Action::done());
        }
        super::delete_immediately(pod, ctx).await?;
        Ok(Action::done())
    }
}

/// Resets the last written status if another writer has set Ready to false, as the node controller does for pods on
/// unreachable nodes. The status is then written again.
fn detect_foreign_readiness(pod: &Pod, run: &mut PodRun, now: Now) {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    for condition in conditions {
        let Some((kind, (holds, since))) = run
            .transitions
            .iter_mut()
            .find(|(kind, _)| **kind == condition.type_)
        else {
            continue;
        };
        let written = run.written_status.is_some() && *kind == "Ready";
        if written && *holds && condition.status != "True" {
            *since = now.time;
            run.written_status = None;
            return;
        }
    }
}

fn pods(pod: &Pod, ctx: &Context) -> Api<Pod> {
    Api::namespaced(
        ctx.client().clone(),
        pod.metadata.namespace.as_deref().unwrap_or_default(),
    )
}

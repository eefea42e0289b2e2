//! The kubelets: they bring the pods of their nodes to life and to their end.
//!
//! ```text
//!   Pod with a node ──► reconcile ──► Run (memory: what really goes on) ──► status · events · logs
//!                           ▲             └─ deadlines ──► again later
//!   Machines ── wakes ──────┘
//! ```
//!
//! One controller does the work of all kubelets. What goes on in a pod is in memory, as it is on a real machine; the API
//! is told of it. Of a machine that is off, hung or cut off, nobody is told anything.
//!
//! When every stage takes no time, a pod that starts is written once, Running and Ready; only what people could otherwise
//! never see (a container that ends, a pull that fails) is written before it passes.

mod run;
pub(crate) mod script;
mod status;
mod unit;

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::{
    Api, Resource,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;
use tokio::time::Instant;
use windlass_apiserver::Logs;
use windlass_runtime::{
    Action, Context, Controller, Error, Manager, ObjectKey, Predicate, Reconciler, Request, Watch,
};

use self::{
    run::Run,
    status::Addresses,
    unit::{Next, Now, Role, Said},
};
use super::machines::{Machines, Power};
use crate::alive::settings::Settings;

/// Who writes and who the events come from.
const COMPONENT: &str = "kubelet";

/// How many pods are dealt with at the same time.
const PODS: NonZeroUsize = NonZeroUsize::new(8).expect("not zero");

/// How long the containers of a pod take to end when they are told to.
const STOP: Duration = Duration::from_secs(1);

/// How many states in a row are written for one pod before others have their turn.
const MOST_WRITES: usize = 16;

pub(super) fn add(manager: Manager, settings: &Settings, machines: &Machines, logs: &Logs) -> Manager {
    let kubelets = Kubelets {
        settings: settings.clone(),
        machines: machines.clone(),
        logs: logs.clone(),
        runs: Arc::default(),
    };
    let placed = Predicate::new(|_, pod: &windlass_cache::Stored<Pod>| {
        pod.object().is_ok_and(|pod| node_of(&pod).is_some())
    });
    let controller = Controller::<Pod>::of("kubelet", Watch::new().when(placed))
        .component(COMPONENT)
        .triggered_by(machines.pods.keys())
        .concurrency(PODS)
        .reconcile(kubelets);
    manager.controller(controller)
}

struct Kubelets {
    settings: Settings,
    machines: Machines,
    logs: Logs,
    /// What goes on in every pod. One that is being dealt with is not here for the moment.
    runs: Arc<Mutex<HashMap<ObjectKey, Run>>>,
}

fn node_of(pod: &Pod) -> Option<&str> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.filter(|node| !node.is_empty())
}

impl Reconciler for Kubelets {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let key = &request.key;
        let run = self.runs().remove(key);
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
        let Some(boot_id) = self.working(node, key) else {
            // Nobody is there to act; whoever brings the machine back wakes its pods.
            if let Some(run) = run {
                self.runs().insert(key.clone(), run);
            }
            return Ok(Action::done());
        };
        let Some(mut run) = run.or_else(|| self.admit(&pod, node, &boot_id, &ctx)) else {
            return self.remove(&pod, &ctx).await;
        };
        let done = self.go_on(key, &pod, &mut run, &boot_id, &ctx).await;
        self.runs().insert(key.clone(), run);
        done
    }
}

impl Kubelets {
    fn runs(&self) -> MutexGuard<'_, HashMap<ObjectKey, Run>> {
        self.runs.lock().expect("nobody panics with it")
    }

    fn now(&self) -> Now {
        Now {
            instant: Instant::now(),
            time: self.settings.clock.now(),
        }
    }

    /// The boot of the machine if it is one of ours and works; it then knows the pod.
    fn working(&self, node: &str, key: &ObjectKey) -> Option<String> {
        let mut state = self.machines.lock();
        let machine = state.machines.get_mut(node)?;
        machine.pods.insert(key.clone());
        (machine.power == Power::On && machine.reaches_the_api()).then(|| machine.boot_id.clone())
    }

    fn forget(&self, key: &ObjectKey, run: Option<Run>) {
        if let Some(run) = run
            && let Some(machine) = self.machines.lock().machines.get_mut(&run.node)
        {
            machine.forget(key);
        }
    }

    /// A pod that is new to its kubelet. One that has ended before, or is to go, is not started.
    fn admit(&self, pod: &Pod, node: &str, boot_id: &str, ctx: &Context) -> Option<Run> {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) || pod.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let (run, wrong) = Run::new(pod, node, boot_id, self.settings.clock.now());
        if let Some(wrong) = wrong {
            let text = format!("annotation {}: {wrong}", script::ANNOTATION);
            ctx.recorder().warning(pod, "InvalidPodScript", text);
        }
        Some(run)
    }

    async fn go_on(
        &self,
        key: &ObjectKey,
        pod: &Pod,
        run: &mut Run,
        boot_id: &str,
        ctx: &Context,
    ) -> Result<Action, Error> {
        note_overruled(pod, run, self.now());
        for _ in 0..MOST_WRITES {
            let now = self.now();
            let mut said = Vec::new();
            if run.boot_id != boot_id {
                let text = "Pod sandbox changed, it will be killed and re-created.";
                ctx.recorder().normal(pod, "SandboxChanged", text);
                run.reboot(boot_id, now, &mut said);
            }
            let next = match self.is_over(pod, run, now, &mut said) {
                Some(next) => next,
                None => self.advance(run, now, &mut said),
            };
            self.tell(pod, run, &said, ctx);
            let over = run.stops_at.is_some_and(|at| at <= now.instant);
            // Without time between them, the end and the removal of a pod are one.
            if !over || !self.settings.is_instant() {
                self.write(key, pod, run, now, ctx).await?;
            }
            if over {
                if !run.removed {
                    run.removed = true;
                    return self.remove(pod, ctx).await;
                }
                return Ok(Action::done());
            }
            match next {
                Next::Idle => return Ok(Action::done()),
                Next::At(at) => return Ok(Action::requeue_after(at.saturating_duration_since(now.instant))),
                Next::Seen | Next::Again => {}
            }
        }
        Ok(Action::requeue_after(Duration::from_millis(1)))
    }

    /// What comes next for a pod that is to stop; `None` if it is not.
    fn is_over(&self, pod: &Pod, run: &mut Run, now: Now, said: &mut Vec<(usize, Said)>) -> Option<Next> {
        pod.metadata.deletion_timestamp.as_ref()?;
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        if run.stops_at.is_none() {
            run.announce_stop(said);
        }
        let stubborn = run.units.iter().any(|unit| unit.plan.ignores_term);
        let wait = if stubborn {
            self.settings.pause(grace)
        } else {
            self.settings.stage(STOP.min(grace))
        };
        let wait = if run.has_ended() { Duration::ZERO } else { wait };
        // A second request may shorten the grace, never prolong it.
        let at = run
            .stops_at
            .map_or(now.instant + wait, |known| known.min(now.instant + wait));
        run.stops_at = Some(at);
        if at <= now.instant {
            run.stop(now, said);
            return Some(Next::Idle);
        }
        Some(Next::At(at))
    }

    fn advance(&self, run: &mut Run, now: Now, said: &mut Vec<(usize, Said)>) -> Next {
        let mut state = self.machines.lock();
        let Some(machine) = state.machines.get_mut(&run.node) else {
            return Next::Idle;
        };
        let next = run.advance(&self.settings, now, &machine.images, said);
        let pulled = run.units.iter().filter(|unit| unit.id.is_some());
        for unit in pulled {
            if !machine.images.contains(&unit.image) {
                machine.images.insert(unit.image.clone());
            }
        }
        next
    }

    /// Events and logs.
    fn tell(&self, pod: &Pod, run: &Run, said: &[(usize, Said)], ctx: &Context) {
        let uid = &run.uid;
        for (index, said) in said {
            let unit = &run.units[*index];
            let regarding = || {
                let list = if unit.role == Role::Main {
                    "containers"
                } else {
                    "initContainers"
                };
                ObjectReference {
                    field_path: Some(format!("spec.{list}{{{}}}", unit.name)),
                    ..pod.object_ref(&())
                }
            };
            match said {
                Said::Normal(reason, text) => ctx.recorder().normal(&regarding(), reason, text.clone()),
                Said::Warning(reason, text) => ctx.recorder().warning(&regarding(), reason, text.clone()),
                Said::Starts(before) => {
                    if *before > 0 {
                        self.logs.restart(uid, &unit.name);
                    }
                    let text = format!("{}: started from image {}", unit.name, unit.image);
                    self.logs.print(uid, &unit.name, &text);
                }
                Said::Stops => {
                    self.logs
                        .print(uid, &unit.name, &format!("{}: stopped", unit.name));
                    self.logs.end(uid, &unit.name);
                }
            }
        }
    }

    /// Tells the API how the pod is, if it does not know.
    async fn write(
        &self,
        key: &ObjectKey,
        pod: &Pod,
        run: &mut Run,
        now: Now,
        ctx: &Context,
    ) -> Result<(), Error> {
        let Some(addresses) = self.addresses(key, pod, run) else {
            return Ok(());
        };
        let status = run.status(pod, &addresses, &self.settings, (now.instant, now.time));
        if run.written.as_ref() == Some(&status) {
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
        super::unless_gone(written)?;
        run.written = Some(status);
        Ok(())
    }

    fn addresses(&self, key: &ObjectKey, pod: &Pod, run: &Run) -> Option<Addresses> {
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
            machine.address_of(key)
        };
        Some(Addresses { host, pod: own })
    }

    /// Nothing of the pod is left here, so that the API may forget it.
    async fn remove(&self, pod: &Pod, ctx: &Context) -> Result<Action, Error> {
        if pod.metadata.deletion_timestamp.is_none() {
            return Ok(Action::done());
        }
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: pod.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        super::unless_gone(pods(pod, ctx).delete(name, &params).await)?;
        Ok(Action::done())
    }
}

/// If somebody else said that the pod is not ready (as the node controller does of pods that nobody hears of), what was
/// written counts for nothing any more.
fn note_overruled(pod: &Pod, run: &mut Run, now: Now) {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    for condition in conditions {
        let Some((kind, (holds, since))) = run.since.iter_mut().find(|(kind, _)| **kind == condition.type_)
        else {
            continue;
        };
        let written = run.written.is_some() && *kind == "Ready";
        if written && *holds && condition.status != "True" {
            *since = now.time;
            run.written = None;
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

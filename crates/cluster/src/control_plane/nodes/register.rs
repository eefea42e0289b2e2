//! The kubelets' work on their own Node: registration, status and reboots.
//!
//! ```text
//!   On ──(reboot)──► Stopping: reports NotReady ──► Off ──(boot duration)──► On: new boot ID, Ready
//! ```
//!
//! An annotation of the Node can make a reboot go wrong: see [`RebootBehavior`].

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use windlass_api::conditions::{self, Condition};
use windlass_runtime::{Action, Clock, Context, Controller, Error, Manager, ObjectKey, Reconciler, Request};

use super::{
    heartbeat,
    machines::{Machines, Power, Registration},
    node::{self, Readiness},
    reboot_request,
};
use crate::{
    control_plane::settings::Settings,
    simulation::{REBOOT_BEHAVIOR_ANNOTATION, RebootBehavior},
};

/// Field manager of the writes and source of the events.
pub(super) const COMPONENT: &str = "kubelet";

/// How long a rebooting machine is off.
const BOOT_DURATION: Duration = Duration::from_secs(30);

/// How long a flapping node is Ready, and not Ready.
const FLAP_DURATION: Duration = Duration::from_secs(5);

pub(super) fn add(manager: Manager, settings: &Settings, machines: &Machines) -> Manager {
    let registrar = Registrar {
        settings: settings.clone(),
        machines: machines.clone(),
    };
    let controller = Controller::<Node>::new("kubelet-node")
        .field_manager(COMPONENT)
        .triggered_by(machines.node_queue.keys())
        .reconcile(registrar);
    manager.controller(controller)
}

struct Registrar {
    settings: Settings,
    machines: Machines,
}

impl Reconciler for Registrar {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let name = request.key.name();
        loop {
            let Some((power, reaches)) = self.power(name) else {
                return Ok(Action::done());
            };
            match power {
                Power::Hung => return Ok(Action::done()),
                Power::On => {
                    let mut action = Action::done();
                    if reaches {
                        let (readiness, next) = self.readiness(name, &ctx)?;
                        self.report_status(name, readiness, &ctx).await?;
                        if self.handle_reboot_request(name, &ctx).await? {
                            continue;
                        }
                        action = next.map_or(action, Action::requeue_after);
                    }
                    return Ok(action);
                }
                Power::Stopping => {
                    if reaches {
                        self.report_status(name, Readiness::ShuttingDown, &ctx).await?;
                    }
                    self.switch_off(name, &ctx)?;
                }
                Power::Off => {
                    // When the annotation is removed, the Node has changed.
                    if behavior(name, &ctx)? == Some(RebootBehavior::NeverReturn) {
                        return Ok(Action::done());
                    }
                    if let Some(wait) = self.switch_on(name) {
                        return Ok(Action::requeue_after(wait));
                    }
                }
            }
        }
    }
}

impl Registrar {
    fn power(&self, name: &str) -> Option<(Power, bool)> {
        let state = self.machines.lock();
        let machine = state.machines.get(name)?;
        Some((machine.power, machine.can_reach_api()))
    }

    /// Handles a reboot request in the Node's annotations. Returns whether the machine has begun to reboot.
    async fn handle_reboot_request(&self, name: &str, ctx: &Context) -> Result<bool, Error> {
        let Some(node) = ctx.lister::<Node>()?.get(&ObjectKey::cluster_scoped(name)) else {
            return Ok(false);
        };
        let Some(boot_id) = self.machines.boot_id(name) else {
            return Ok(false);
        };
        if !reboot_request::take(&node, &boot_id, ctx).await? {
            return Ok(false);
        }
        self.machines.reboot_from_inside(name);
        Ok(true)
    }

    /// Returns what the kubelet reports, and when that changes by itself.
    fn readiness(&self, name: &str, ctx: &Context) -> Result<(Readiness, Option<Duration>), Error> {
        let booted_at = {
            let state = self.machines.lock();
            state.machines.get(name).and_then(|machine| machine.booted_at)
        };
        let flaps = behavior(name, ctx)? == Some(RebootBehavior::Flap);
        let Some(booted_at) = booted_at.filter(|_| flaps) else {
            return Ok((Readiness::Ready, None));
        };
        let up = booted_at.elapsed();
        let turns = u32::try_from(up.as_secs() / FLAP_DURATION.as_secs()).unwrap_or(u32::MAX - 1);
        let readiness = if turns.is_multiple_of(2) {
            Readiness::Ready
        } else {
            Readiness::Flapping
        };
        let next = FLAP_DURATION.saturating_mul(turns + 1).saturating_sub(up);
        Ok((readiness, Some(next)))
    }

    fn switch_off(&self, name: &str, ctx: &Context) -> Result<(), Error> {
        let off = match behavior(name, ctx)? {
            Some(RebootBehavior::ReturnAfter(time)) => time,
            _ => self.settings.scale_work(BOOT_DURATION),
        };
        let until = tokio::time::Instant::now() + off;
        if let Some(machine) = self.machines.lock().machines.get_mut(name)
            && machine.power == Power::Stopping
        {
            machine.power = Power::Off;
            machine.on_at = Some(until);
        }
        self.machines.notify_waiters();
        Ok(())
    }

    /// Starts the machine if it is due; otherwise returns the remaining time.
    fn switch_on(&self, name: &str) -> Option<Duration> {
        let pods: Vec<ObjectKey> = {
            let mut state = self.machines.lock();
            let boot_id = state.next_boot_id(name);
            let machine = state.machines.get_mut(name)?;
            let now = tokio::time::Instant::now();
            if let Some(at) = machine.on_at.filter(|at| *at > now) {
                return Some(at - now);
            }
            machine.on_at = None;
            machine.booted_at = Some(now);
            machine.power = Power::On;
            machine.registration = Registration::Unregistered;
            machine.boot_id = boot_id;
            machine.pods.iter().cloned().collect()
        };
        self.machines.pod_queue.add_all(pods);
        self.machines.notify_waiters();
        None
    }

    async fn report_status(&self, name: &str, readiness: Readiness, ctx: &Context) -> Result<(), Error> {
        let known = ctx.lister::<Node>()?.get(&ObjectKey::cluster_scoped(name));
        let now = Clock::system().now();
        let Some(known) = known else {
            return self.register(name, ctx).await;
        };
        let before = serde_json::to_value(&known.status)?;
        let status = {
            let state = self.machines.lock();
            let Some(machine) = state.machines.get(name) else {
                return Ok(());
            };
            node::build_status(machine, readiness, now, Some(&before))
        };
        if is_same_status(&before, &status) {
            return self.mark_registered(name, ctx).await;
        }
        let patch = json!({"metadata": {"uid": known.metadata.uid}, "status": status});
        let params = PatchParams {
            field_manager: Some(COMPONENT.to_owned()),
            ..PatchParams::default()
        };
        let nodes = Api::<Node>::all(ctx.client().clone());
        super::ignore_gone(nodes.patch_status(name, &params, &Patch::Strategic(patch)).await)?;
        let events = ctx.recorder();
        let (old, new) = (&before["nodeInfo"]["bootID"], &status["nodeInfo"]["bootID"]);
        if old != new && old.as_str().is_some_and(|old| !old.is_empty()) {
            let boot_id = new.as_str().unwrap_or_default();
            let text = format!("Node {name} has been rebooted, boot id: {boot_id}");
            events.warning(&known, "Rebooted", text);
        }
        let (old, new) = (ready_status(&before), ready_status(&status));
        if old != new {
            let reason = if new == "True" {
                "NodeReady"
            } else {
                "NodeNotReady"
            };
            events.normal(&known, reason, format!("Node {name} status is now: {reason}"));
        }
        self.mark_registered(name, ctx).await
    }

    /// Creates the Node. A kubelet does so once after its start, so a deleted Node stays deleted.
    async fn register(&self, name: &str, ctx: &Context) -> Result<(), Error> {
        let object = {
            let state = self.machines.lock();
            let machine = state
                .machines
                .get(name)
                .filter(|machine| machine.registration == Registration::Unregistered);
            let Some(machine) = machine else {
                return Ok(());
            };
            node::build_node(machine, Clock::system().now())
        };
        let node: Node = serde_json::from_value(object)?;
        let params = PostParams {
            field_manager: Some(COMPONENT.to_owned()),
            ..PostParams::default()
        };
        let made = Api::<Node>::all(ctx.client().clone())
            .create(&params, &node)
            .await?;
        ctx.recorder().normal(&made, "Starting", "Starting kubelet.");
        self.mark_registered(name, ctx).await
    }

    /// Marks the node as registered. The first time, it also sends the first heartbeat.
    async fn mark_registered(&self, name: &str, ctx: &Context) -> Result<(), Error> {
        let first = {
            let mut state = self.machines.lock();
            let Some(machine) = state.machines.get_mut(name) else {
                return Ok(());
            };
            std::mem::replace(&mut machine.registration, Registration::Registered) != Registration::Registered
        };
        self.machines.notify_waiters();
        if first {
            super::ignore_gone(heartbeat::renew(ctx.client(), name, Clock::system().precise_now()).await)?;
        }
        Ok(())
    }
}

/// What goes wrong when the node reboots. An invalid value is reported, and nothing goes wrong.
fn behavior(name: &str, ctx: &Context) -> Result<Option<RebootBehavior>, Error> {
    let node = ctx.lister::<Node>()?.get(&ObjectKey::cluster_scoped(name));
    let Some(node) = node else {
        return Ok(None);
    };
    let annotations = node.metadata.annotations.as_ref();
    let value = annotations.and_then(|all| all.get(REBOOT_BEHAVIOR_ANNOTATION));
    match value.map(|value| value.parse::<RebootBehavior>()) {
        None => Ok(None),
        Some(Ok(behavior)) => Ok(Some(behavior)),
        Some(Err(error)) => {
            ctx.recorder()
                .warning(&node, "InvalidRebootBehavior", error.to_string());
            Ok(None)
        }
    }
}

fn ready_status(status: &Value) -> &str {
    let conditions = status["conditions"].as_array();
    let ready = conditions.and_then(|conditions| conditions::find(conditions, "Ready"));
    ready.map(Condition::status).unwrap_or_default()
}

/// Whether `known` has all of `status`, apart from the heartbeat times.
fn is_same_status(known: &Value, status: &Value) -> bool {
    let fields = status.as_object().into_iter().flatten();
    fields
        .filter(|(key, _)| *key != "conditions")
        .all(|(key, value)| known[key] == *value)
        && status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .all(|condition| {
                let same = |other: &Value| {
                    ["type", "status", "reason", "message"]
                        .iter()
                        .all(|field| other[field] == condition[field])
                };
                known["conditions"].as_array().into_iter().flatten().any(same)
            })
}

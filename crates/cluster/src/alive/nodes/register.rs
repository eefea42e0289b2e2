//! The kubelets' part about their own nodes: they make themselves known, say how they are, and come back after a reboot.
//!
//! ```text
//!   On ──(reboot)──► Stopping: says NotReady ──► Off ──(the time it takes)──► On: a new boot ID, Ready
//! ```

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use windlass_runtime::{Action, Context, Controller, Error, Manager, ObjectKey, Reconciler, Request};

use super::{
    asked,
    heartbeat::{self, Pulse},
    machines::{Machines, Power, Standing},
    node::{self, Readiness},
};
use crate::alive::settings::Settings;

/// Who writes and who the events come from.
pub(super) const COMPONENT: &str = "kubelet";

/// How long a machine is off when it is rebooted.
const BOOT: Duration = Duration::from_secs(30);

pub(super) fn add(manager: Manager, settings: &Settings, machines: &Machines, pulse: Pulse) -> Manager {
    let registrar = Registrar {
        settings: settings.clone(),
        machines: machines.clone(),
        pulse,
    };
    let controller = Controller::<Node>::new("kubelet-node")
        .component(COMPONENT)
        .triggered_by(machines.nodes.keys())
        .reconcile(registrar);
    manager.controller(controller)
}

struct Registrar {
    settings: Settings,
    machines: Machines,
    pulse: Pulse,
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
                    if reaches {
                        self.report(name, Readiness::Ready, &ctx).await?;
                        if self.is_asked_to_reboot(name, &ctx).await? {
                            continue;
                        }
                    }
                    return Ok(Action::done());
                }
                Power::Stopping => {
                    if reaches {
                        self.report(name, Readiness::ShuttingDown, &ctx).await?;
                    }
                    self.switch_off(name);
                }
                Power::Off => {
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
        Some((machine.power, machine.reaches_the_api()))
    }

    /// Whether the machine has begun to reboot because somebody asked for it through the API.
    async fn is_asked_to_reboot(&self, name: &str, ctx: &Context) -> Result<bool, Error> {
        let Some(node) = ctx.lister::<Node>()?.get(&ObjectKey::cluster(name)) else {
            return Ok(false);
        };
        let Some(boot_id) = self.machines.boot_id(name) else {
            return Ok(false);
        };
        if !asked::take(&node, &boot_id, ctx).await? {
            return Ok(false);
        }
        self.machines.reboot_command(name);
        Ok(true)
    }

    fn switch_off(&self, name: &str) {
        let until = tokio::time::Instant::now() + self.settings.stage(BOOT);
        if let Some(machine) = self.machines.lock().machines.get_mut(name)
            && machine.power == Power::Stopping
        {
            machine.power = Power::Off;
            machine.on_at = Some(until);
        }
        self.machines.tell();
    }

    /// Starts a machine whose time has come; else the answer is how long that takes.
    fn switch_on(&self, name: &str) -> Option<Duration> {
        let pods: Vec<ObjectKey> = {
            let mut state = self.machines.lock();
            let boot_id = state.next_boot(name);
            let machine = state.machines.get_mut(name)?;
            let now = tokio::time::Instant::now();
            if let Some(at) = machine.on_at.filter(|at| *at > now) {
                return Some(at - now);
            }
            machine.on_at = None;
            machine.power = Power::On;
            machine.standing = Standing::New;
            machine.boot_id = boot_id;
            machine.pods.iter().cloned().collect()
        };
        self.machines.pods.wake_all(pods);
        self.machines.tell();
        None
    }

    async fn report(&self, name: &str, readiness: Readiness, ctx: &Context) -> Result<(), Error> {
        let known = ctx.lister::<Node>()?.get(&ObjectKey::cluster(name));
        let now = self.settings.clock.now();
        let Some(known) = known else {
            return self.register(name, ctx).await;
        };
        let before = serde_json::to_value(&known.status)?;
        let status = {
            let state = self.machines.lock();
            let Some(machine) = state.machines.get(name) else {
                return Ok(());
            };
            node::status(machine, readiness, now, Some(&before))
        };
        if says_the_same(&before, &status) {
            return self.is_registered(name, ctx).await;
        }
        let patch = json!({"metadata": {"uid": known.metadata.uid}, "status": status});
        let params = PatchParams {
            field_manager: Some(COMPONENT.to_owned()),
            ..PatchParams::default()
        };
        let nodes = Api::<Node>::all(ctx.client().clone());
        super::unless_gone(nodes.patch_status(name, &params, &Patch::Strategic(patch)).await)?;
        let events = ctx.recorder();
        let (old, new) = (&before["nodeInfo"]["bootID"], &status["nodeInfo"]["bootID"]);
        if old != new && old.as_str().is_some_and(|old| !old.is_empty()) {
            let boot_id = new.as_str().unwrap_or_default();
            let text = format!("Node {name} has been rebooted, boot id: {boot_id}");
            events.warning(&known, "Rebooted", text);
        }
        let (old, new) = (ready(&before), ready(&status));
        if old != new {
            let reason = if new == "True" {
                "NodeReady"
            } else {
                "NodeNotReady"
            };
            events.normal(&known, reason, format!("Node {name} status is now: {reason}"));
        }
        self.is_registered(name, ctx).await
    }

    /// Makes the node known. A kubelet does so once after its start: a node that somebody deletes stays away.
    async fn register(&self, name: &str, ctx: &Context) -> Result<(), Error> {
        let object = {
            let state = self.machines.lock();
            let machine = state
                .machines
                .get(name)
                .filter(|machine| machine.standing == Standing::New);
            let Some(machine) = machine else {
                return Ok(());
            };
            node::object(machine, self.settings.clock.now())
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
        self.is_registered(name, ctx).await
    }

    /// The first heartbeat comes with the registration.
    async fn is_registered(&self, name: &str, ctx: &Context) -> Result<(), Error> {
        let first = {
            let mut state = self.machines.lock();
            let Some(machine) = state.machines.get_mut(name) else {
                return Ok(());
            };
            std::mem::replace(&mut machine.standing, Standing::Known) != Standing::Known
        };
        self.machines.tell();
        if first {
            super::unless_gone(heartbeat::renew(ctx.client(), name, self.pulse.now()).await)?;
        }
        Ok(())
    }
}

fn ready(status: &Value) -> &str {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let ready = conditions.find(|condition| condition["type"] == "Ready");
    ready
        .and_then(|ready| ready["status"].as_str())
        .unwrap_or_default()
}

/// Whether the API knows all of it already, apart from when it was said.
fn says_the_same(known: &Value, status: &Value) -> bool {
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

//! The status of a pod as its kubelet writes it.

use std::{collections::BTreeMap, net::Ipv4Addr};

use k8s_openapi::{
    api::core::v1::{Container, Pod},
    jiff::Timestamp,
};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    run::{Run, is_initialized},
    unit::{Ended, Role, State, Unit, go_duration},
};
use crate::alive::{
    nodes::identity::{full_image, image_id},
    settings::Settings,
};

/// The conditions that kubelets write, in their order.
const CONDITIONS: [&str; 4] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
];

pub(super) struct Addresses {
    pub(super) host: Ipv4Addr,
    pub(super) pod: Option<Ipv4Addr>,
}

/// What a condition says: whether it holds, and if not why.
struct Says {
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Says {
    fn yes() -> Self {
        Self {
            holds: true,
            reason: None,
            message: None,
        }
    }

    fn no(reason: &'static str, message: Option<String>) -> Self {
        Self {
            holds: false,
            reason: Some(reason),
            message,
        }
    }
}

impl Run {
    /// The status as a strategic merge patch: what others wrote stays.
    pub(super) fn status(
        &mut self,
        pod: &Pod,
        addresses: &Addresses,
        settings: &Settings,
        now: (Instant, Timestamp),
    ) -> Value {
        let generation = pod.metadata.generation;
        let conditions = self.conditions(pod, settings, now);
        let mut status = Map::new();
        let mut set = |key: &str, value: Value| drop(status.insert(key.to_owned(), value));
        set("observedGeneration", generation.into());
        set("phase", self.phase().into());
        set("$setElementOrder/conditions", order(pod));
        set("conditions", conditions);
        set("hostIP", addresses.host.to_string().into());
        set("hostIPs", json!([{"ip": addresses.host}]));
        if let Some(ip) = addresses.pod {
            set("podIP", ip.to_string().into());
            set("podIPs", json!([{"ip": ip}]));
        }
        set("startTime", self.started.to_string().into());
        let statuses = |role: fn(Role) -> bool, containers: Option<&Vec<Container>>| -> Value {
            let units = self.units.iter().filter(|unit| role(unit.role));
            units
                .zip(containers.into_iter().flatten())
                .map(|(unit, container)| self.container(unit, container, settings, now.0))
                .collect()
        };
        let spec = pod.spec.as_ref();
        set(
            "containerStatuses",
            statuses(|role| role == Role::Main, spec.map(|spec| &spec.containers)),
        );
        if self.inits().next().is_some() {
            let containers = spec.and_then(|spec| spec.init_containers.as_ref());
            set(
                "initContainerStatuses",
                statuses(|role| role != Role::Main, containers),
            );
        }
        Value::Object(status)
    }

    fn conditions(&mut self, pod: &Pod, settings: &Settings, now: (Instant, Timestamp)) -> Value {
        let phase = self.phase();
        let containers = self.containers_ready(phase, settings, now.0);
        let ready = if containers.holds {
            gates(pod)
        } else {
            Says {
                message: containers.message.clone(),
                ..containers
            }
        };
        let prepared = Says {
            holds: self.stops_at.is_none() && !self.has_ended(),
            reason: None,
            message: None,
        };
        let all = [prepared, self.initialized(phase), ready, containers];
        let conditions = CONDITIONS.iter().zip(all).map(|(kind, says)| {
            let (held, since) = self.since.entry(kind).or_insert((says.holds, now.1));
            if *held != says.holds {
                (*held, *since) = (says.holds, now.1);
            }
            let mut condition = json!({
                "type": kind,
                "status": if says.holds { "True" } else { "False" },
                "lastProbeTime": null,
                "lastTransitionTime": since.to_string(),
                // Null takes away what a former state said.
                "reason": says.reason,
                "message": says.message,
            });
            if let Some(generation) = pod.metadata.generation {
                condition["observedGeneration"] = generation.into();
            }
            condition
        });
        conditions.collect()
    }

    fn containers_ready(&self, phase: &str, settings: &Settings, now: Instant) -> Says {
        match phase {
            "Succeeded" => return Says::no("PodCompleted", None),
            "Failed" => return Says::no("PodFailed", None),
            _ => {}
        }
        let counted = self.units.iter().filter(|unit| unit.role != Role::Init);
        let unready: Vec<_> = counted
            .filter(|unit| self.stops_at.is_some_and(|at| at <= now) || !unit.is_ready(now, settings))
            .map(|unit| unit.name.as_str())
            .collect();
        if unready.is_empty() {
            return Says::yes();
        }
        let message = format!("containers with unready status: [{}]", unready.join(" "));
        Says::no("ContainersNotReady", Some(message))
    }

    fn initialized(&self, phase: &str) -> Says {
        if phase == "Succeeded" {
            return Says {
                holds: true,
                reason: Some("PodCompleted"),
                message: None,
            };
        }
        if self.was_initialized() {
            return Says::yes();
        }
        let incomplete: Vec<_> = self
            .inits()
            .filter(|unit| !is_initialized(unit))
            .map(|unit| unit.name.as_str())
            .collect();
        if incomplete.is_empty() {
            return Says::yes();
        }
        let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
        Says::no("ContainersNotInitialized", Some(message))
    }

    fn container(&self, unit: &Unit, container: &Container, settings: &Settings, now: Instant) -> Value {
        let was_pulled = unit.id.is_some();
        let running = matches!(unit.state, State::Running { .. });
        let id = unit.id.as_ref().map(|id| format!("containerd://{id}"));
        let mut status = json!({
            "name": unit.name,
            "state": self.state(unit),
            "lastState": unit.last.as_ref().map_or_else(|| json!({}), terminated),
            "ready": unit.is_ready(now, settings),
            "restartCount": unit.restarts,
            "image": if was_pulled { full_image(&unit.image) } else { unit.image.clone() },
            "imageID": if was_pulled { image_id(&unit.image) } else { String::new() },
            "started": running,
        });
        if let Some(id) = id {
            status["containerID"] = id.into();
        }
        if let Some(resources) = &container.resources {
            status["resources"] = json!(resources);
            if let Some(requests) = &resources.requests {
                status["allocatedResources"] = json!(requests);
            }
        }
        status
    }

    fn state(&self, unit: &Unit) -> Value {
        let waiting = |reason: &str, message: Option<String>| {
            let mut waiting = json!({"reason": reason});
            if let Some(message) = message {
                waiting["message"] = message.into();
            }
            json!({"waiting": waiting})
        };
        match &unit.state {
            State::Waiting | State::Pulling { .. } | State::Starting { .. } => {
                let initializing = self.inits().next().is_some() && !self.was_initialized();
                waiting(
                    if initializing {
                        "PodInitializing"
                    } else {
                        "ContainerCreating"
                    },
                    None,
                )
            }
            State::PullFailed { .. } => waiting("ErrImagePull", Some(unit.pull_error())),
            State::PullBackOff { .. } => {
                let why = format!(
                    "Back-off pulling image \"{}\": ErrImagePull: {}",
                    unit.image,
                    unit.pull_error()
                );
                waiting("ImagePullBackOff", Some(why))
            }
            State::CrashBackOff { wait, .. } => {
                let wait = go_duration(*wait);
                let (name, pod) = (&unit.name, &self.title);
                let why = format!("back-off {wait} restarting failed container={name} pod={pod}");
                waiting("CrashLoopBackOff", Some(why))
            }
            State::Running { since } => json!({"running": {"startedAt": since.time.to_string()}}),
            State::Ended(ended) => terminated(ended),
        }
    }
}

fn terminated(ended: &Ended) -> Value {
    let mut terminated = json!({
        "exitCode": ended.code,
        "reason": ended.reason,
        "startedAt": ended.started.map(|time| time.to_string()),
        "finishedAt": ended.finished.to_string(),
    });
    if let Some(id) = &ended.id {
        terminated["containerID"] = format!("containerd://{id}").into();
    }
    json!({"terminated": terminated})
}

/// Whether the conditions hold that others must set before the pod is ready.
fn gates(pod: &Pod) -> Says {
    let known: BTreeMap<&str, &str> = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .map(|condition| (condition.type_.as_str(), condition.status.as_str()))
        .collect();
    let gates = pod
        .spec
        .iter()
        .flat_map(|spec| spec.readiness_gates.iter().flatten());
    let missing: Vec<_> = gates
        .filter_map(|gate| {
            let kind = &gate.condition_type;
            match known.get(kind.as_str()) {
                None => Some(format!(
                    "corresponding condition of pod readiness gate \"{kind}\" does not exist."
                )),
                Some(&"True") => None,
                Some(status) => Some(format!(
                    "the status of pod readiness gate \"{kind}\" is not \"True\", but {status}"
                )),
            }
        })
        .collect();
    if missing.is_empty() {
        Says::yes()
    } else {
        Says::no("ReadinessGatesNotReady", Some(missing.join(", ")))
    }
}

/// The order of all conditions: those of others first, as kubelets keep them, except for that of the scheduler.
fn order(pod: &Pod) -> Value {
    let known = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let others = known.map(|condition| condition.type_.as_str());
    let others: Vec<_> = others.filter(|kind| !CONDITIONS.contains(kind)).collect();
    let (scheduler, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|kind| *kind == "PodScheduled");
    let all = others.into_iter().chain(CONDITIONS).chain(scheduler);
    all.map(|kind| json!({"type": kind})).collect()
}

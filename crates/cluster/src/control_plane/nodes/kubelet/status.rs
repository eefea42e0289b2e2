//! Builds the pod status that a kubelet writes.

use std::{collections::BTreeMap, net::Ipv4Addr};

use k8s_openapi::{
    api::core::v1::{Container, Pod},
    jiff::Timestamp,
};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    container_run::{ContainerRun, ContainerState, Role, Termination, go_duration},
    pod_run::{PodRun, Volumes, allows_next},
};
use crate::control_plane::{
    nodes::identity::{full_image_name, image_id},
    settings::Settings,
};

/// The conditions that kubelets write, in order.
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

/// Status, reason and message of a condition.
struct ConditionState {
    is_true: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl ConditionState {
    fn true_() -> Self {
        Self {
            is_true: true,
            reason: None,
            message: None,
        }
    }

    fn false_(reason: &'static str, message: Option<String>) -> Self {
        Self {
            is_true: false,
            reason: Some(reason),
            message,
        }
    }
}

impl PodRun {
    /// Builds the status as a strategic merge patch, which keeps the conditions of other writers.
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
        set("$setElementOrder/conditions", condition_order(pod));
        set("conditions", conditions);
        set("hostIP", addresses.host.to_string().into());
        set("hostIPs", json!([{"ip": addresses.host}]));
        // A pod gets its address with its sandbox, after its volumes.
        if let Some(ip) = addresses.pod.filter(|_| self.volumes == Volumes::Mounted) {
            set("podIP", ip.to_string().into());
            set("podIPs", json!([{"ip": ip}]));
        }
        set("startTime", self.started.to_string().into());
        let statuses = |role: fn(Role) -> bool, containers: Option<&Vec<Container>>| -> Value {
            let units = self.containers.iter().filter(|container| role(container.role));
            units
                .zip(containers.into_iter().flatten())
                .map(|(container, spec)| self.container_status(container, spec, settings, now.0))
                .collect()
        };
        let spec = pod.spec.as_ref();
        set(
            "containerStatuses",
            statuses(|role| role == Role::Main, spec.map(|spec| &spec.containers)),
        );
        if self.init_containers().next().is_some() {
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
        let ready = if containers.is_true {
            readiness_gates(pod)
        } else {
            ConditionState {
                message: containers.message.clone(),
                ..containers
            }
        };
        let prepared = ConditionState {
            is_true: self.stops_at.is_none() && !self.has_ended() && self.volumes == Volumes::Mounted,
            reason: None,
            message: None,
        };
        let all = [prepared, self.initialized(phase), ready, containers];
        let conditions = CONDITIONS.iter().zip(all).map(|(kind, says)| {
            let (held, since) = self.transitions.entry(kind).or_insert((says.is_true, now.1));
            if *held != says.is_true {
                (*held, *since) = (says.is_true, now.1);
            }
            let mut condition = json!({
                "type": kind,
                "status": if says.is_true { "True" } else { "False" },
                "lastProbeTime": null,
                "lastTransitionTime": since.to_string(),
                // Null removes the value of an earlier state.
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

    fn containers_ready(&self, phase: &str, settings: &Settings, now: Instant) -> ConditionState {
        match phase {
            "Succeeded" => return ConditionState::false_("PodCompleted", None),
            "Failed" => return ConditionState::false_("PodFailed", None),
            _ => {}
        }
        let counted = self
            .containers
            .iter()
            .filter(|container| container.role != Role::Init);
        let unready: Vec<_> = counted
            .filter(|container| {
                self.stops_at.is_some_and(|at| at <= now) || !container.is_ready(now, settings)
            })
            .map(|container| container.name.as_str())
            .collect();
        if unready.is_empty() {
            return ConditionState::true_();
        }
        let message = format!("containers with unready status: [{}]", unready.join(" "));
        ConditionState::false_("ContainersNotReady", Some(message))
    }

    fn initialized(&self, phase: &str) -> ConditionState {
        if phase == "Succeeded" {
            return ConditionState {
                is_true: true,
                reason: Some("PodCompleted"),
                message: None,
            };
        }
        if self.was_initialized() {
            return ConditionState::true_();
        }
        let incomplete: Vec<_> = self
            .init_containers()
            .filter(|container| !allows_next(container))
            .map(|container| container.name.as_str())
            .collect();
        if incomplete.is_empty() {
            return ConditionState::true_();
        }
        let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
        ConditionState::false_("ContainersNotInitialized", Some(message))
    }

    fn container_status(
        &self,
        container: &ContainerRun,
        spec: &Container,
        settings: &Settings,
        now: Instant,
    ) -> Value {
        let was_pulled = container.id.is_some();
        let running = matches!(container.state, ContainerState::Running { .. });
        let id = container.id.as_ref().map(|id| format!("containerd://{id}"));
        let mut status = json!({
            "name": container.name,
            "state": self.container_state(container),
            "lastState": container.last_termination.as_ref().map_or_else(|| json!({}), terminated),
            "ready": container.is_ready(now, settings),
            "restartCount": container.restarts,
            "image": if was_pulled { full_image_name(&container.image) } else { container.image.clone() },
            "imageID": if was_pulled { image_id(&container.image) } else { String::new() },
            "started": running,
        });
        if let Some(id) = id {
            status["containerID"] = id.into();
        }
        if let Some(resources) = &spec.resources {
            status["resources"] = json!(resources);
            if let Some(requests) = &resources.requests {
                status["allocatedResources"] = json!(requests);
            }
        }
        status
    }

    fn container_state(&self, container: &ContainerRun) -> Value {
        let waiting = |reason: &str, message: Option<String>| {
            let mut waiting = json!({"reason": reason});
            if let Some(message) = message {
                waiting["message"] = message.into();
            }
            json!({"waiting": waiting})
        };
        match &container.state {
            ContainerState::Waiting | ContainerState::Pulling { .. } | ContainerState::Starting { .. } => {
                let initializing = self.init_containers().next().is_some() && !self.was_initialized();
                waiting(
                    if initializing {
                        "PodInitializing"
                    } else {
                        "ContainerCreating"
                    },
                    None,
                )
            }
            ContainerState::ConfigError { message, .. } => {
                waiting("CreateContainerConfigError", Some(message.clone()))
            }
            ContainerState::PullFailed { .. } => waiting("ErrImagePull", Some(container.pull_error())),
            ContainerState::PullBackOff { .. } => {
                let why = format!(
                    "Back-off pulling image \"{}\": ErrImagePull: {}",
                    container.image,
                    container.pull_error()
                );
                waiting("ImagePullBackOff", Some(why))
            }
            ContainerState::CrashBackOff { wait, .. } => {
                let wait = go_duration(*wait);
                let (name, pod) = (&container.name, &self.display_name);
                let why = format!("back-off {wait} restarting failed container={name} pod={pod}");
                waiting("CrashLoopBackOff", Some(why))
            }
            ContainerState::Running { since } => json!({"running": {"startedAt": since.time.to_string()}}),
            ContainerState::Terminated(ended) => terminated(ended),
        }
    }
}

fn terminated(ended: &Termination) -> Value {
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

/// Checks the pod's readiness gates.
fn readiness_gates(pod: &Pod) -> ConditionState {
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
        ConditionState::true_()
    } else {
        ConditionState::false_("ReadinessGatesNotReady", Some(missing.join(", ")))
    }
}

/// Returns the order of all conditions as kubelets keep them: those of other writers first, `PodScheduled` last.
fn condition_order(pod: &Pod) -> Value {
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

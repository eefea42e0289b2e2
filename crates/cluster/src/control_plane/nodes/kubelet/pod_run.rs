//! A simulated pod: runs its init containers, sidecars and main containers in order.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    container_run::{ContainerContext, ContainerEvent, ContainerRun, ContainerState, NextStep, Now, Role},
    references::References,
    script::{ContainerScript, POD_SCRIPT_ANNOTATION},
};
use crate::control_plane::settings::Settings;

pub(super) struct PodRun {
    pub(super) uid: String,
    pub(super) node: String,
    /// `name_namespace(uid)`, as kubelets name pods in messages.
    pub(super) display_name: String,
    pub(super) restart_policy: String,
    /// Init containers first, in spec order.
    pub(super) containers: Vec<ContainerRun>,
    pub(super) started: Timestamp,
    /// Status and last transition time of each condition.
    pub(super) transitions: BTreeMap<&'static str, (bool, Timestamp)>,
    /// The status that was written last.
    pub(super) written_status: Option<Value>,
    /// When its containers will have terminated, if it is being deleted.
    pub(super) stops_at: Option<Instant>,
    /// Its containers were stopped and must not restart.
    stopped: bool,
    /// The pod was deleted from the API.
    pub(super) removed: bool,
    /// The machine's boot in which its containers run.
    pub(super) boot_id: String,
    pub(super) references: References,
    pub(super) volumes: Volumes,
    /// Why each container cannot be created. Empty: all can.
    pub(super) config_errors: Vec<Option<String>>,
}

/// The state of a pod's volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Volumes {
    /// They are mounted at this time. The wait is that after another failure.
    Pending {
        until: Instant,
        wait: Duration,
    },
    Mounted,
}

impl Volumes {
    /// The waits between two attempts are a kubelet's.
    pub(super) fn pending() -> Self {
        Self::Pending {
            until: Instant::now(),
            wait: Duration::from_millis(500),
        }
    }

    /// The state after a failed attempt.
    pub(super) fn failed(wait: Duration, settings: &Settings, now: Instant) -> Self {
        Self::Pending {
            until: now + settings.scale_wait(wait),
            wait: (wait * 2).min(Duration::from_secs(122)),
        }
    }
}

impl PodRun {
    /// Creates the state of a pod that is new to its kubelet. An invalid script is ignored, and its error returned.
    pub(super) fn new(pod: &Pod, node: &str, boot_id: &str, now: Timestamp) -> (Self, Option<String>) {
        let meta = &pod.metadata;
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let (name, namespace, uid) = (text(&meta.name), text(&meta.namespace), text(&meta.uid));
        let script = meta
            .annotations
            .as_ref()
            .and_then(|all| all.get(POD_SCRIPT_ANNOTATION));
        let script = script.map(String::as_str).unwrap_or_default();
        let spec = pod.spec.clone().unwrap_or_default();
        let mut wrong = None;
        let mut plan = |container: &str, is_init: bool| {
            ContainerScript::parse(script, container, is_init).unwrap_or_else(|error| {
                wrong = Some(error);
                ContainerScript::default()
            })
        };
        let mut containers = Vec::new();
        for container in spec.init_containers.iter().flatten() {
            let role = match container.restart_policy.as_deref() {
                Some("Always") => Role::Sidecar,
                _ => Role::Init,
            };
            containers.push(ContainerRun::new(container, role, plan(&container.name, true)));
        }
        for container in &spec.containers {
            containers.push(ContainerRun::new(
                container,
                Role::Main,
                plan(&container.name, false),
            ));
        }
        let run = Self {
            display_name: format!("{name}_{namespace}({uid})"),
            uid,
            node: node.to_owned(),
            restart_policy: spec.restart_policy.unwrap_or_else(|| "Always".to_owned()),
            containers,
            started: now,
            transitions: BTreeMap::new(),
            written_status: None,
            stops_at: None,
            stopped: false,
            removed: false,
            boot_id: boot_id.to_owned(),
            references: References::of(pod),
            volumes: Volumes::pending(),
            config_errors: Vec::new(),
        };
        (run, wrong)
    }

    /// Advances the containers as far as possible now, or until there is a state that watchers should see.
    pub(super) fn advance(
        &mut self,
        settings: &Settings,
        now: Now,
        images: &BTreeSet<String>,
        events: &mut Vec<(usize, ContainerEvent)>,
    ) -> NextStep {
        if let Volumes::Pending { until, .. } = self.volumes {
            return NextStep::At(until);
        }
        loop {
            let mut next = NextStep::Idle;
            for index in 0..self.containers.len() {
                if !self.can_run(index) {
                    continue;
                }
                let ctx = ContainerContext {
                    settings,
                    now,
                    pod: &self.display_name,
                    uid: &self.uid,
                    has_image: images.contains(&self.containers[index].image),
                    restarts: should_restart,
                    policy: &self.restart_policy,
                    config_error: self.config_errors.get(index).and_then(Option::as_deref),
                };
                let mut emitted = Vec::new();
                let step = self.containers[index].advance(&ctx, &mut emitted);
                events.extend(emitted.into_iter().map(|event| (index, event)));
                next = next.earlier(step);
                if step == NextStep::AfterStatusWrite {
                    break;
                }
            }
            if self.is_complete() {
                self.stop_sidecars(now, events);
            }
            if next != NextStep::Immediately {
                return next;
            }
        }
    }

    /// Whether it is this container's turn.
    fn can_run(&self, index: usize) -> bool {
        if self.has_failed() || self.is_complete() {
            return false;
        }
        let before = |units: &[ContainerRun]| units.iter().all(allows_next);
        match self.containers[index].role {
            Role::Init | Role::Sidecar => before(&self.containers[..index]) || self.was_initialized(),
            Role::Main => {
                self.was_initialized()
                    || self
                        .containers
                        .iter()
                        .filter(|container| container.role != Role::Main)
                        .all(allows_next)
            }
        }
    }

    /// Whether a main container was started. From then on, init containers block nothing.
    pub(super) fn was_initialized(&self) -> bool {
        self.containers
            .iter()
            .any(|container| container.role == Role::Main && container.id.is_some())
    }

    pub(super) fn main_containers(&self) -> impl Iterator<Item = &ContainerRun> {
        self.containers
            .iter()
            .filter(|container| container.role == Role::Main)
    }

    pub(super) fn init_containers(&self) -> impl Iterator<Item = &ContainerRun> {
        self.containers
            .iter()
            .filter(|container| container.role != Role::Main)
    }

    /// Whether a container may be created before the next status is written.
    pub(super) fn is_starting(&self) -> bool {
        self.containers
            .iter()
            .any(|container| !matches!(container.state, ContainerState::Running { .. }))
    }

    /// Whether an init container failed for good.
    fn has_failed(&self) -> bool {
        self.containers.iter().any(|container| match &container.state {
            ContainerState::Terminated(ended) => {
                container.role == Role::Init
                    && ended.code != 0
                    && !should_restart(&self.restart_policy, container.role, ended.code)
            }
            _ => false,
        })
    }

    /// Whether every main container has terminated for good.
    fn is_complete(&self) -> bool {
        self.main_containers().all(|container| match &container.state {
            ContainerState::Terminated(ended) => {
                self.stopped || !should_restart(&self.restart_policy, container.role, ended.code)
            }
            _ => false,
        })
    }

    /// Computes the phase as a kubelet does.
    pub(super) fn phase(&self) -> &'static str {
        if self.has_failed() {
            return "Failed";
        }
        if !self.was_initialized() && !self.init_containers().all(allows_next) {
            return "Pending";
        }
        let never_ran = |container: &ContainerRun| {
            !matches!(
                container.state,
                ContainerState::Running { .. } | ContainerState::Terminated(_)
            ) && container.last_termination.is_none()
        };
        if self.main_containers().any(never_ran) {
            return "Pending";
        }
        if !self.is_complete() {
            return "Running";
        }
        let failed = |container: &ContainerRun| matches!(&container.state, ContainerState::Terminated(ended) if ended.code != 0);
        if self.main_containers().any(failed) {
            "Failed"
        } else {
            "Succeeded"
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_failed() || self.is_complete()
    }

    fn stop_sidecars(&mut self, now: Now, events: &mut Vec<(usize, ContainerEvent)>) {
        self.terminate_running(
            now,
            events,
            |container| container.role == Role::Sidecar,
            0,
            "Completed",
        );
    }

    /// Emits a `Killing` event for every running container.
    pub(super) fn announce_stop(&self, events: &mut Vec<(usize, ContainerEvent)>) {
        for (index, container) in self.containers.iter().enumerate() {
            if matches!(container.state, ContainerState::Running { .. }) {
                events.push((
                    index,
                    ContainerEvent::Normal("Killing", format!("Stopping container {}", container.name)),
                ));
            }
        }
    }

    /// Terminates all running containers: those that ignore SIGTERM are killed, the others complete.
    pub(super) fn stop(&mut self, now: Now, events: &mut Vec<(usize, ContainerEvent)>) {
        self.stopped = true;
        self.terminate_running(
            now,
            events,
            |container| container.script.ignores_term,
            137,
            "Error",
        );
        self.terminate_running(now, events, |_| true, 0, "Completed");
    }

    /// Handles a reboot of the machine: all containers were lost, and restart according to the restart policy.
    pub(super) fn reboot(&mut self, boot_id: &str, now: Now, events: &mut Vec<(usize, ContainerEvent)>) {
        boot_id.clone_into(&mut self.boot_id);
        if self.has_ended() {
            return;
        }
        self.volumes = Volumes::pending();
        self.terminate_running(now, events, |_| true, 255, "Unknown");
        for container in &mut self.containers {
            if let ContainerState::Terminated(ended) = &container.state
                && (container.role == Role::Init
                    || should_restart(&self.restart_policy, container.role, ended.code))
            {
                container.last_termination = Some(ended.clone());
                container.restarts += 1;
                container.state = ContainerState::Waiting;
            }
        }
    }

    fn terminate_running(
        &mut self,
        now: Now,
        events: &mut Vec<(usize, ContainerEvent)>,
        which: impl Fn(&ContainerRun) -> bool,
        code: i32,
        reason: &'static str,
    ) {
        for (index, container) in self.containers.iter_mut().enumerate() {
            if matches!(container.state, ContainerState::Running { .. }) && which(container) {
                let mut emitted = Vec::new();
                container.terminate_with_reason(code, reason, now, &mut emitted);
                events.extend(emitted.into_iter().map(|event| (index, event)));
            }
        }
    }
}

impl NextStep {
    /// Returns the earlier of the next steps of two containers.
    pub(super) fn earlier(self, other: Self) -> Self {
        match (self, other) {
            (Self::AfterStatusWrite, _) | (_, Self::AfterStatusWrite) => Self::AfterStatusWrite,
            (Self::Immediately, _) | (_, Self::Immediately) => Self::Immediately,
            (Self::At(one), Self::At(other)) => Self::At(one.min(other)),
            (at @ Self::At(_), Self::Idle) | (Self::Idle, at) => at,
        }
    }
}

/// Whether the next container may start.
pub(super) fn allows_next(container: &ContainerRun) -> bool {
    match (&container.state, container.role) {
        (ContainerState::Terminated(ended), Role::Init) => ended.code == 0,
        (ContainerState::Running { .. }, Role::Sidecar) | (_, Role::Main) => true,
        _ => false,
    }
}

/// Whether a container that terminated with this exit code restarts.
fn should_restart(policy: &str, role: Role, code: i32) -> bool {
    match (role, policy) {
        (Role::Sidecar, _) | (Role::Main, "Always") => true,
        (Role::Init | Role::Main, "Never") => false,
        (Role::Init | Role::Main, _) => code != 0,
    }
}

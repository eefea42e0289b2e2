//! A pod on a machine: its containers in their order, from the first to the last.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    script::{ANNOTATION, Plan},
    unit::{Next, Now, Role, Said, State, Surroundings, Unit},
};
use crate::alive::settings::Settings;

pub(super) struct Run {
    pub(super) uid: String,
    pub(super) node: String,
    /// `name_namespace(uid)`.
    pub(super) title: String,
    pub(super) policy: String,
    /// Init containers first, in their order.
    pub(super) units: Vec<Unit>,
    pub(super) started: Timestamp,
    /// Since when each condition says what it says.
    pub(super) since: BTreeMap<&'static str, (bool, Timestamp)>,
    /// What the API was told last.
    pub(super) written: Option<Value>,
    /// When its containers are gone, once it is to stop.
    pub(super) stops_at: Option<Instant>,
    /// Its containers were stopped, and none is started again.
    stopped: bool,
    /// The API was told that nothing of it is left.
    pub(super) removed: bool,
    /// The boot of the machine on which its containers run.
    pub(super) boot_id: String,
}

impl Run {
    /// A pod that a kubelet sees for the first time. A script that cannot be read is as none; the error is told.
    pub(super) fn new(pod: &Pod, node: &str, boot_id: &str, now: Timestamp) -> (Self, Option<String>) {
        let meta = &pod.metadata;
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let (name, namespace, uid) = (text(&meta.name), text(&meta.namespace), text(&meta.uid));
        let script = meta.annotations.as_ref().and_then(|all| all.get(ANNOTATION));
        let script = script.map(String::as_str).unwrap_or_default();
        let spec = pod.spec.clone().unwrap_or_default();
        let mut wrong = None;
        let mut plan = |container: &str, is_init: bool| {
            Plan::read(script, container, is_init).unwrap_or_else(|error| {
                wrong = Some(error);
                Plan::default()
            })
        };
        let mut units = Vec::new();
        for container in spec.init_containers.iter().flatten() {
            let role = match container.restart_policy.as_deref() {
                Some("Always") => Role::Sidecar,
                _ => Role::Init,
            };
            units.push(Unit::new(container, role, plan(&container.name, true)));
        }
        for container in &spec.containers {
            units.push(Unit::new(container, Role::Main, plan(&container.name, false)));
        }
        let run = Self {
            title: format!("{name}_{namespace}({uid})"),
            uid,
            node: node.to_owned(),
            policy: spec.restart_policy.unwrap_or_else(|| "Always".to_owned()),
            units,
            started: now,
            since: BTreeMap::new(),
            written: None,
            stops_at: None,
            stopped: false,
            removed: false,
            boot_id: boot_id.to_owned(),
        };
        (run, wrong)
    }

    /// Goes on as far as it can at this moment, or until there is something that others should see first.
    pub(super) fn advance(
        &mut self,
        settings: &Settings,
        now: Now,
        images: &BTreeSet<String>,
        said: &mut Vec<(usize, Said)>,
    ) -> Next {
        loop {
            let mut next = Next::Idle;
            for index in 0..self.units.len() {
                if !self.is_due(index) {
                    continue;
                }
                let around = Surroundings {
                    settings,
                    now,
                    pod: &self.title,
                    uid: &self.uid,
                    has_image: images.contains(&self.units[index].image),
                    restarts,
                    policy: &self.policy,
                };
                let mut told = Vec::new();
                let step = self.units[index].step(&around, &mut told);
                said.extend(told.into_iter().map(|told| (index, told)));
                next = next.sooner(step);
                if step == Next::Seen {
                    break;
                }
            }
            if self.is_complete() {
                self.stop_sidecars(now, said);
            }
            if next != Next::Again {
                return next;
            }
        }
    }

    /// Whether it is this container's turn.
    fn is_due(&self, index: usize) -> bool {
        if self.has_failed() || self.is_complete() {
            return false;
        }
        let before = |units: &[Unit]| units.iter().all(is_initialized);
        match self.units[index].role {
            Role::Init | Role::Sidecar => before(&self.units[..index]) || self.was_initialized(),
            Role::Main => {
                self.was_initialized()
                    || self
                        .units
                        .iter()
                        .filter(|unit| unit.role != Role::Main)
                        .all(is_initialized)
            }
        }
    }

    /// Once a container of the pod proper was started, init containers hold nobody up.
    pub(super) fn was_initialized(&self) -> bool {
        self.units
            .iter()
            .any(|unit| unit.role == Role::Main && unit.id.is_some())
    }

    pub(super) fn mains(&self) -> impl Iterator<Item = &Unit> {
        self.units.iter().filter(|unit| unit.role == Role::Main)
    }

    pub(super) fn inits(&self) -> impl Iterator<Item = &Unit> {
        self.units.iter().filter(|unit| unit.role != Role::Main)
    }

    /// An init container ended badly and is not tried again.
    fn has_failed(&self) -> bool {
        self.units.iter().any(|unit| match &unit.state {
            State::Ended(ended) => {
                unit.role == Role::Init && ended.code != 0 && !restarts(&self.policy, unit.role, ended.code)
            }
            _ => false,
        })
    }

    /// Every container has ended for good.
    fn is_complete(&self) -> bool {
        self.mains().all(|unit| match &unit.state {
            State::Ended(ended) => self.stopped || !restarts(&self.policy, unit.role, ended.code),
            _ => false,
        })
    }

    /// The phase, as a kubelet works it out.
    pub(super) fn phase(&self) -> &'static str {
        if self.has_failed() {
            return "Failed";
        }
        if !self.was_initialized() && !self.inits().all(is_initialized) {
            return "Pending";
        }
        let never_ran = |unit: &Unit| {
            !matches!(unit.state, State::Running { .. } | State::Ended(_)) && unit.last.is_none()
        };
        if self.mains().any(never_ran) {
            return "Pending";
        }
        if !self.is_complete() {
            return "Running";
        }
        let failed = |unit: &Unit| matches!(&unit.state, State::Ended(ended) if ended.code != 0);
        if self.mains().any(failed) {
            "Failed"
        } else {
            "Succeeded"
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_failed() || self.is_complete()
    }

    fn stop_sidecars(&mut self, now: Now, said: &mut Vec<(usize, Said)>) {
        self.each_running(now, said, |unit| unit.role == Role::Sidecar, 0, "Completed");
    }

    /// Tells the containers to stop.
    pub(super) fn announce_stop(&self, said: &mut Vec<(usize, Said)>) {
        for (index, unit) in self.units.iter().enumerate() {
            if matches!(unit.state, State::Running { .. }) {
                said.push((
                    index,
                    Said::Normal("Killing", format!("Stopping container {}", unit.name)),
                ));
            }
        }
    }

    /// The containers are gone, by themselves or by force.
    pub(super) fn stop(&mut self, now: Now, said: &mut Vec<(usize, Said)>) {
        self.stopped = true;
        self.each_running(now, said, |unit| unit.plan.ignores_term, 137, "Error");
        self.each_running(now, said, |_| true, 0, "Completed");
    }

    /// The machine was started anew: nothing of what ran is left.
    pub(super) fn reboot(&mut self, boot_id: &str, now: Now, said: &mut Vec<(usize, Said)>) {
        boot_id.clone_into(&mut self.boot_id);
        if self.has_ended() {
            return;
        }
        self.each_running(now, said, |_| true, 255, "Unknown");
        for unit in &mut self.units {
            if let State::Ended(ended) = &unit.state
                && (unit.role == Role::Init || restarts(&self.policy, unit.role, ended.code))
            {
                unit.last = Some(ended.clone());
                unit.restarts += 1;
                unit.state = State::Waiting;
            }
        }
    }

    fn each_running(
        &mut self,
        now: Now,
        said: &mut Vec<(usize, Said)>,
        which: impl Fn(&Unit) -> bool,
        code: i32,
        reason: &'static str,
    ) {
        for (index, unit) in self.units.iter_mut().enumerate() {
            if matches!(unit.state, State::Running { .. }) && which(unit) {
                let mut told = Vec::new();
                unit.end_as(code, reason, now, &mut told);
                said.extend(told.into_iter().map(|told| (index, told)));
            }
        }
    }
}

impl Next {
    /// Of what two containers do next, what comes first.
    pub(super) fn sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::Seen, _) | (_, Self::Seen) => Self::Seen,
            (Self::Again, _) | (_, Self::Again) => Self::Again,
            (Self::At(one), Self::At(other)) => Self::At(one.min(other)),
            (at @ Self::At(_), Self::Idle) | (Self::Idle, at) => at,
        }
    }
}

/// Whether the next container may start.
pub(super) fn is_initialized(unit: &Unit) -> bool {
    match (&unit.state, unit.role) {
        (State::Ended(ended), Role::Init) => ended.code == 0,
        (State::Running { .. }, Role::Sidecar) | (_, Role::Main) => true,
        _ => false,
    }
}

/// Whether a container that ended with this code is started again.
fn restarts(policy: &str, role: Role, code: i32) -> bool {
    match (role, policy) {
        (Role::Sidecar, _) | (Role::Main, "Always") => true,
        (Role::Init | Role::Main, "Never") => false,
        (Role::Init | Role::Main, _) => code != 0,
    }
}

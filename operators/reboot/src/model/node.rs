//! One node: its object, machine and agent, and what administrators do to it.

use jiff::Timestamp;

use crate::{
    state::{Phase, Progress},
    state_machine::{
        NodeView,
        agent::{self, AgentStep},
    },
};

/// A node's object and its machine.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent states of the machine and the node"
)]
pub(super) struct ModelNode {
    pub(super) view: NodeView,
    /// The agent's last view of the node.
    pub(super) agent_view: NodeView,
    pub(super) boots: u64,
    pub(super) up: bool,
    pub(super) ignores_reboots: bool,
    /// The agent claimed the reboot, but has not requested it yet.
    pub(super) reboot_claimed: bool,
    pub(super) boots_since_request: u64,
    /// Boots that are justified: one for the request, and one for each time an administrator starts it over.
    pub(super) allowed_boots: u64,
    /// An administrator cordoned the node.
    pub(super) cordoned_by_admin: bool,
}

impl ModelNode {
    /// A Ready node in its first boot.
    pub(super) fn new(number: usize) -> Self {
        let view = NodeView {
            name: format!("n{number}"),
            uid: format!("uid-{number}"),
            resource_version: "1".to_owned(),
            boot_id: "boot-0".to_owned(),
            is_ready: true,
            ..NodeView::default()
        };
        Self {
            agent_view: view.clone(),
            view,
            boots: 0,
            up: true,
            ignores_reboots: false,
            reboot_claimed: false,
            boots_since_request: 0,
            allowed_boots: 0,
            cordoned_by_admin: false,
        }
    }

    /// The agent acts once.
    pub(super) fn run_agent(&mut self, now: Timestamp) {
        if !self.up {
            return;
        }
        if self.reboot_claimed {
            self.reboot_claimed = false;
            if !self.ignores_reboots {
                self.up = false;
            }
            return;
        }
        let own = format!("boot-{}", self.boots);
        let (progress, claim) = match agent::step(&self.agent_view, &own, now) {
            AgentStep::Wait | AgentStep::WaitUntil(_) => return,
            AgentStep::Claim(progress) => (progress, true),
            AgentStep::Prove(progress) | AgentStep::GiveUp(progress) => (progress, false),
        };
        if self.agent_view.resource_version == self.view.resource_version {
            set_progress(&mut self.view, progress);
            self.reboot_claimed = claim;
        }
        self.agent_view = self.view.clone();
    }

    /// A machine that is off boots; a kubelet with news reports them.
    pub(super) fn run_machine(&mut self) {
        if !self.up {
            if self.view.is_ready {
                self.view.is_ready = false;
            } else {
                self.up = true;
                self.boots += 1;
                self.boots_since_request += 1;
                self.reboot_claimed = false;
            }
            bump_resource_version(&mut self.view);
            return;
        }
        let boot = format!("boot-{}", self.boots);
        if self.view.boot_id != boot {
            self.view.boot_id = boot;
            self.view.is_ready = true;
            bump_resource_version(&mut self.view);
        }
    }

    /// An administrator requests a reboot.
    pub(super) fn request(&mut self) {
        if self.view.request.is_some() {
            return;
        }
        self.view.request = Some(String::new());
        bump_resource_version(&mut self.view);
        // While the node is armed, it is the same request.
        let armed = |phase| {
            matches!(
                phase,
                Phase::Armed | Phase::Rebooted | Phase::Soaking | Phase::Failed
            )
        };
        if !self.view.phase().is_some_and(armed)
            && !self.reboot_claimed
            && self.up
            && self.view.progress.is_none()
        {
            (self.boots_since_request, self.allowed_boots) = (0, 1);
        }
    }

    /// An administrator removes the request; never after the reboot.
    pub(super) fn cancel(&mut self) {
        let cancels = match self.view.phase() {
            None => true,
            Some(phase) => phase <= Phase::Armed || phase == Phase::Aborted,
        };
        if cancels && self.view.request.take().is_some() {
            bump_resource_version(&mut self.view);
        }
    }

    /// An administrator cordons or uncordons the node.
    pub(super) fn cordon(&mut self, unschedulable: bool) {
        if self.view.unschedulable == unschedulable {
            return;
        }
        self.view.unschedulable = unschedulable;
        // While our mark is present, uncordoning and cordoning between two reads cannot be distinguished from our own
        // cordon.
        self.cordoned_by_admin = unschedulable && !self.view.cordoned;
        bump_resource_version(&mut self.view);
    }

    /// An administrator removes the state of a failed node.
    pub(super) fn start_over(&mut self) {
        if self.view.phase() == Some(Phase::Failed) {
            self.view.state = None;
            self.allowed_boots += 1;
            bump_resource_version(&mut self.view);
        }
    }

    /// The node is replaced by another one with the same name and another machine.
    pub(super) fn replace(&mut self) {
        self.boots += 100;
        let view = NodeView {
            name: self.view.name.clone(),
            uid: format!("{}+", self.view.uid),
            resource_version: self.view.resource_version.clone(),
            boot_id: format!("boot-{}", self.boots),
            is_ready: true,
            ..NodeView::default()
        };
        (self.up, self.reboot_claimed, self.cordoned_by_admin) = (true, false, false);
        (self.boots_since_request, self.allowed_boots) = (0, 0);
        self.view = view;
        bump_resource_version(&mut self.view);
        self.agent_view = self.view.clone();
    }

    pub(super) fn flap(&mut self) {
        self.view.is_ready = !self.view.is_ready && self.up;
        bump_resource_version(&mut self.view);
    }

    pub(super) fn flap_up(&mut self) {
        if self.up && !self.view.is_ready {
            self.view.is_ready = true;
            bump_resource_version(&mut self.view);
        }
    }
}

/// Increments the resource version.
pub(super) fn bump_resource_version(view: &mut NodeView) {
    let version = view.resource_version.parse::<u64>().expect("a number");
    view.resource_version = (version + 1).to_string();
}

fn set_progress(view: &mut NodeView, progress: Progress) {
    view.progress = Some(Ok(progress));
    bump_resource_version(view);
}

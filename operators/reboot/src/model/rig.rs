//! One node: its object, its machine, its agent, and what people do to it.

use jiff::Timestamp;

use crate::{
    machine::{
        NodeView,
        agent::{self, AgentStep},
    },
    state::{Phase, Progress},
};

/// A node's object, and its machine.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each of them is another one's to decide"
)]
pub(super) struct Rig {
    pub(super) view: NodeView,
    /// What the agent's process last saw.
    pub(super) seen: NodeView,
    pub(super) boots: u64,
    pub(super) up: bool,
    pub(super) deaf: bool,
    /// The agent wrote that it is about to reboot, and has not asked the machine yet.
    pub(super) about_to: bool,
    /// Boots since somebody asked for one.
    pub(super) answered: u64,
    /// Boots that are explained: one for the request, one more for each time that somebody starts it over.
    pub(super) allowed: u64,
    /// Somebody who is not us made it unschedulable.
    pub(super) theirs: bool,
}

impl Rig {
    /// One that is ready, in its first boot.
    pub(super) fn new(number: usize) -> Self {
        let view = NodeView {
            name: format!("n{number}"),
            uid: format!("uid-{number}"),
            version: "1".to_owned(),
            boot_id: "boot-0".to_owned(),
            ready: true,
            ..NodeView::default()
        };
        Self {
            seen: view.clone(),
            view,
            boots: 0,
            up: true,
            deaf: false,
            about_to: false,
            answered: 0,
            allowed: 0,
            theirs: false,
        }
    }

    /// Its agent does the next thing.
    pub(super) fn agent(&mut self, now: Timestamp) {
        if !self.up {
            return;
        }
        if self.about_to {
            self.about_to = false;
            if !self.deaf {
                self.up = false;
            }
            return;
        }
        let own = format!("boot-{}", self.boots);
        let (progress, claim) = match agent::step(&self.seen, &own, now) {
            AgentStep::Rest | AgentStep::Until(_) => return,
            AgentStep::Claim(progress) => (progress, true),
            AgentStep::Prove(progress) | AgentStep::GiveUp(progress) => (progress, false),
        };
        if self.seen.version == self.view.version {
            put(&mut self.view, progress);
            self.about_to = claim;
        }
        self.seen = self.view.clone();
    }

    /// A machine that is off boots; a kubelet that has something to say says it.
    pub(super) fn machine(&mut self) {
        if !self.up {
            if self.view.ready {
                self.view.ready = false;
            } else {
                self.up = true;
                self.boots += 1;
                self.answered += 1;
                self.about_to = false;
            }
            touch(&mut self.view);
            return;
        }
        let boot = format!("boot-{}", self.boots);
        if self.view.boot_id != boot {
            self.view.boot_id = boot;
            self.view.ready = true;
            touch(&mut self.view);
        }
    }

    /// Somebody asks for a reboot.
    pub(super) fn request(&mut self) {
        if self.view.needed.is_some() {
            return;
        }
        self.view.needed = Some(String::new());
        touch(&mut self.view);
        // While it is armed it is the same request.
        let armed = |phase| {
            matches!(
                phase,
                Phase::Armed | Phase::Rebooted | Phase::Soaking | Phase::Failed
            )
        };
        if !self.view.phase().is_some_and(armed) && !self.about_to && self.up && self.view.progress.is_none()
        {
            (self.answered, self.allowed) = (0, 1);
        }
    }

    /// Somebody takes the request off; nobody does after the reboot.
    pub(super) fn cancel(&mut self) {
        let cancels = match self.view.phase() {
            None => true,
            Some(phase) => phase <= Phase::Armed || phase == Phase::Aborted,
        };
        if cancels && self.view.needed.take().is_some() {
            touch(&mut self.view);
        }
    }

    /// Somebody makes it unschedulable, or schedulable.
    pub(super) fn cordon(&mut self, unschedulable: bool) {
        if self.view.unschedulable == unschedulable {
            return;
        }
        self.view.unschedulable = unschedulable;
        // With our mark still on it, what they did and undid before anybody looked cannot be told from ours.
        self.theirs = unschedulable && !self.view.cordoned;
        touch(&mut self.view);
    }

    /// Somebody has looked at a node that failed, and takes its state off.
    pub(super) fn start_over(&mut self) {
        if self.view.phase() == Some(Phase::Failed) {
            self.view.state = None;
            self.allowed += 1;
            touch(&mut self.view);
        }
    }

    /// The node goes, and one of its name comes, with a machine of its own.
    pub(super) fn replace(&mut self) {
        self.boots += 100;
        let view = NodeView {
            name: self.view.name.clone(),
            uid: format!("{}+", self.view.uid),
            version: self.view.version.clone(),
            boot_id: format!("boot-{}", self.boots),
            ready: true,
            ..NodeView::default()
        };
        (self.up, self.about_to, self.theirs) = (true, false, false);
        (self.answered, self.allowed) = (0, 0);
        self.view = view;
        touch(&mut self.view);
        self.seen = self.view.clone();
    }

    pub(super) fn flap(&mut self) {
        self.view.ready = !self.view.ready && self.up;
        touch(&mut self.view);
    }

    pub(super) fn flap_up(&mut self) {
        if self.up && !self.view.ready {
            self.view.ready = true;
            touch(&mut self.view);
        }
    }
}

/// It gets another version.
pub(super) fn touch(view: &mut NodeView) {
    let version = view.version.parse::<u64>().expect("a number");
    view.version = (version + 1).to_string();
}

fn put(view: &mut NodeView, progress: Progress) {
    view.progress = Some(Ok(progress));
    touch(view);
}

//! The objects, those who act on them, and what may happen.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use windlass::k8s_openapi::apimachinery::pkg::{apis::meta::v1::Time, util::intstr::IntOrString};

use crate::{
    api::{Grant, RebootPolicySpec},
    ledger::{Roll, is_spent, slot},
    machine::{self, Change, Cordon, DrainRule, Facts, Halt, NodeView, Rules, Step},
    state::Phase,
};

use super::rig::{Rig, touch};

const MINUTE: Duration = Duration::from_mins(1);

/// The policy, as the server has it.
#[derive(Clone, Default)]
struct Policy {
    version: u64,
    granted: Vec<Grant>,
    epoch: u64,
    paused: bool,
}

/// A controller, and what it is in the middle of.
struct Controller {
    nodes: Vec<NodeView>,
    policy: Policy,
    doing: Doing,
}

#[expect(clippy::large_enum_variant, reason = "there are two of them")]
enum Doing {
    Nothing,
    /// A round about slots: the policy was read.
    Slots {
        release: bool,
        policy: Policy,
    },
    /// And after it the nodes.
    Counted {
        release: bool,
        policy: Policy,
        nodes: Vec<NodeView>,
    },
    /// A step that needs the ledger read anew, for this node as it was seen.
    Confirming {
        node: usize,
    },
    /// It was.
    Confirmed {
        node: usize,
        view: NodeView,
        change: Change,
    },
}

pub(super) struct World {
    now: Timestamp,
    spec: RebootPolicySpec,
    rules: Rules,
    max: usize,
    policy: Policy,
    boxes: Vec<Rig>,
    controllers: [Controller; 2],
}

impl World {
    pub(super) fn new(nodes: usize, max: usize) -> Self {
        let boxes: Vec<_> = (0..nodes).map(Rig::new).collect();
        let controller = || Controller {
            nodes: boxes.iter().map(|one| one.view.clone()).collect(),
            policy: Policy::default(),
            doing: Doing::Nothing,
        };
        Self {
            now: "2026-01-02T03:04:05Z".parse().expect("a time"),
            spec: RebootPolicySpec {
                max_unavailable: i32::try_from(max).ok().map(IntOrString::Int),
                ..RebootPolicySpec::default()
            },
            rules: Rules {
                drain: Some(DrainRule {
                    timeout: 10 * MINUTE,
                    force: false,
                }),
                reboot: 15 * MINUTE,
                after: 10 * MINUTE,
                soak: MINUTE,
                backoff: 5 * MINUTE,
            },
            max,
            policy: Policy::default(),
            controllers: [controller(), controller()],
            boxes,
        }
    }

    /// Something happens. Of what disturbs only those happen whose bit is in `disturbances`: a schedule in which everything
    /// happens at once does not come far.
    pub(super) fn event(&mut self, choice: u16, disturbances: u16) {
        let [kind, what] = choice.to_be_bytes();
        let node = usize::from(what) % self.boxes.len();
        let who = usize::from(what / 16) % 2;
        match kind % 32 {
            0..=4 => self.work(who, node, what),
            5..=7 => self.slots(who, what % 2 == 0),
            8..=12 => self.go_on(who),
            13..=14 => self.boxes[node].agent(self.now),
            15 => self.boxes[node].machine(),
            16 => self.boxes[node].seen = self.boxes[node].view.clone(),
            17..=19 => self.refresh(who, node, what),
            20..=21 => self.boxes[node].request(),
            other => {
                let bit = other - 22;
                if disturbances & (1 << bit) == 0 {
                    return self.work(who, node, what);
                }
                match bit {
                    0 => self.controllers[who].doing = Doing::Nothing,
                    // Its memory of what it was about to do goes with the agent's process; what it wrote stays.
                    1 => self.boxes[node].about_to = false,
                    2 => self.later(Duration::from_secs(u64::from(what) * 4)),
                    3 => self.boxes[node].cancel(),
                    4 => self.boxes[node].cordon(what >= 128),
                    5 => {
                        self.policy.paused = what % 2 == 0;
                        self.policy.version += 1;
                    }
                    6 => self.boxes[node].deaf = what >= 128,
                    7 => self.boxes[node].start_over(),
                    8 => self.boxes[node].replace(),
                    _ => self.boxes[node].flap(),
                }
            }
        }
    }

    /// What must hold at every moment.
    pub(super) fn check(&self) {
        assert!(self.policy.granted.len() <= self.max, "too many slots");
        let taken = self.on_their_way();
        assert!(taken.len() <= self.max, "too many nodes on their way: {taken:?}");
        for one in &self.boxes {
            assert!(
                one.answered <= one.allowed,
                "{} rebooted {} times and not {}",
                one.view.name,
                one.answered,
                one.allowed
            );
        }
    }

    /// The nodes to which something was done.
    pub(super) fn on_their_way(&self) -> Vec<&str> {
        let taken = |one: &&Rig| {
            let phase = one.view.phase();
            one.view.cordoned || phase.is_some_and(|phase| phase.is_active() && phase != Phase::Granted)
        };
        let taken = self.boxes.iter().filter(taken);
        taken.map(|one| one.view.name.as_str()).collect()
    }

    /// One of the nodes.
    pub(super) fn node(&mut self, node: usize) -> &mut Rig {
        &mut self.boxes[node]
    }

    /// A whole round about slots.
    pub(super) fn round(&mut self, who: usize, release: bool) {
        self.slots(who, release);
        self.go_on(who);
        self.go_on(who);
    }

    /// A controller's cache gets to know of this node.
    pub(super) fn see(&mut self, who: usize, node: usize) {
        self.controllers[who].nodes[node] = self.boxes[node].view.clone();
    }

    /// Nobody dies, changes their mind or looks away any more: everything comes to rest, and is as it should be.
    pub(super) fn settle(&mut self) {
        self.policy.paused = false;
        self.policy.version += 1;
        for one in &mut self.boxes {
            one.deaf = false;
        }
        for _ in 0..400 {
            for who in 0..2 {
                self.go_on(who);
                self.go_on(who);
                self.go_on(who);
                self.refresh_all(who);
                for release in [true, false] {
                    self.round(who, release);
                    self.refresh_all(who);
                }
                for node in 0..self.boxes.len() {
                    self.work(who, node, 255);
                    self.go_on(who);
                    self.go_on(who);
                    self.refresh_all(who);
                }
            }
            for node in 0..self.boxes.len() {
                self.boxes[node].seen = self.boxes[node].view.clone();
                self.boxes[node].agent(self.now);
                self.boxes[node].machine();
                self.boxes[node].machine();
                self.boxes[node].flap_up();
                if self.boxes[node].view.phase() == Some(Phase::Failed) {
                    self.boxes[node].start_over();
                }
            }
            self.check();
            self.later(MINUTE);
            if self.policy.granted.is_empty() && self.boxes.iter().all(|one| one.view.is_idle() && one.up) {
                break;
            }
        }
        assert!(
            self.policy.granted.is_empty(),
            "slots are left: {:?}",
            self.policy.granted
        );
        for one in &self.boxes {
            assert!(one.view.is_idle(), "it is not over: {:#?}", one.view);
            assert_eq!(one.view.unschedulable, one.theirs, "{}", one.view.name);
        }
    }

    fn halt(&self, policy: &Policy) -> Option<Halt> {
        let _ = self;
        policy.paused.then_some(Halt::Paused)
    }

    fn facts<'a>(&'a self, view: &NodeView, policy: &Policy) -> Facts<'a> {
        Facts {
            now: self.now,
            policy: "default",
            rules: &self.rules,
            slot: slot(&policy.granted, view).map(|grant| grant.epoch),
            halt: self.halt(policy),
        }
    }

    /// One step of a node, from what this controller has in its cache.
    pub(super) fn work(&mut self, who: usize, node: usize, luck: u8) {
        if !matches!(self.controllers[who].doing, Doing::Nothing) {
            return;
        }
        let view = self.controllers[who].nodes[node].clone();
        let facts = self.facts(&view, &self.controllers[who].policy);
        let change = match machine::step(&view, &facts) {
            Step::Write(change) => Some(change),
            Step::Confirm(_) => {
                self.controllers[who].doing = Doing::Confirming { node };
                None
            }
            // Whether pods go, and pods become ready, is luck.
            Step::Drain { .. } if !luck.is_multiple_of(4) => machine::drained(&view, &facts, ""),
            Step::Verify if !luck.is_multiple_of(4) && view.ready => machine::verified(&view, &facts),
            Step::Rest | Step::Until(_) | Step::Drain { .. } | Step::Verify => None,
        };
        if let Some(change) = change {
            self.write(who, node, &view, &change);
        }
    }

    /// A round about slots begins: the policy is read.
    pub(super) fn slots(&mut self, who: usize, release: bool) {
        if matches!(self.controllers[who].doing, Doing::Nothing) {
            let policy = self.policy.clone();
            self.controllers[who].doing = Doing::Slots { release, policy };
        }
    }

    /// What a controller is in the middle of goes on by one request.
    pub(super) fn go_on(&mut self, who: usize) {
        let doing = std::mem::replace(&mut self.controllers[who].doing, Doing::Nothing);
        self.controllers[who].doing = match doing {
            Doing::Nothing => Doing::Nothing,
            Doing::Slots { release, policy } => Doing::Counted {
                release,
                policy,
                nodes: self.boxes.iter().map(|one| one.view.clone()).collect(),
            },
            Doing::Counted {
                release,
                policy,
                nodes,
            } => {
                self.count(release, policy, &nodes);
                Doing::Nothing
            }
            Doing::Confirming { node } => {
                let view = self.controllers[who].nodes[node].clone();
                match machine::step(&view, &self.facts(&view, &self.policy)) {
                    Step::Confirm(change) | Step::Write(change) => Doing::Confirmed { node, view, change },
                    _ => Doing::Nothing,
                }
            }
            Doing::Confirmed { node, view, change } => {
                self.write(who, node, &view, &change);
                Doing::Nothing
            }
        };
    }

    fn count(&mut self, release: bool, mut policy: Policy, nodes: &[NodeView]) {
        let version = policy.version;
        if release {
            let node = |grant: &Grant| nodes.iter().find(|node| node.name == grant.node);
            policy.granted.retain(|grant| !is_spent(grant, node(grant)));
        } else if self.halt(&policy).is_none() {
            let roll = Roll {
                spec: &self.spec,
                granted: &policy.granted,
                nodes: nodes
                    .iter()
                    .map(|node| (node.name.as_str(), node))
                    .collect::<BTreeMap<_, _>>(),
                own: None,
                now: self.now,
            };
            let next: Vec<_> = roll.next().expect("the limit is a number");
            let next: Vec<_> = next.into_iter().cloned().collect();
            for node in next {
                policy.epoch += 1;
                policy.granted.push(Grant {
                    node: node.name,
                    uid: node.uid,
                    epoch: policy.epoch,
                    at: Time(self.now),
                    boot_id: node.boot_id,
                });
            }
        }
        if self.policy.version == version {
            policy.version += 1;
            self.policy = policy;
        }
    }

    /// A conditional write to a node.
    fn write(&mut self, who: usize, node: usize, seen: &NodeView, change: &Change) {
        let one = &mut self.boxes[node];
        if one.view.version != seen.version {
            self.controllers[who].nodes[node] = one.view.clone();
            return;
        }
        if change.cordon == Some(Cordon::Lift) {
            assert!(!one.theirs, "{} was made unschedulable by others", one.view.name);
        }
        if change.done && one.view.needed.is_some() {
            assert!(one.answered > 0, "{} did not reboot", one.view.name);
        }
        change.apply(&mut one.view);
        touch(&mut one.view);
        self.controllers[who].nodes[node] = one.view.clone();
    }

    /// A cache gets newer, in one object or in all.
    fn refresh(&mut self, who: usize, node: usize, what: u8) {
        if what >= 192 {
            self.refresh_all(who);
        } else if what >= 128 {
            self.controllers[who].policy = self.policy.clone();
        } else {
            self.see(who, node);
        }
    }

    pub(super) fn refresh_all(&mut self, who: usize) {
        let controller = &mut self.controllers[who];
        controller.policy = self.policy.clone();
        controller.nodes = self.boxes.iter().map(|one| one.view.clone()).collect();
    }

    fn later(&mut self, by: Duration) {
        self.now = self.now.checked_add(by).expect("not that late");
    }
}

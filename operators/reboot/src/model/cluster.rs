//! The objects, the actors and the possible events.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use windlass::k8s_openapi::apimachinery::pkg::{apis::meta::v1::Time, util::intstr::IntOrString};

use crate::{
    api::{Grant, RebootPolicySpec},
    slots::{Rollout, is_expired, slot},
    state::Phase,
    state_machine::{
        self, CordonChange, DrainRule, HaltReason, NodeChange, NodeView, RebootRules, Step, StepInput,
    },
};

use super::node::{ModelNode, bump_resource_version};

const MINUTE: Duration = Duration::from_mins(1);

/// The policy on the server.
#[derive(Clone, Default)]
struct Policy {
    version: u64,
    granted: Vec<Grant>,
    epoch: u64,
    paused: bool,
}

/// A controller, its cache and its unfinished operation.
struct Controller {
    nodes: Vec<NodeView>,
    policy: Policy,
    in_flight: InFlight,
}

#[expect(clippy::large_enum_variant, reason = "there are two of them")]
enum InFlight {
    Nothing,
    /// A slot round: the policy was read.
    PolicyRead {
        release: bool,
        policy: Policy,
    },
    /// A slot round: the nodes were read too.
    NodesRead {
        release: bool,
        policy: Policy,
        nodes: Vec<NodeView>,
    },
    /// A step that has to confirm the slot, for this node.
    Confirming {
        node: usize,
    },
    /// The slot was confirmed.
    Confirmed {
        node: usize,
        view: NodeView,
        change: NodeChange,
    },
}

pub(super) struct ModelCluster {
    now: Timestamp,
    spec: RebootPolicySpec,
    rules: RebootRules,
    max: usize,
    policy: Policy,
    nodes: Vec<ModelNode>,
    controllers: [Controller; 2],
}

impl ModelCluster {
    pub(super) fn new(nodes: usize, max: usize) -> Self {
        let nodes: Vec<_> = (0..nodes).map(ModelNode::new).collect();
        let controller = || Controller {
            nodes: nodes.iter().map(|one| one.view.clone()).collect(),
            policy: Policy::default(),
            in_flight: InFlight::Nothing,
        };
        Self {
            now: "2026-01-02T03:04:05Z".parse().expect("a valid time"),
            spec: RebootPolicySpec {
                max_unavailable: i32::try_from(max).ok().map(IntOrString::Int),
                ..RebootPolicySpec::default()
            },
            rules: RebootRules {
                before_hook: Some(10 * MINUTE),
                drain: Some(DrainRule {
                    timeout: 10 * MINUTE,
                    force: false,
                }),
                reboot_timeout: 15 * MINUTE,
                health_check_timeout: 10 * MINUTE,
                soak: MINUTE,
                backoff: 5 * MINUTE,
            },
            max,
            policy: Policy::default(),
            controllers: [controller(), controller()],
            nodes,
        }
    }

    /// Runs one event. Disturbances happen only if their bit is set in `disturbances`: a schedule with all of them
    /// makes little progress.
    pub(super) fn event(&mut self, choice: u16, disturbances: u16) {
        let [kind, what] = choice.to_be_bytes();
        let node = usize::from(what) % self.nodes.len();
        let who = usize::from(what / 16) % 2;
        match kind % 32 {
            0..=4 => self.step_node(who, node, what),
            5..=7 => self.begin_slot_round(who, what % 2 == 0),
            8..=12 => self.advance(who),
            13..=14 => self.nodes[node].run_agent(self.now),
            15 => self.nodes[node].run_machine(),
            16 => self.nodes[node].agent_view = self.nodes[node].view.clone(),
            17..=19 => self.refresh(who, node, what),
            20..=21 => self.nodes[node].request(),
            other => {
                let bit = other - 22;
                if disturbances & (1 << bit) == 0 {
                    return self.step_node(who, node, what);
                }
                match bit {
                    0 => self.controllers[who].in_flight = InFlight::Nothing,
                    // A restarted agent forgets what it was about to do; what it wrote stays.
                    1 => self.nodes[node].reboot_claimed = false,
                    2 => self.pass_time(Duration::from_secs(u64::from(what) * 4)),
                    3 => self.nodes[node].cancel(),
                    4 => self.nodes[node].cordon(what >= 128),
                    5 => {
                        self.policy.paused = what % 2 == 0;
                        self.policy.version += 1;
                    }
                    6 => self.nodes[node].ignores_reboots = what >= 128,
                    7 => self.nodes[node].start_over(),
                    8 => self.nodes[node].replace(),
                    _ => self.nodes[node].flap(),
                }
            }
        }
    }

    /// Checks the invariants.
    pub(super) fn check(&self) {
        assert!(self.policy.granted.len() <= self.max, "too many slots granted");
        let taken = self.rebooting_nodes();
        assert!(
            taken.len() <= self.max,
            "too many nodes being rebooted: {taken:?}"
        );
        for one in &self.nodes {
            assert!(
                one.boots_since_request <= one.allowed_boots,
                "{} rebooted {} times, expected at most {}",
                one.view.name,
                one.boots_since_request,
                one.allowed_boots
            );
        }
    }

    /// Returns the nodes that were changed for a reboot.
    pub(super) fn rebooting_nodes(&self) -> Vec<&str> {
        let taken = |one: &&ModelNode| {
            let phase = one.view.phase();
            one.view.cordoned || phase.is_some_and(|phase| phase.is_active() && phase != Phase::Granted)
        };
        let taken = self.nodes.iter().filter(taken);
        taken.map(|one| one.view.name.as_str()).collect()
    }

    pub(super) fn node(&mut self, node: usize) -> &mut ModelNode {
        &mut self.nodes[node]
    }

    /// Runs a whole slot round.
    pub(super) fn slot_round(&mut self, who: usize, release: bool) {
        self.begin_slot_round(who, release);
        self.advance(who);
        self.advance(who);
    }

    /// Updates a node in a controller's cache.
    pub(super) fn refresh_node(&mut self, who: usize, node: usize) {
        self.controllers[who].nodes[node] = self.nodes[node].view.clone();
    }

    /// Runs without disturbances until all reboots have finished, and checks the result.
    pub(super) fn settle(&mut self) {
        self.policy.paused = false;
        self.policy.version += 1;
        for one in &mut self.nodes {
            one.ignores_reboots = false;
        }
        for _ in 0..400 {
            for who in 0..2 {
                self.advance(who);
                self.advance(who);
                self.advance(who);
                self.refresh_all(who);
                for release in [true, false] {
                    self.slot_round(who, release);
                    self.refresh_all(who);
                }
                for node in 0..self.nodes.len() {
                    self.step_node(who, node, 255);
                    self.advance(who);
                    self.advance(who);
                    self.refresh_all(who);
                }
            }
            for node in 0..self.nodes.len() {
                self.nodes[node].agent_view = self.nodes[node].view.clone();
                self.nodes[node].run_agent(self.now);
                self.nodes[node].run_machine();
                self.nodes[node].run_machine();
                self.nodes[node].flap_up();
                if self.nodes[node].view.phase() == Some(Phase::Failed) {
                    self.nodes[node].start_over();
                }
            }
            self.check();
            self.pass_time(MINUTE);
            if self.policy.granted.is_empty() && self.nodes.iter().all(|one| one.view.is_idle() && one.up) {
                break;
            }
        }
        assert!(
            self.policy.granted.is_empty(),
            "slots are left: {:?}",
            self.policy.granted
        );
        for one in &self.nodes {
            assert!(one.view.is_idle(), "the reboot has not finished: {:#?}", one.view);
            assert_eq!(one.view.unschedulable, one.cordoned_by_admin, "{}", one.view.name);
        }
    }

    fn halt(&self, policy: &Policy) -> Option<HaltReason> {
        let _ = self;
        policy.paused.then_some(HaltReason::Paused)
    }

    fn input<'a>(&'a self, view: &NodeView, policy: &Policy) -> StepInput<'a> {
        StepInput {
            now: self.now,
            policy: "default",
            rules: &self.rules,
            slot: slot(&policy.granted, view).map(|grant| grant.epoch),
            halt: self.halt(policy),
        }
    }

    /// Runs one step of a node, from the controller's cache.
    pub(super) fn step_node(&mut self, who: usize, node: usize, luck: u8) {
        if !matches!(self.controllers[who].in_flight, InFlight::Nothing) {
            return;
        }
        let view = self.controllers[who].nodes[node].clone();
        let input = self.input(&view, &self.controllers[who].policy);
        let change = match state_machine::step(&view, &input) {
            Step::Write(change) => Some(change),
            Step::WriteIfSlotHeld(_) => {
                self.controllers[who].in_flight = InFlight::Confirming { node };
                None
            }
            // Whether pods leave or become ready depends on `luck`.
            Step::Drain { .. } if !luck.is_multiple_of(4) => state_machine::drained(&view, &input, ""),
            Step::Verify if !luck.is_multiple_of(4) && view.is_ready => {
                state_machine::verified(&view, &input)
            }
            Step::Expire => state_machine::expired(&view, &input, ""),
            Step::Prepare if luck % 16 == 8 => state_machine::hook_failed(&view, &input, ""),
            Step::Prepare if !luck.is_multiple_of(4) => state_machine::prepared(&view, &input),
            Step::Wait | Step::WaitUntil(_) | Step::Drain { .. } | Step::Verify | Step::Prepare => None,
        };
        if let Some(change) = change {
            self.write(who, node, &view, &change);
        }
    }

    /// Begins a slot round: reads the policy.
    pub(super) fn begin_slot_round(&mut self, who: usize, release: bool) {
        if matches!(self.controllers[who].in_flight, InFlight::Nothing) {
            let policy = self.policy.clone();
            self.controllers[who].in_flight = InFlight::PolicyRead { release, policy };
        }
    }

    /// Advances a controller's unfinished operation by one request.
    pub(super) fn advance(&mut self, who: usize) {
        let doing = std::mem::replace(&mut self.controllers[who].in_flight, InFlight::Nothing);
        self.controllers[who].in_flight = match doing {
            InFlight::Nothing => InFlight::Nothing,
            InFlight::PolicyRead { release, policy } => InFlight::NodesRead {
                release,
                policy,
                nodes: self.nodes.iter().map(|one| one.view.clone()).collect(),
            },
            InFlight::NodesRead {
                release,
                policy,
                nodes,
            } => {
                self.finish_slot_round(release, policy, &nodes);
                InFlight::Nothing
            }
            InFlight::Confirming { node } => {
                let view = self.controllers[who].nodes[node].clone();
                match state_machine::step(&view, &self.input(&view, &self.policy)) {
                    Step::WriteIfSlotHeld(change) | Step::Write(change) => {
                        InFlight::Confirmed { node, view, change }
                    }
                    _ => InFlight::Nothing,
                }
            }
            InFlight::Confirmed { node, view, change } => {
                self.write(who, node, &view, &change);
                InFlight::Nothing
            }
        };
    }

    fn finish_slot_round(&mut self, release: bool, mut policy: Policy, nodes: &[NodeView]) {
        let version = policy.version;
        if release {
            let node = |grant: &Grant| nodes.iter().find(|node| node.name == grant.node);
            policy.granted.retain(|grant| !is_expired(grant, node(grant)));
        } else if self.halt(&policy).is_none() {
            let roll = Rollout {
                spec: &self.spec,
                granted: &policy.granted,
                nodes: nodes
                    .iter()
                    .map(|node| (node.name.as_str(), node))
                    .collect::<BTreeMap<_, _>>(),
                own_node: None,
                now: self.now,
            };
            let next: Vec<_> = roll.next().expect("a valid limit");
            let next: Vec<_> = next.into_iter().cloned().collect();
            for node in next {
                policy.epoch += 1;
                policy.granted.push(Grant {
                    node: node.name,
                    uid: node.uid,
                    epoch: policy.epoch,
                    granted_at: Time(self.now),
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
    fn write(&mut self, who: usize, node: usize, seen: &NodeView, change: &NodeChange) {
        let one = &mut self.nodes[node];
        if one.view.resource_version != seen.resource_version {
            self.controllers[who].nodes[node] = one.view.clone();
            return;
        }
        if change.cordon == Some(CordonChange::Lift) {
            assert!(
                !one.cordoned_by_admin,
                "{} was cordoned by an administrator",
                one.view.name
            );
        }
        if change.remove_request && one.view.request.is_some() {
            assert!(one.boots_since_request > 0, "{} did not reboot", one.view.name);
        }
        change.apply(&mut one.view);
        bump_resource_version(&mut one.view);
        self.controllers[who].nodes[node] = one.view.clone();
    }

    /// Updates one object in a cache, or all.
    fn refresh(&mut self, who: usize, node: usize, what: u8) {
        if what >= 192 {
            self.refresh_all(who);
        } else if what >= 128 {
            self.controllers[who].policy = self.policy.clone();
        } else {
            self.refresh_node(who, node);
        }
    }

    pub(super) fn refresh_all(&mut self, who: usize) {
        let controller = &mut self.controllers[who];
        controller.policy = self.policy.clone();
        controller.nodes = self.nodes.iter().map(|one| one.view.clone()).collect();
    }

    fn pass_time(&mut self, by: Duration) {
        self.now = self.now.checked_add(by).expect("in range");
    }
}

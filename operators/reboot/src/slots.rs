//! Which nodes get a slot, and which slots have expired: pure functions of the nodes, the grants and the time.
//!
//! ```text
//!   live policy (version v) ──► live list of nodes ──► is_expired    ──► write status if still v     one round
//!   live policy (version w) ──► live list of nodes ──► Rollout::next ──► write status if still w     another round
//! ```
//!
//! A round reads the grants before the nodes, and never takes a slot back and grants one in the same write. So nodes
//! are counted for a new slot after every release that the grants show. A node whose slot was taken back since it was
//! last read finds no slot when it reads the grants again, which it does before it is cordoned and before it is
//! armed. Therefore two controllers, or one with a stale cache, never have more nodes rebooting than allowed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use windlass::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::{
    api::{Grant, PlannedReboot, RebootPolicySpec},
    order::{self, Rank},
    state::Phase,
    state_machine::NodeView,
};

/// Maximum length of a plan.
const MAX_PLANNED: usize = 100;

/// A policy's nodes and grants at one moment.
#[derive(Clone, Debug)]
pub struct Rollout<'a> {
    /// The policy's spec.
    pub spec: &'a RebootPolicySpec,
    /// The slots in the policy's status.
    pub granted: &'a [Grant],
    /// The policy's nodes, by name.
    pub nodes: BTreeMap<&'a str, &'a NodeView>,
    /// The node that this process runs on.
    pub own_node: Option<&'a str>,
    /// The current time.
    pub now: Timestamp,
}

/// Why a node that requests a reboot has no slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Its last attempt was aborted, and it rests until then.
    Backoff(Timestamp),
    /// As many nodes as allowed are unavailable.
    MaxUnavailable,
    /// As many nodes as allowed with this value of the topology label are unavailable.
    Topology(String),
    /// Nodes of a lower rank have to be rebooted first.
    Order,
}

/// A limit that is neither a number nor a percentage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid {field} `{value}`: expected a number or a percentage, for example `2` or `10%`")]
pub struct InvalidLimit {
    field: &'static str,
    value: String,
}

impl<'a> Rollout<'a> {
    /// Returns how many of its nodes may be unavailable.
    pub fn max_unavailable(&self) -> Result<usize, InvalidLimit> {
        parse_limit(
            "maxUnavailable",
            self.spec.max_unavailable.as_ref(),
            self.nodes.len(),
        )
    }

    /// Returns the nodes that are not Ready, have a slot or are being rebooted.
    pub fn unavailable(&self) -> BTreeSet<&'a str> {
        let slots = self.granted.iter().map(|grant| grant.node.as_str());
        let nodes = self.nodes.values();
        let down = nodes.filter(|node| !node.is_ready || node.is_active());
        slots.chain(down.map(|node| node.name.as_str())).collect()
    }

    /// Returns the node's slot.
    pub fn slot(&self, node: &NodeView) -> Option<&'a Grant> {
        slot(self.granted, node)
    }

    /// Returns until when an aborted node rests, if that is in the future.
    pub fn rests_until(&self, node: &NodeView) -> Option<Timestamp> {
        let state = node.state().filter(|state| state.phase == Phase::Aborted)?;
        state.deadline.filter(|rest| *rest > self.now)
    }

    /// Returns the nodes that request a slot and may have one, in reboot order. Aborted nodes wait for their backoff.
    pub fn candidates(&self) -> Vec<&'a NodeView> {
        let waits = |node: &&NodeView| match &node.state {
            None => true,
            Some(Ok(state)) => state.phase == Phase::Aborted && self.rests_until(node).is_none(),
            Some(Err(_)) => false,
        };
        // A grant to a deleted node of the same name counts too: that one is taken back first.
        let has_slot = |node: &NodeView| self.granted.iter().any(|grant| grant.node == node.name);
        let nodes = self.nodes.values().copied();
        let asks = nodes.filter(|node| node.request.is_some() && !has_slot(node));
        let mut candidates: Vec<_> = asks.filter(waits).collect();
        order::sort(&mut candidates, &self.spec.order, self.own_node);
        candidates
    }

    /// Returns the nodes that get a slot now, in reboot order.
    pub fn next(&self) -> Result<Vec<&'a NodeView>, InvalidLimit> {
        let all = self.pick(self.candidates(), self.unavailable(), &self.busy())?;
        Ok(granted_nodes(all).collect())
    }

    /// Returns the nodes that request a reboot and get no slot now, with the reason, in reboot order; resting nodes
    /// first.
    pub fn waits(&self) -> Result<Vec<(&'a NodeView, WaitReason)>, InvalidLimit> {
        let asks = self.nodes.values().copied().filter(|node| node.request.is_some());
        let rests = asks.filter_map(|node| Some((node, WaitReason::Backoff(self.rests_until(node)?))));
        let picked = self.pick(self.candidates(), self.unavailable(), &self.busy())?;
        let waits = picked.into_iter().filter_map(|(node, why)| Some((node, why?)));
        Ok(rests.chain(waits).collect())
    }

    /// Returns the nodes that are being rebooted or are about to be.
    fn busy(&self) -> Vec<&'a NodeView> {
        let on_the_way = |node: &&NodeView| {
            let waits = self.slot(node).is_some() && !node.is_active();
            (node.is_active() || waits) && node.phase() != Some(Phase::Failed)
        };
        self.nodes.values().copied().filter(on_the_way).collect()
    }

    /// Returns the batches in which nodes would be rebooted if all reboots succeeded and no more were requested.
    pub fn plan(&self) -> Result<Vec<PlannedReboot>, InvalidLimit> {
        let unready = self.nodes.values().filter(|node| !node.is_ready);
        let unready: BTreeSet<&str> = unready.map(|node| node.name.as_str()).collect();
        let asks = self.nodes.values().copied().filter(|node| node.request.is_some());
        let mut waiting: Vec<&NodeView> = asks.collect();
        order::sort(&mut waiting, &self.spec.order, self.own_node);
        let mut plan = Vec::new();
        for batch in 1.. {
            let picked = self.pick(waiting.clone(), unready.clone(), &[])?;
            let picked: Vec<_> = granted_nodes(picked).collect();
            if picked.is_empty() || plan.len() >= MAX_PLANNED {
                break;
            }
            waiting.retain(|node| !picked.iter().any(|one| one.name == node.name));
            plan.extend(picked.iter().map(|node| PlannedReboot {
                node: node.name.clone(),
                batch,
            }));
        }
        plan.truncate(MAX_PLANNED);
        Ok(plan)
    }

    /// Decides for each candidate whether it gets a slot (`None`), or why not.
    fn pick(
        &self,
        candidates: Vec<&'a NodeView>,
        mut unavailable: BTreeSet<&'a str>,
        busy: &[&'a NodeView],
    ) -> Result<Vec<(&'a NodeView, Option<WaitReason>)>, InvalidLimit> {
        let max = self.max_unavailable()?;
        let rank = |node: &NodeView| Rank::of(node, &self.spec.order, self.own_node);
        let waiting = candidates.iter().chain(busy).map(|node| rank(node));
        let lowest = waiting.min();
        let mut picked = Vec::new();
        for node in candidates {
            // A node that is already down is not counted twice: a broken node may be rebooted.
            let others = |name: &&&str| **name != node.name;
            let why = if Some(rank(node)) != lowest {
                Some(WaitReason::Order)
            } else if unavailable.iter().filter(others).count() >= max {
                Some(WaitReason::MaxUnavailable)
            } else {
                self.full_topology(node, &unavailable)?.map(WaitReason::Topology)
            };
            if why.is_none() {
                unavailable.insert(&node.name);
            }
            picked.push((node, why));
        }
        Ok(picked)
    }

    /// Returns the node's value of the topology label if no further node with that value may be unavailable.
    fn full_topology(
        &self,
        node: &NodeView,
        unavailable: &BTreeSet<&str>,
    ) -> Result<Option<String>, InvalidLimit> {
        let Some(topology) = &self.spec.per_topology else {
            return Ok(None);
        };
        let value = |node: &NodeView| node.labels.get(&topology.key).cloned();
        let place = value(node);
        let there = self.nodes.values().filter(|other| value(other) == place);
        let (all, down) = there.fold((0, 0), |(all, down), other| {
            let counts = other.name != node.name && unavailable.contains(other.name.as_str());
            (all + 1, down + usize::from(counts))
        });
        let max = parse_limit(
            "perTopology.maxUnavailable",
            topology.max_unavailable.as_ref(),
            all,
        )?;
        Ok((down >= max).then(|| place.unwrap_or_default()))
    }
}

fn granted_nodes(picked: Vec<(&NodeView, Option<WaitReason>)>) -> impl Iterator<Item = &NodeView> {
    let granted = picked.into_iter().filter(|(_, why)| why.is_none());
    granted.map(|(node, _)| node)
}

/// Returns the node's slot. The UID must match, and the slot must not have been used.
pub fn slot<'a>(granted: &'a [Grant], node: &NodeView) -> Option<&'a Grant> {
    let is_its = |grant: &&Grant| grant.node == node.name && grant.uid == node.uid;
    granted
        .iter()
        .filter(is_its)
        .find(|grant| !is_consumed(grant, node))
}

/// Returns whether a node has rebooted since it got its slot and has no annotations of ours left. A later request is
/// a new one and needs a new slot, since other nodes may be down by now.
fn is_consumed(grant: &Grant, node: &NodeView) -> bool {
    let known = !grant.boot_id.is_empty() && !node.boot_id.is_empty();
    known && grant.boot_id != node.boot_id && node.state.is_none() && !node.cordoned
}

/// Returns whether a slot has expired, given the node of its name, if there is one.
pub fn is_expired(grant: &Grant, node: Option<&NodeView>) -> bool {
    let Some(node) = node.filter(|node| node.uid == grant.uid) else {
        return true;
    };
    let let_go = node
        .state()
        .is_some_and(|state| state.phase == Phase::Aborted && state.epoch == grant.epoch);
    node.is_idle() || let_go || is_consumed(grant, node)
}

/// Validates the limits of a policy.
pub fn validate_limits(spec: &RebootPolicySpec) -> Result<(), InvalidLimit> {
    parse_limit("maxUnavailable", spec.max_unavailable.as_ref(), 1)?;
    let place = spec.per_topology.as_ref();
    let place = place.and_then(|place| place.max_unavailable.as_ref());
    parse_limit("perTopology.maxUnavailable", place, 1)?;
    Ok(())
}

fn parse_limit(
    field: &'static str,
    value: Option<&IntOrString>,
    total: usize,
) -> Result<usize, InvalidLimit> {
    let invalid = |text: &str| InvalidLimit {
        field,
        value: text.to_owned(),
    };
    match value {
        None => Ok(1),
        Some(IntOrString::Int(number)) => usize::try_from(*number).map_err(|_| invalid(&number.to_string())),
        Some(IntOrString::String(text)) => {
            let percent = text
                .strip_suffix('%')
                .and_then(|number| number.parse::<u8>().ok());
            let percent = percent.filter(|percent| *percent <= 100);
            let percent = percent.ok_or_else(|| invalid(text))?;
            Ok((total * usize::from(percent) / 100).max(usize::from(percent > 0)))
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::{
        api::PerTopology,
        state::{InvalidAnnotation, State},
    };

    fn node(name: &str) -> NodeView {
        NodeView {
            name: name.to_owned(),
            uid: name.to_owned(),
            is_ready: true,
            request: Some(String::new()),
            ..NodeView::default()
        }
    }

    fn next(
        nodes: &[NodeView],
        granted: &[Grant],
        spec: &RebootPolicySpec,
        own_node: Option<&str>,
    ) -> Vec<String> {
        let roll = Rollout {
            spec,
            granted,
            nodes: nodes.iter().map(|node| (node.name.as_str(), node)).collect(),
            own_node,
            now: Timestamp::UNIX_EPOCH,
        };
        let next = roll.next().expect("valid limits");
        next.iter().map(|node| node.name.clone()).collect()
    }

    fn of(max: i32) -> RebootPolicySpec {
        RebootPolicySpec {
            max_unavailable: Some(IntOrString::Int(max)),
            ..RebootPolicySpec::default()
        }
    }

    fn grant(node: &str, uid: &str) -> Grant {
        Grant {
            node: node.to_owned(),
            uid: uid.to_owned(),
            epoch: 1,
            granted_at: Time(Timestamp::UNIX_EPOCH),
            boot_id: String::new(),
        }
    }

    #[test]
    fn limit_accepts_numbers_and_percentages() {
        let text = |text: &str| IntOrString::String(text.to_owned());
        for (value, total, expected) in [
            (None, 100, Some(1)),
            (Some(IntOrString::Int(3)), 1, Some(3)),
            (Some(IntOrString::Int(0)), 9, Some(0)),
            (Some(text("10%")), 100, Some(10)),
            (Some(text("25%")), 7, Some(1)),
            (Some(text("30%")), 7, Some(2)),
            (Some(text("1%")), 7, Some(1)),
            (Some(text("0%")), 7, Some(0)),
            (Some(text("100%")), 7, Some(7)),
            (Some(text("101%")), 7, None),
            (Some(text("-1%")), 7, None),
            (Some(text("3")), 7, None),
            (Some(IntOrString::Int(-1)), 7, None),
        ] {
            let found = parse_limit("maxUnavailable", value.as_ref(), total);
            assert_eq!(found.ok(), expected, "{value:?} of {total}");
        }
    }

    #[test]
    fn unavailable_nodes_are_counted_once() {
        let mut nodes = ["a", "b", "c"].map(node);
        assert_eq!(next(&nodes, &[], &of(2), None), ["a", "b"]);
        nodes[2].is_ready = false;
        assert_eq!(next(&nodes, &[], &of(2), None), ["a", "c"], "c is already down");
        assert_eq!(next(&nodes, &[grant("a", "a")], &of(2), None), ["c"]);
        nodes[2].request = None;
        assert_eq!(next(&nodes, &[grant("a", "a")], &of(2), None), [""; 0]);
        assert_eq!(
            next(&nodes, &[grant("gone", "x")], &of(2), None),
            [""; 0],
            "until the slot is taken back"
        );
        assert_eq!(
            next(&nodes, &[grant("a", "former")], &of(3), None),
            ["b"],
            "a's old slot is taken back first"
        );
    }

    #[test]
    fn per_topology_limit_applies_to_each_value() {
        let mut nodes = ["a", "b", "c", "d"].map(node);
        for (node, zone) in nodes.iter_mut().zip(["east", "east", "west", "west"]) {
            node.labels.insert("zone".to_owned(), zone.to_owned());
        }
        let spec = RebootPolicySpec {
            per_topology: Some(PerTopology {
                key: "zone".to_owned(),
                max_unavailable: None,
            }),
            ..of(4)
        };
        assert_eq!(next(&nodes, &[], &spec, None), ["a", "c"]);
        nodes[3].is_ready = false;
        assert_eq!(next(&nodes, &[], &spec, None), ["a", "d"]);
    }

    #[test]
    fn higher_rank_waits_for_lower_ranks() {
        let mut nodes = ["a", "b", "c"].map(node);
        nodes[0]
            .labels
            .insert("node-role.kubernetes.io/control-plane".to_owned(), String::new());
        assert_eq!(next(&nodes, &[], &of(3), Some("b")), ["c"]);
        assert_eq!(
            next(&nodes, &[grant("c", "c")], &of(3), Some("b")),
            [""; 0],
            "c is being rebooted"
        );
        nodes[2].request = None;
        assert_eq!(next(&nodes, &[], &of(3), Some("b")), ["a"]);
        nodes[0].request = None;
        assert_eq!(
            next(&nodes, &[], &of(3), Some("b")),
            ["b"],
            "b goes once it is the only one"
        );
    }

    /// The reasons why nodes get no slot, by name.
    fn waits(nodes: &[NodeView], granted: &[Grant], spec: &RebootPolicySpec) -> Vec<(String, WaitReason)> {
        let roll = Rollout {
            spec,
            granted,
            nodes: nodes.iter().map(|node| (node.name.as_str(), node)).collect(),
            own_node: None,
            now: Timestamp::UNIX_EPOCH,
        };
        let waits = roll.waits().expect("valid limits").into_iter();
        waits.map(|(node, why)| (node.name.clone(), why)).collect()
    }

    #[test]
    fn every_waiting_node_has_a_reason() {
        let mut nodes = ["a", "b", "c", "d"].map(node);
        assert_eq!(waits(&nodes, &[], &of(4)), []);
        let reason = |name: &str, why: WaitReason| (name.to_owned(), why);
        let full = |name| reason(name, WaitReason::MaxUnavailable);
        assert_eq!(waits(&nodes, &[grant("a", "a")], &of(2)), [full("c"), full("d")]);
        let zone = |node: &mut NodeView, zone: &str| node.labels.insert("zone".to_owned(), zone.to_owned());
        zone(&mut nodes[0], "east");
        zone(&mut nodes[1], "east");
        let spec = RebootPolicySpec {
            per_topology: Some(PerTopology {
                key: "zone".to_owned(),
                max_unavailable: None,
            }),
            ..of(4)
        };
        let topology = |name, zone: &str| reason(name, WaitReason::Topology(zone.to_owned()));
        assert_eq!(
            waits(&nodes, &[], &spec),
            [topology("b", "east"), topology("d", "")]
        );
        nodes[1]
            .labels
            .insert("node-role.kubernetes.io/control-plane".to_owned(), String::new());
        assert_eq!(waits(&nodes, &[], &of(4)), [reason("b", WaitReason::Order)]);
    }

    #[test]
    fn aborted_node_waits_for_its_backoff() {
        let state = |deadline| State {
            phase: Phase::Aborted,
            policy: "default".to_owned(),
            epoch: 1,
            attempt: 1,
            aborts: 0,
            since: Timestamp::UNIX_EPOCH,
            deadline,
            boot_id_before: None,
            healthy_deadline: None,
            cordoned: false,
            reason: None,
            unknown_fields: [].into(),
        };
        let mut nodes = ["a", "b"].map(node);
        nodes[0].state = Some(Ok(state(Some(Timestamp::MAX))));
        assert_eq!(next(&nodes, &[], &of(2), None), ["b"]);
        assert_eq!(
            waits(&nodes, &[], &of(2)),
            [("a".to_owned(), WaitReason::Backoff(Timestamp::MAX))]
        );
        nodes[0].state = Some(Ok(state(Some(Timestamp::UNIX_EPOCH))));
        assert_eq!(next(&nodes, &[], &of(2), None), ["a", "b"]);
    }

    #[test]
    fn slot_is_valid_for_one_reboot() {
        let (asks, mut on_its_way) = (node("a"), node("a"));
        let with = |node: &NodeView, boot_id: &str, cordoned| NodeView {
            boot_id: boot_id.to_owned(),
            cordoned,
            ..node.clone()
        };
        on_its_way.state = Some(Err(InvalidAnnotation {
            key: "state".to_owned(),
            error: "newer".to_owned(),
        }));
        for (case, given_in, node, used) in [
            ("not started", "one", with(&asks, "one", false), false),
            (
                "finished, and requested again",
                "one",
                with(&asks, "two", false),
                true,
            ),
            ("being rebooted", "one", with(&on_its_way, "two", false), false),
            (
                "failed, and the state was removed",
                "one",
                with(&asks, "two", true),
                false,
            ),
            (
                "the kubelet reports no boot ID",
                "one",
                with(&asks, "", false),
                false,
            ),
            ("granted without a boot ID", "", with(&asks, "two", false), false),
        ] {
            let mut grant = grant("a", "a");
            grant.boot_id = given_in.to_owned();
            assert_eq!(is_expired(&grant, Some(&node)), used, "{case}");
            assert_eq!(slot(&[grant], &node).is_none(), used, "{case}");
        }
    }

    #[test]
    fn slot_expires_when_its_node_is_gone_or_idle() {
        let asks = node("a");
        let rests = NodeView {
            request: None,
            ..node("a")
        };
        let cordoned = NodeView {
            cordoned: true,
            ..rests.clone()
        };
        for (case, uid, node, spent) in [
            ("the node is gone", "a", None, true),
            ("another node has its name", "former", Some(&asks), true),
            ("not started", "a", Some(&asks), false),
            ("finished", "a", Some(&rests), true),
            ("still cordoned", "a", Some(&cordoned), false),
        ] {
            assert_eq!(is_expired(&grant("a", uid), node), spent, "{case}");
        }
        assert!(slot(&[grant("a", "a")], &asks).is_some());
        assert!(
            slot(&[grant("a", "former")], &asks).is_none(),
            "the slot of another node"
        );
    }
}

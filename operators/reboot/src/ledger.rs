//! Who gets a slot, and whose is over: pure functions of the nodes, the ledger and the time.
//!
//! ```text
//!   live policy (version v) ──► live list of nodes ──► Roll::spent ──► write status, if still v     one round
//!   live policy (version w) ──► live list of nodes ──► Roll::next  ──► write status, if still w     another one
//! ```
//!
//! A round reads the ledger before the nodes, and a slot is never taken back and given away in the same one. So whoever counts
//! nodes for a new slot does it after every release that the ledger shows; and a node whose slot was taken back after it was
//! last looked at finds no slot when it reads the ledger anew, which it does before it is cordoned and before it is armed. That
//! is why two controllers, or one with an old view, never have more nodes on their way than there may be.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use windlass::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::{
    api::{Grant, Planned, RebootPolicySpec},
    machine::NodeView,
    order::{self, Rank},
    state::Phase,
};

/// So many lines of a plan are shown.
const MOST_PLANNED: usize = 100;

/// A policy's nodes and its ledger, at one moment.
#[derive(Clone, Debug)]
pub struct Roll<'a> {
    /// What the policy says.
    pub spec: &'a RebootPolicySpec,
    /// Its ledger.
    pub granted: &'a [Grant],
    /// Its nodes, by name.
    pub nodes: BTreeMap<&'a str, &'a NodeView>,
    /// The node that this process runs on.
    pub own: Option<&'a str>,
    /// The time.
    pub now: Timestamp,
}

/// A limit is neither a number nor a percentage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} `{value}` is neither a number nor a percentage: write `2` or `10%`")]
pub struct InvalidLimit {
    field: &'static str,
    value: String,
}

impl<'a> Roll<'a> {
    /// How many of its nodes may be unavailable.
    pub fn max(&self) -> Result<usize, InvalidLimit> {
        limit(
            "maxUnavailable",
            self.spec.max_unavailable.as_ref(),
            self.nodes.len(),
        )
    }

    /// The nodes that are not Ready, have a slot or are on their way.
    pub fn unavailable(&self) -> BTreeSet<&'a str> {
        let slots = self.granted.iter().map(|grant| grant.node.as_str());
        let nodes = self.nodes.values();
        let down = nodes.filter(|node| !node.ready || node.is_active());
        slots.chain(down.map(|node| node.name.as_str())).collect()
    }

    /// The node's slot.
    pub fn slot(&self, node: &NodeView) -> Option<&'a Grant> {
        slot(self.granted, node)
    }

    /// The nodes that ask for a slot and may have one, in their order. One that was let go rests first.
    pub fn candidates(&self) -> Vec<&'a NodeView> {
        let waits = |node: &&NodeView| match &node.state {
            None => true,
            Some(Ok(state)) => {
                state.phase == Phase::Aborted && state.deadline.is_none_or(|rest| rest <= self.now)
            }
            Some(Err(_)) => false,
        };
        // Not even one of its name that is gone: that one is taken back first.
        let has_slot = |node: &NodeView| self.granted.iter().any(|grant| grant.node == node.name);
        let nodes = self.nodes.values().copied();
        let asks = nodes.filter(|node| node.needed.is_some() && !has_slot(node));
        let mut candidates: Vec<_> = asks.filter(waits).collect();
        order::sort(&mut candidates, &self.spec.order, self.own);
        candidates
    }

    /// The nodes that get a slot now, in their order.
    pub fn next(&self) -> Result<Vec<&'a NodeView>, InvalidLimit> {
        let on_the_way = |node: &&NodeView| {
            let waits = self.slot(node).is_some() && !node.is_active();
            (node.is_active() || waits) && node.phase() != Some(Phase::Failed)
        };
        let busy: Vec<_> = self.nodes.values().copied().filter(on_the_way).collect();
        self.pick(self.candidates(), self.unavailable(), &busy)
    }

    /// What would be rebooted together with what, if all went well and nothing else was asked for.
    pub fn plan(&self) -> Result<Vec<Planned>, InvalidLimit> {
        let unready = self.nodes.values().filter(|node| !node.ready);
        let unready: BTreeSet<&str> = unready.map(|node| node.name.as_str()).collect();
        let asks = self.nodes.values().copied().filter(|node| node.needed.is_some());
        let mut waiting: Vec<&NodeView> = asks.collect();
        order::sort(&mut waiting, &self.spec.order, self.own);
        let mut plan = Vec::new();
        for batch in 1.. {
            let picked = self.pick(waiting.clone(), unready.clone(), &[])?;
            if picked.is_empty() || plan.len() >= MOST_PLANNED {
                break;
            }
            waiting.retain(|node| !picked.iter().any(|one| one.name == node.name));
            plan.extend(picked.iter().map(|node| Planned {
                node: node.name.clone(),
                batch,
            }));
        }
        plan.truncate(MOST_PLANNED);
        Ok(plan)
    }

    fn pick(
        &self,
        candidates: Vec<&'a NodeView>,
        mut unavailable: BTreeSet<&'a str>,
        busy: &[&'a NodeView],
    ) -> Result<Vec<&'a NodeView>, InvalidLimit> {
        let max = self.max()?;
        let rank = |node: &NodeView| Rank::of(node, &self.spec.order, self.own);
        let waiting = candidates.iter().chain(busy).map(|node| rank(node));
        let lowest = waiting.min();
        let mut picked = Vec::new();
        for node in candidates {
            // One that is down already is not counted twice: what is broken may be rebooted.
            let others = |name: &&&str| **name != node.name;
            let fits = unavailable.iter().filter(others).count() < max
                && self.fits_topology(node, &unavailable)?
                && Some(rank(node)) == lowest;
            if fits {
                unavailable.insert(&node.name);
                picked.push(node);
            }
        }
        Ok(picked)
    }

    fn fits_topology(&self, node: &NodeView, unavailable: &BTreeSet<&str>) -> Result<bool, InvalidLimit> {
        let Some(topology) = &self.spec.per_topology else {
            return Ok(true);
        };
        let value = |node: &NodeView| node.labels.get(&topology.key).cloned();
        let place = value(node);
        let there = self.nodes.values().filter(|other| value(other) == place);
        let (all, down) = there.fold((0, 0), |(all, down), other| {
            let counts = other.name != node.name && unavailable.contains(other.name.as_str());
            (all + 1, down + usize::from(counts))
        });
        let max = limit(
            "perTopology.maxUnavailable",
            topology.max_unavailable.as_ref(),
            all,
        )?;
        Ok(down < max)
    }
}

/// The node's slot in a ledger: that of this very node, not of one that had its name, and not one that it has used.
pub fn slot<'a>(granted: &'a [Grant], node: &NodeView) -> Option<&'a Grant> {
    let is_its = |grant: &&Grant| grant.node == node.name && grant.uid == node.uid;
    granted.iter().filter(is_its).find(|grant| !is_used(grant, node))
}

/// Whether a node has rebooted since it got its slot, and nothing of ours is left on it. What it is asked for then is another
/// request, which waits its turn: by now others may be down.
fn is_used(grant: &Grant, node: &NodeView) -> bool {
    let known = !grant.boot_id.is_empty() && !node.boot_id.is_empty();
    known && grant.boot_id != node.boot_id && node.state.is_none() && !node.cordoned
}

/// Whether a slot is over, given the node that has its name, if there is one.
pub fn is_spent(grant: &Grant, node: Option<&NodeView>) -> bool {
    let Some(node) = node.filter(|node| node.uid == grant.uid) else {
        return true;
    };
    let let_go = node
        .state()
        .is_some_and(|state| state.phase == Phase::Aborted && state.epoch == grant.epoch);
    node.is_idle() || let_go || is_used(grant, node)
}

/// Whether the limits of a policy are limits.
pub fn check(spec: &RebootPolicySpec) -> Result<(), InvalidLimit> {
    limit("maxUnavailable", spec.max_unavailable.as_ref(), 1)?;
    let place = spec.per_topology.as_ref();
    let place = place.and_then(|place| place.max_unavailable.as_ref());
    limit("perTopology.maxUnavailable", place, 1)?;
    Ok(())
}

fn limit(field: &'static str, value: Option<&IntOrString>, total: usize) -> Result<usize, InvalidLimit> {
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
        state::{State, Unreadable},
    };

    fn node(name: &str) -> NodeView {
        NodeView {
            name: name.to_owned(),
            uid: name.to_owned(),
            ready: true,
            needed: Some(String::new()),
            ..NodeView::default()
        }
    }

    fn next(
        nodes: &[NodeView],
        granted: &[Grant],
        spec: &RebootPolicySpec,
        own: Option<&str>,
    ) -> Vec<String> {
        let roll = Roll {
            spec,
            granted,
            nodes: nodes.iter().map(|node| (node.name.as_str(), node)).collect(),
            own,
            now: Timestamp::UNIX_EPOCH,
        };
        let next = roll.next().expect("the limits are numbers");
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
            at: Time(Timestamp::UNIX_EPOCH),
            boot_id: String::new(),
        }
    }

    #[test]
    fn a_limit_is_a_number_or_a_part_of_all() {
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
            let found = limit("maxUnavailable", value.as_ref(), total);
            assert_eq!(found.ok(), expected, "{value:?} of {total}");
        }
    }

    #[test]
    fn what_is_down_counts_once() {
        let mut nodes = ["a", "b", "c"].map(node);
        assert_eq!(next(&nodes, &[], &of(2), None), ["a", "b"]);
        nodes[2].ready = false;
        assert_eq!(next(&nodes, &[], &of(2), None), ["a", "c"], "c is down as it is");
        assert_eq!(next(&nodes, &[grant("a", "a")], &of(2), None), ["c"]);
        nodes[2].needed = None;
        assert_eq!(next(&nodes, &[grant("a", "a")], &of(2), None), [""; 0]);
        assert_eq!(
            next(&nodes, &[grant("gone", "x")], &of(2), None),
            [""; 0],
            "until it is taken back"
        );
        assert_eq!(
            next(&nodes, &[grant("a", "former")], &of(3), None),
            ["b"],
            "a's is taken back first"
        );
    }

    #[test]
    fn each_place_has_its_limit() {
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
        nodes[3].ready = false;
        assert_eq!(next(&nodes, &[], &spec, None), ["a", "d"]);
    }

    #[test]
    fn a_higher_rank_waits_for_the_lower_ones() {
        let mut nodes = ["a", "b", "c"].map(node);
        nodes[0]
            .labels
            .insert("node-role.kubernetes.io/control-plane".to_owned(), String::new());
        assert_eq!(next(&nodes, &[], &of(3), Some("b")), ["c"]);
        assert_eq!(
            next(&nodes, &[grant("c", "c")], &of(3), Some("b")),
            [""; 0],
            "c is on its way"
        );
        nodes[2].needed = None;
        assert_eq!(next(&nodes, &[], &of(3), Some("b")), ["a"]);
        nodes[0].needed = None;
        assert_eq!(next(&nodes, &[], &of(3), Some("b")), ["b"], "alone it goes too");
    }

    #[test]
    fn a_node_that_was_given_back_rests_first() {
        let state = |deadline| State {
            phase: Phase::Aborted,
            policy: "default".to_owned(),
            epoch: 1,
            attempt: 1,
            since: Timestamp::UNIX_EPOCH,
            deadline,
            boot_id_before: None,
            good_by: None,
            cordoned: false,
            reason: None,
            more: [].into(),
        };
        let mut nodes = ["a", "b"].map(node);
        nodes[0].state = Some(Ok(state(Some(Timestamp::MAX))));
        assert_eq!(next(&nodes, &[], &of(2), None), ["b"]);
        nodes[0].state = Some(Ok(state(Some(Timestamp::UNIX_EPOCH))));
        assert_eq!(next(&nodes, &[], &of(2), None), ["a", "b"]);
    }

    #[test]
    fn a_slot_is_for_one_reboot() {
        let (asks, mut on_its_way) = (node("a"), node("a"));
        let with = |node: &NodeView, boot_id: &str, cordoned| NodeView {
            boot_id: boot_id.to_owned(),
            cordoned,
            ..node.clone()
        };
        on_its_way.state = Some(Err(Unreadable {
            name: "state".to_owned(),
            why: "newer".to_owned(),
        }));
        for (case, given_in, node, used) in [
            ("it has not begun", "one", with(&asks, "one", false), false),
            (
                "it has ended, and is asked again",
                "one",
                with(&asks, "two", false),
                true,
            ),
            ("it is on its way", "one", with(&on_its_way, "two", false), false),
            (
                "it failed, and somebody has looked",
                "one",
                with(&asks, "two", true),
                false,
            ),
            ("its kubelet says nothing", "one", with(&asks, "", false), false),
            (
                "nobody knows when it was given",
                "",
                with(&asks, "two", false),
                false,
            ),
        ] {
            let mut grant = grant("a", "a");
            grant.boot_id = given_in.to_owned();
            assert_eq!(is_spent(&grant, Some(&node)), used, "{case}");
            assert_eq!(slot(&[grant], &node).is_none(), used, "{case}");
        }
    }

    #[test]
    fn a_slot_is_over_when_its_very_node_is_gone_or_at_rest() {
        let asks = node("a");
        let rests = NodeView {
            needed: None,
            ..node("a")
        };
        let cordoned = NodeView {
            cordoned: true,
            ..rests.clone()
        };
        for (case, uid, node, spent) in [
            ("it is gone", "a", None, true),
            ("another one has its name", "former", Some(&asks), true),
            ("it has not begun", "a", Some(&asks), false),
            ("it has ended", "a", Some(&rests), true),
            ("it is still cordoned", "a", Some(&cordoned), false),
        ] {
            assert_eq!(is_spent(&grant("a", uid), node), spent, "{case}");
        }
        assert!(slot(&[grant("a", "a")], &asks).is_some());
        assert!(slot(&[grant("a", "former")], &asks).is_none(), "it is another's");
    }
}

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
        let busy = self.nodes.values().copied().filter(on_the_way);
        self.pick(self.candidates(), self.unavailable(), busy.collect())
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
            let picked = self.pick(waiting.clone(), unready.clone(), Vec::new())?;
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
        busy: Vec<&'a NodeView>,
    ) -> Result<Vec<&'a NodeView>, InvalidLimit> {
        let max = self.max()?;
        let rank = |node: &NodeView| Rank::of(node, &self.spec.order, self.own);
        let waiting = candidates.iter().chain(&busy).map(|node| rank(node));
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

/// The node's slot in a ledger: that of this very node, not of one that had its name.
pub fn slot<'a>(granted: &'a [Grant], node: &NodeView) -> Option<&'a Grant> {
    granted
        .iter()
        .find(|grant| grant.node == node.name && grant.uid == node.uid)
}

/// Whether a slot is over, given the node that has its name, if there is one.
pub fn is_spent(grant: &Grant, node: Option<&NodeView>) -> bool {
    let Some(node) = node.filter(|node| node.uid == grant.uid) else {
        return true;
    };
    let let_go = node
        .state()
        .is_some_and(|state| state.phase == Phase::Aborted && state.epoch == grant.epoch);
    node.is_idle() || let_go
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
            Ok((total * usize::from(percent) / 100).max(1))
        }
    }
}

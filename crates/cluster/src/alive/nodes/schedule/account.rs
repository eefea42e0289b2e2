//! The scheduler's books: what every node has, what is taken, and who waits.
//!
//! ```text
//!   Node changes ──► facts ┐
//!                          ├─ Room (one per node) ◄── choose: filter, score, pick
//!   Pod changes ──► shares ┘
//!        └─ waiting: pods that fitted nowhere, and what they asked for
//! ```
//!
//! It is kept by what changed, never made from a list of all pods: a decision costs a few comparisons per node.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Node, Taint};
use windlass_runtime::ObjectKey;

use super::{
    demand::{Amounts, Demand, HostPort, Share},
    place::{matches, named, repels, tolerated},
    verdict::{Reason, Verdict},
};
use crate::alive::nodes::amount::units;

/// How finely nodes are compared: so many points for one that is empty.
const POINTS: i64 = 10_000;

#[derive(Default)]
pub(super) struct Account {
    rooms: BTreeMap<Arc<str>, Room>,
    /// How many of the rooms have a node.
    nodes: usize,
    /// Where every pod is that takes room, or is about to be.
    placed: HashMap<ObjectKey, Placed>,
    waiting: BTreeMap<ObjectKey, Arc<Demand>>,
}

struct Placed {
    uid: String,
    node: Arc<str>,
    share: Share,
}

/// What a node has and what is taken. Without facts there is no such node (yet), but pods that name it.
#[derive(Default)]
struct Room {
    facts: Option<Facts>,
    used: Amounts,
    weight: (i64, i64),
    pods: i64,
    ports: Vec<HostPort>,
}

struct Facts {
    labels: BTreeMap<String, String>,
    /// Those that keep pods away.
    repelling: Vec<Taint>,
    /// Those that count against the node.
    discouraging: Vec<Taint>,
    unschedulable: bool,
    allocatable: Amounts,
    most_pods: i64,
}

impl Account {
    pub(super) fn node_is(&mut self, name: &str, node: &Node) {
        let room = self.rooms.entry(name.into()).or_default();
        self.nodes += usize::from(room.facts.is_none());
        room.facts = Some(Facts::of(node));
    }

    pub(super) fn node_is_gone(&mut self, name: &str) {
        let Some(room) = self.rooms.get_mut(name) else {
            return;
        };
        self.nodes -= usize::from(room.facts.take().is_some());
        if room.pods == 0 {
            self.rooms.remove(name);
        }
    }

    /// Whether a pod that asks for nothing special could be there.
    pub(super) fn is_open(&self, name: &str) -> bool {
        let facts = self.rooms.get(name).and_then(|room| room.facts.as_ref());
        facts.is_some_and(|facts| !facts.unschedulable && facts.repelling.is_empty())
    }

    /// The pod takes room on this node; saying it again changes nothing.
    pub(super) fn is_on(&mut self, key: &ObjectKey, uid: &str, node: &str, share: Share) {
        self.waiting.remove(key);
        match self.placed.get(key) {
            Some(placed) if placed.uid == uid && &*placed.node == node && placed.share == share => return,
            Some(_) => drop(self.is_gone(key)),
            None => {}
        }
        let name = match self.rooms.get_key_value(node) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(node),
        };
        self.rooms.entry(Arc::clone(&name)).or_default().take(&share);
        let placed = Placed {
            uid: uid.to_owned(),
            node: name,
            share,
        };
        self.placed.insert(key.clone(), placed);
    }

    /// Whether this very pod was given a node already.
    pub(super) fn knows(&self, key: &ObjectKey, uid: &str) -> bool {
        self.placed.get(key).is_some_and(|placed| placed.uid == uid)
    }

    /// The pod takes no room any more. The answer is the node that has more now.
    pub(super) fn is_gone(&mut self, key: &ObjectKey) -> Option<Arc<str>> {
        self.waiting.remove(key);
        let Placed { node, share, .. } = self.placed.remove(key)?;
        let room = self.rooms.get_mut(&node)?;
        room.give_back(&share);
        if room.pods == 0 && room.facts.is_none() {
            self.rooms.remove(&node);
        }
        Some(node)
    }

    pub(super) fn waits(&mut self, key: &ObjectKey, demand: Demand) {
        self.waiting.insert(key.clone(), Arc::new(demand));
    }

    /// Who waits and could be on this node as it is now.
    pub(super) fn wait_for(&self, node: &str) -> Vec<ObjectKey> {
        let Some(room) = self.rooms.get(node) else {
            return Vec::new();
        };
        let fitting = self.waiting.iter().filter(|(_, demand)| room.fits(node, demand));
        fitting.map(|(key, _)| key.clone()).collect()
    }

    /// The node on which the pod would be best, or why there is none.
    pub(super) fn choose(&self, demand: &Demand) -> Result<Arc<str>, Verdict> {
        let names = demand.required.as_deref().and_then(named);
        let candidates: Vec<_> = match &names {
            Some(names) => {
                let known = names.iter().filter_map(|name| self.rooms.get_key_value(*name));
                Candidate::all(known, demand)
            }
            None => Candidate::all(self.rooms.iter(), demand),
        };
        Candidate::best(&candidates).ok_or_else(|| self.explain(demand, names.as_deref()))
    }

    fn explain(&self, demand: &Demand, names: Option<&[&str]>) -> Verdict {
        let mut verdict = Verdict::new(self.nodes, demand.never_preempts);
        for (name, room) in &self.rooms {
            if names.is_some_and(|names| !names.contains(&&**name)) {
                continue;
            }
            if let Some(facts) = &room.facts {
                verdict.add(&room.objections(name, facts, demand));
            }
        }
        verdict
    }
}

/// A node on which the pod could be.
struct Candidate<'a> {
    name: &'a Arc<str>,
    pods: i64,
    /// How much would be left.
    free: i64,
    /// How much the pod would like it.
    liked: i64,
    /// How many taints speak against it.
    discouraged: i64,
}

impl<'a> Candidate<'a> {
    fn all(rooms: impl Iterator<Item = (&'a Arc<str>, &'a Room)>, demand: &Demand) -> Vec<Self> {
        let fitting = rooms.filter(|(name, room)| room.fits(name, demand));
        fitting
            .filter_map(|(name, room)| Self::of(name, room, demand))
            .collect()
    }

    fn of(name: &'a Arc<str>, room: &Room, demand: &Demand) -> Option<Self> {
        let facts = room.facts.as_ref()?;
        let left = |all: i64, used: i64, more: i64| match all {
            0 => 0,
            all => (all - used - more).max(0).saturating_mul(POINTS) / all,
        };
        let (cpu, memory) = demand.share.weight;
        let liked = demand
            .preferred
            .iter()
            .filter(|term| matches(&term.preference, name, &facts.labels))
            .map(|term| i64::from(term.weight))
            .sum();
        let against = facts.discouraging.iter();
        Some(Self {
            name,
            pods: room.pods,
            free: i64::midpoint(
                left(facts.allocatable.cpu, room.weight.0, cpu),
                left(facts.allocatable.memory, room.weight.1, memory),
            ),
            liked,
            discouraged: against
                .filter(|taint| !tolerated(&demand.tolerations, taint))
                .count()
                .try_into()
                .unwrap_or(i64::MAX),
        })
    }

    /// The one with the most points; of equal ones that with the fewest pods, then the first by name. The weights of the
    /// three figures are the real scheduler's.
    fn best(candidates: &[Self]) -> Option<Arc<str>> {
        let most = |figure: fn(&Self) -> i64| candidates.iter().map(figure).max().filter(|most| *most > 0);
        let (most_liked, most_discouraged) = (most(|c| c.liked), most(|c| c.discouraged));
        let points = |candidate: &Self| {
            let liked = most_liked.map_or(0, |most| candidate.liked.max(0) * POINTS / most);
            let discouraged = most_discouraged.map_or(0, |most| candidate.discouraged * POINTS / most);
            candidate.free + 2 * liked - 3 * discouraged
        };
        let best = candidates.iter().max_by_key(|candidate| {
            (
                points(candidate),
                Reverse(candidate.pods),
                Reverse(candidate.name),
            )
        });
        best.map(|best| Arc::clone(best.name))
    }
}

impl Room {
    fn take(&mut self, share: &Share) {
        self.used.add(&share.requests);
        self.weight.0 += share.weight.0;
        self.weight.1 += share.weight.1;
        self.pods += 1;
        self.ports.extend(share.ports.iter().cloned());
    }

    fn give_back(&mut self, share: &Share) {
        self.used.subtract(&share.requests);
        self.weight.0 -= share.weight.0;
        self.weight.1 -= share.weight.1;
        self.pods -= 1;
        for port in &share.ports {
            if let Some(at) = self.ports.iter().position(|known| known == port) {
                self.ports.swap_remove(at);
            }
        }
    }

    fn fits(&self, name: &str, demand: &Demand) -> bool {
        self.facts.as_ref().is_some_and(|facts| {
            facts.objection(name, demand).is_none()
                && self.pods < facts.most_pods
                && !self.clashes(demand)
                && self.lacking(facts, demand).next().is_none()
        })
    }

    /// Why the pod cannot be here: the first thing that is wrong, or all that is short. Without one it can.
    fn objections(&self, name: &str, facts: &Facts, demand: &Demand) -> Vec<Reason> {
        if let Some(objection) = facts.objection(name, demand) {
            return vec![objection];
        }
        if self.clashes(demand) {
            return vec![Reason::Ports];
        }
        let crowded = (self.pods >= facts.most_pods).then_some(Reason::TooManyPods);
        crowded.into_iter().chain(self.lacking(facts, demand)).collect()
    }

    fn clashes(&self, demand: &Demand) -> bool {
        demand
            .share
            .ports
            .iter()
            .any(|port| self.ports.iter().any(|known| known.clashes(port)))
    }

    fn lacking<'a>(&'a self, facts: &'a Facts, demand: &'a Demand) -> impl Iterator<Item = Reason> + 'a {
        let (has, used, wants) = (&facts.allocatable, &self.used, &demand.share.requests);
        let named = [
            ("cpu", has.cpu, used.cpu, wants.cpu),
            ("memory", has.memory, used.memory, wants.memory),
            (
                "ephemeral-storage",
                has.ephemeral_storage,
                used.ephemeral_storage,
                wants.ephemeral_storage,
            ),
        ];
        let of = |amounts: &Amounts, name: &str| amounts.others.get(name).copied().unwrap_or(0);
        let others = wants
            .others
            .iter()
            .map(move |(name, wanted)| (name.as_str(), of(has, name), of(used, name), *wanted));
        let short = |(name, has, used, wanted): (&str, i64, i64, i64)| {
            (wanted > 0 && wanted > has - used).then(|| Reason::Insufficient {
                resource: name.to_owned(),
                never: wanted > has,
            })
        };
        named.into_iter().chain(others).filter_map(short)
    }
}

impl Facts {
    fn of(node: &Node) -> Self {
        let spec = node.spec.as_ref();
        let taints = || spec.and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
        let allocatable = node
            .status
            .as_ref()
            .and_then(|status| status.allocatable.as_ref());
        Self {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            repelling: taints().filter(|taint| repels(taint)).cloned().collect(),
            discouraging: taints()
                .filter(|taint| taint.effect == "PreferNoSchedule")
                .cloned()
                .collect(),
            unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
            allocatable: Amounts::of(allocatable),
            most_pods: allocatable.and_then(|all| all.get("pods")).map_or(0, units),
        }
    }

    /// What is wrong with the node itself, in the order in which the real scheduler looks.
    fn objection(&self, name: &str, demand: &Demand) -> Option<Reason> {
        let cordoned = || Taint {
            key: "node.kubernetes.io/unschedulable".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        if self.unschedulable && !tolerated(&demand.tolerations, &cordoned()) {
            return Some(Reason::Unschedulable);
        }
        if self
            .repelling
            .iter()
            .any(|taint| !tolerated(&demand.tolerations, taint))
        {
            return Some(Reason::Taint);
        }
        let has_label = |(key, value): (&String, &String)| self.labels.get(key) == Some(value);
        let selected = demand.selector.iter().all(has_label);
        let required = demand.required.as_ref();
        let affine = required.is_none_or(|terms| terms.iter().any(|term| matches(term, name, &self.labels)));
        (!selected || !affine).then_some(Reason::Affinity)
    }
}

#[cfg(test)]
mod tests;

//! The scheduler's cache: the capacity and usage of every node, and the unschedulable pods.
//!
//! ```text
//!   Node changes ──► NodeDetails ┐
//!                                ├─ NodeInfo (one per node) ◄── choose: filter, score, pick
//!   Pod changes ──► PodResources ┘
//!        └─ unschedulable: pods that fit no node, with their requirements
//! ```
//!
//! It is updated incrementally, never rebuilt from a list of all pods: a decision costs a few comparisons per node.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Node, Taint};
use windlass_runtime::ObjectKey;

use super::{
    fit_error::{FitError, Reason},
    node_matching::{node_names, repels, term_matches, tolerated},
    requirements::{HostPort, PodRequirements, PodResources, Resources, amount},
};

/// The score of an empty node.
const MAX_SCORE: i64 = 10_000;

#[derive(Default)]
pub(super) struct SchedulerCache {
    node_infos: BTreeMap<Arc<str>, NodeInfo>,
    /// How many entries have an existing Node.
    nodes: usize,
    /// The node of every pod that is bound, or about to be.
    assigned: HashMap<ObjectKey, AssignedPod>,
    unschedulable: BTreeMap<ObjectKey, Arc<PodRequirements>>,
}

struct AssignedPod {
    uid: String,
    node: Arc<str>,
    resources: PodResources,
}

/// Capacity and usage of a node. Without details, the Node does not exist (yet), but pods refer to it.
#[derive(Default)]
struct NodeInfo {
    details: Option<NodeDetails>,
    used: Resources,
    non_zero_requests: (i64, i64),
    pods: i64,
    ports: Vec<HostPort>,
}

struct NodeDetails {
    labels: BTreeMap<String, String>,
    /// `NoSchedule` and `NoExecute` taints.
    hard_taints: Vec<Taint>,
    /// `PreferNoSchedule` taints.
    soft_taints: Vec<Taint>,
    unschedulable: bool,
    allocatable: Resources,
    max_pods: i64,
}

impl SchedulerCache {
    pub(super) fn update_node(&mut self, name: &str, node: &Node) {
        let info = self.node_infos.entry(name.into()).or_default();
        self.nodes += usize::from(info.details.is_none());
        info.details = Some(NodeDetails::of(node));
    }

    pub(super) fn remove_node(&mut self, name: &str) {
        let Some(info) = self.node_infos.get_mut(name) else {
            return;
        };
        self.nodes -= usize::from(info.details.take().is_some());
        if info.pods == 0 {
            self.node_infos.remove(name);
        }
    }

    /// Whether a pod without requirements and tolerations could run on the node.
    pub(super) fn is_schedulable(&self, name: &str) -> bool {
        let details = self.node_infos.get(name).and_then(|info| info.details.as_ref());
        details.is_some_and(|details| !details.unschedulable && details.hard_taints.is_empty())
    }

    /// Records that the pod is on this node. Idempotent.
    pub(super) fn assign(&mut self, key: &ObjectKey, uid: &str, node: &str, resources: PodResources) {
        self.unschedulable.remove(key);
        match self.assigned.get(key) {
            Some(placed) if placed.uid == uid && &*placed.node == node && placed.resources == resources => {
                return;
            }
            Some(_) => drop(self.remove_pod(key)),
            None => {}
        }
        let name = match self.node_infos.get_key_value(node) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(node),
        };
        self.node_infos
            .entry(Arc::clone(&name))
            .or_default()
            .add_pod(&resources);
        let placed = AssignedPod {
            uid: uid.to_owned(),
            node: name,
            resources,
        };
        self.assigned.insert(key.clone(), placed);
    }

    /// Whether a pod with this UID was assigned a node.
    pub(super) fn is_assigned(&self, key: &ObjectKey, uid: &str) -> bool {
        self.assigned.get(key).is_some_and(|placed| placed.uid == uid)
    }

    /// Removes the pod. Returns the node on which it freed resources.
    pub(super) fn remove_pod(&mut self, key: &ObjectKey) -> Option<Arc<str>> {
        self.unschedulable.remove(key);
        let AssignedPod { node, resources, .. } = self.assigned.remove(key)?;
        let info = self.node_infos.get_mut(&node)?;
        info.remove_pod(&resources);
        if info.pods == 0 && info.details.is_none() {
            self.node_infos.remove(&node);
        }
        Some(node)
    }

    pub(super) fn add_unschedulable(&mut self, key: &ObjectKey, requirements: PodRequirements) {
        self.unschedulable.insert(key.clone(), Arc::new(requirements));
    }

    /// Returns the unschedulable pods that would fit this node now.
    pub(super) fn pods_that_fit(&self, node: &str) -> Vec<ObjectKey> {
        let Some(info) = self.node_infos.get(node) else {
            return Vec::new();
        };
        let fitting = self
            .unschedulable
            .iter()
            .filter(|(_, requirements)| info.fits(node, requirements));
        fitting.map(|(key, _)| key.clone()).collect()
    }

    /// Returns the best node for the pod, or why no node fits.
    pub(super) fn choose(&self, requirements: &PodRequirements) -> Result<Arc<str>, FitError> {
        let names = requirements.required.as_deref().and_then(node_names);
        let candidates: Vec<_> = match &names {
            Some(names) => {
                let known = names
                    .iter()
                    .filter_map(|name| self.node_infos.get_key_value(*name));
                Candidate::all(known, requirements)
            }
            None => Candidate::all(self.node_infos.iter(), requirements),
        };
        Candidate::best(&candidates).ok_or_else(|| self.explain(requirements, names.as_deref()))
    }

    /// How many nodes exist.
    pub(super) fn node_count(&self) -> usize {
        self.nodes
    }

    fn explain(&self, requirements: &PodRequirements, names: Option<&[&str]>) -> FitError {
        let mut fit_error = FitError::new(self.nodes, requirements.never_preempts);
        for (name, info) in &self.node_infos {
            if names.is_some_and(|names| !names.contains(&&**name)) {
                continue;
            }
            if let Some(details) = &info.details {
                fit_error.add(&info.failed_filters(name, details, requirements));
            }
        }
        fit_error
    }
}

/// A node that the pod fits, with the inputs of its score.
struct Candidate<'a> {
    name: &'a Arc<str>,
    pods: i64,
    /// The fraction of cpu and memory that would be left.
    free: i64,
    /// The total weight of the matching preferred affinity terms.
    preference: i64,
    /// The number of untolerated `PreferNoSchedule` taints.
    untolerated: i64,
}

impl<'a> Candidate<'a> {
    fn all(
        node_infos: impl Iterator<Item = (&'a Arc<str>, &'a NodeInfo)>,
        requirements: &PodRequirements,
    ) -> Vec<Self> {
        let fitting = node_infos.filter(|(name, info)| info.fits(name, requirements));
        fitting
            .filter_map(|(name, info)| Self::of(name, info, requirements))
            .collect()
    }

    fn of(name: &'a Arc<str>, info: &NodeInfo, requirements: &PodRequirements) -> Option<Self> {
        let details = info.details.as_ref()?;
        let left = |all: i64, used: i64, more: i64| match all {
            0 => 0,
            all => (all - used - more).max(0).saturating_mul(MAX_SCORE) / all,
        };
        let (cpu, memory) = requirements.resources.non_zero_requests;
        let preference = requirements
            .preferred
            .iter()
            .filter(|term| term_matches(&term.preference, name, &details.labels))
            .map(|term| i64::from(term.weight))
            .sum();
        let against = details.soft_taints.iter();
        Some(Self {
            name,
            pods: info.pods,
            free: i64::midpoint(
                left(details.allocatable.cpu, info.non_zero_requests.0, cpu),
                left(details.allocatable.memory, info.non_zero_requests.1, memory),
            ),
            preference,
            untolerated: against
                .filter(|taint| !tolerated(&requirements.tolerations, taint))
                .count()
                .try_into()
                .unwrap_or(i64::MAX),
        })
    }

    /// Returns the candidate with the highest score. Ties go to the fewest pods, then to the first name. The weights are
    /// kube-scheduler's.
    fn best(candidates: &[Self]) -> Option<Arc<str>> {
        let most = |figure: fn(&Self) -> i64| candidates.iter().map(figure).max().filter(|most| *most > 0);
        let (most_liked, most_discouraged) = (most(|c| c.preference), most(|c| c.untolerated));
        let points = |candidate: &Self| {
            let liked = most_liked.map_or(0, |most| candidate.preference.max(0) * MAX_SCORE / most);
            let discouraged = most_discouraged.map_or(0, |most| candidate.untolerated * MAX_SCORE / most);
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

impl NodeInfo {
    fn add_pod(&mut self, resources: &PodResources) {
        self.used.add(&resources.requests);
        self.non_zero_requests.0 += resources.non_zero_requests.0;
        self.non_zero_requests.1 += resources.non_zero_requests.1;
        self.pods += 1;
        self.ports.extend(resources.ports.iter().cloned());
    }

    fn remove_pod(&mut self, resources: &PodResources) {
        self.used.subtract(&resources.requests);
        self.non_zero_requests.0 -= resources.non_zero_requests.0;
        self.non_zero_requests.1 -= resources.non_zero_requests.1;
        self.pods -= 1;
        for port in &resources.ports {
            if let Some(at) = self.ports.iter().position(|known| known == port) {
                self.ports.swap_remove(at);
            }
        }
    }

    fn fits(&self, name: &str, requirements: &PodRequirements) -> bool {
        self.details.as_ref().is_some_and(|details| {
            details.failed_filter(name, requirements).is_none()
                && self.pods < details.max_pods
                && !self.has_port_conflict(requirements)
                && self.insufficient(details, requirements).next().is_none()
        })
    }

    /// Returns why the pod does not fit: the first failed filter, or all insufficient resources. Empty if it fits.
    fn failed_filters(
        &self,
        name: &str,
        details: &NodeDetails,
        requirements: &PodRequirements,
    ) -> Vec<Reason> {
        if let Some(objection) = details.failed_filter(name, requirements) {
            return vec![objection];
        }
        if self.has_port_conflict(requirements) {
            return vec![Reason::Ports];
        }
        let crowded = (self.pods >= details.max_pods).then_some(Reason::TooManyPods);
        crowded
            .into_iter()
            .chain(self.insufficient(details, requirements))
            .collect()
    }

    fn has_port_conflict(&self, requirements: &PodRequirements) -> bool {
        requirements
            .resources
            .ports
            .iter()
            .any(|port| self.ports.iter().any(|known| known.conflicts_with(port)))
    }

    fn insufficient<'a>(
        &'a self,
        details: &'a NodeDetails,
        requirements: &'a PodRequirements,
    ) -> impl Iterator<Item = Reason> + 'a {
        let (has, used, wants) = (&details.allocatable, &self.used, &requirements.resources.requests);
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
        let of = |amounts: &Resources, name: &str| amounts.others.get(name).copied().unwrap_or(0);
        let others = wants
            .others
            .iter()
            .map(move |(name, wanted)| (name.as_str(), of(has, name), of(used, name), *wanted));
        let short = |(name, has, used, wanted): (&str, i64, i64, i64)| {
            (wanted > 0 && wanted > has - used).then(|| Reason::Insufficient {
                resource: name.to_owned(),
                exceeds_node: wanted > has,
            })
        };
        named.into_iter().chain(others).filter_map(short)
    }
}

impl NodeDetails {
    fn of(node: &Node) -> Self {
        let spec = node.spec.as_ref();
        let taints = || spec.and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
        let allocatable = node
            .status
            .as_ref()
            .and_then(|status| status.allocatable.as_ref());
        Self {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            hard_taints: taints().filter(|taint| repels(taint)).cloned().collect(),
            soft_taints: taints()
                .filter(|taint| taint.effect == "PreferNoSchedule")
                .cloned()
                .collect(),
            unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
            allocatable: Resources::of(allocatable),
            max_pods: allocatable
                .and_then(|all| all.get("pods"))
                .map_or(0, |pods| amount(pods).value()),
        }
    }

    /// Returns the first failed filter that does not depend on usage, in kube-scheduler's order.
    fn failed_filter(&self, name: &str, requirements: &PodRequirements) -> Option<Reason> {
        let cordoned = || Taint {
            key: "node.kubernetes.io/unschedulable".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        if self.unschedulable && !tolerated(&requirements.tolerations, &cordoned()) {
            return Some(Reason::Unschedulable);
        }
        if self
            .hard_taints
            .iter()
            .any(|taint| !tolerated(&requirements.tolerations, taint))
        {
            return Some(Reason::Taint);
        }
        let has_label = |(key, value): (&String, &String)| self.labels.get(key) == Some(value);
        let selected = requirements.selector.iter().all(has_label);
        let required = requirements.required.as_ref();
        let affine =
            required.is_none_or(|terms| terms.iter().any(|term| term_matches(term, name, &self.labels)));
        (!selected || !affine).then_some(Reason::Affinity)
    }
}

#[cfg(test)]
mod tests;

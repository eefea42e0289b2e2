//! Computes which pods of a DaemonSet to create and delete, for placement and for rolling updates. Pure functions.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, RollingUpdateDaemonSet},
        core::v1::{Node, Pod},
    },
    jiff::Timestamp,
};

use super::{
    placement::{Placement, placement},
    template,
};
use crate::control_plane::workloads::{
    deployment::proportions::{RoundUp, resolve},
    name, pod,
};

/// The pods to create and delete.
#[derive(Default)]
pub(super) struct PodChanges {
    /// Names of the nodes that get a pod.
    pub(super) create: Vec<String>,
    pub(super) delete: Vec<Arc<Pod>>,
    /// Finished pods to replace, with their nodes.
    pub(super) finished: Vec<(String, Arc<Pod>)>,
}

/// The state of a DaemonSet in one reconcile.
pub(super) struct DaemonSetState<'a> {
    pub(super) set: &'a DaemonSet,
    pub(super) hash: &'a str,
    pub(super) now: Timestamp,
    /// Every node with its placement.
    pub(super) nodes: Vec<(Arc<Node>, Placement)>,
    /// The pods by node, without finished pods that are being deleted.
    pub(super) pods: BTreeMap<String, Vec<Arc<Pod>>>,
}

/// The new and the old pod of a node.
type Pair<'a> = (Option<&'a Arc<Pod>>, Option<&'a Arc<Pod>>);

impl<'a> DaemonSetState<'a> {
    pub(super) fn new(
        set: &'a DaemonSet,
        hash: &'a str,
        now: Timestamp,
        nodes: Vec<Arc<Node>>,
        pods: &[Arc<Pod>],
    ) -> Self {
        let mut by_node: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
        for one in pods {
            let counts = !(pod::is_finished(one) && is_deleting(one));
            if let Some(node) = template::node_of(one).filter(|_| counts) {
                by_node.entry(node.to_owned()).or_default().push(Arc::clone(one));
            }
        }
        for pods in by_node.values_mut() {
            pods.sort_by_cached_key(|pod| sort_key(pod));
        }
        let nodes = nodes.into_iter().map(|node| {
            let place = placement(set, &node);
            (node, place)
        });
        Self {
            set,
            hash,
            now,
            nodes: nodes.collect(),
            pods: by_node,
        }
    }

    pub(super) fn pods_on(&self, node: &Node) -> &[Arc<Pod>] {
        self.pods.get(name(node)).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn is_available(&self, one: &Pod) -> bool {
        let wait = self.set.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
        pod::is_available(one, wait.unwrap_or_default(), self.now)
    }

    pub(super) fn is_updated(&self, one: &Pod) -> bool {
        template::is_updated(self.set, self.hash, one)
    }

    fn desired_count(&self) -> i32 {
        let wanted = self.nodes.iter().filter(|(_, place)| *place == Placement::Run);
        i32::try_from(wanted.count()).unwrap_or(i32::MAX)
    }

    fn rolling(&self) -> Option<RollingUpdateDaemonSet> {
        let strategy = self.set.spec.as_ref()?.update_strategy.as_ref()?;
        let is_rolling = strategy.type_.as_deref() == Some("RollingUpdate");
        is_rolling.then(|| strategy.rolling_update.clone().unwrap_or_default())
    }

    /// Returns `maxSurge` and `maxUnavailable` as node counts. `None` without rolling updates.
    fn limits(&self) -> Option<(i32, i32)> {
        let rolling = self.rolling()?;
        let wanted = self.desired_count();
        let surge = resolve(rolling.max_surge.as_ref(), wanted, RoundUp::Yes);
        let unavailable = resolve(rolling.max_unavailable.as_ref(), wanted, RoundUp::Yes);
        let stuck = wanted > 0 && surge == 0 && unavailable == 0;
        Some((surge, if stuck { 1 } else { unavailable }))
    }

    /// Computes the work that gives each eligible node one pod, whatever its template.
    pub(super) fn placement(&self) -> PodChanges {
        let mut changes = PodChanges::default();
        let surges = self.limits().is_some_and(|(surge, _)| surge > 0);
        for (node, place) in &self.nodes {
            let pods = self.pods_on(node);
            match place {
                Placement::Run if pods.is_empty() => changes.create.push(name(&**node).to_owned()),
                Placement::Run | Placement::KeepRunning => {
                    let staying = pods.iter().filter(|pod| !is_deleting(pod));
                    let (ended, running): (Vec<_>, Vec<_>) =
                        staying.cloned().partition(|one| pod::is_finished(one));
                    changes
                        .finished
                        .extend(ended.into_iter().map(|pod| (name(&**node).to_owned(), pod)));
                    if !surges {
                        changes.delete.extend(running.into_iter().skip(1));
                    } else if running.is_empty() {
                        changes
                            .create
                            .extend((*place == Placement::Run).then(|| name(&**node).to_owned()));
                    } else {
                        changes.delete.extend(self.surplus(running));
                    }
                }
                Placement::DoNotRun => changes
                    .delete
                    .extend(pods.iter().filter(|pod| !is_deleting(pod)).cloned()),
            }
        }
        let is_node = |known: &str| self.nodes.iter().any(|(node, _)| name(&**node) == known);
        let homeless = self
            .pods
            .iter()
            .filter(|(node, _)| !is_node(node))
            .flat_map(|(_, pods)| pods);
        let unassigned = |pod: &&Arc<Pod>| pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none());
        changes.delete.extend(homeless.filter(unassigned).cloned());
        changes
    }

    /// Returns the surplus pods of one node: all but one old and one new pod, and the old one if it is not ready or the new
    /// one is available.
    fn surplus(&self, running: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
        let (mut new, mut old): (Vec<_>, Vec<_>) = running.into_iter().partition(|pod| self.is_updated(pod));
        let mut surplus = new.split_off(new.len().min(1));
        surplus.extend(old.split_off(old.len().min(1)));
        if let (Some(new), Some(old)) = (new.first(), old.pop())
            && (!pod::is_ready(&old) || self.is_available(new))
        {
            surplus.push(old);
        }
        surplus
    }

    /// Computes the next step of the rolling update, within the limits.
    pub(super) fn rollout(&self) -> PodChanges {
        match self.limits() {
            None => PodChanges::default(),
            Some((0, unavailable)) => self.delete_old_first(unavailable),
            Some((surge, _)) => self.create_new_first(surge),
        }
    }

    /// Returns the new and the old pod of each node that has pods or should have one. `None` if it has too many.
    fn pairs(&self) -> Vec<(&str, Option<Pair<'_>>)> {
        let empty = self
            .nodes
            .iter()
            .filter(|(node, place)| *place == Placement::Run && self.pods_on(node).is_empty());
        let mut pairs: Vec<_> = empty
            .map(|(node, _)| (name(&**node), Some((None, None))))
            .collect();
        for (node, pods) in &self.pods {
            let staying = pods.iter().filter(|pod| !is_deleting(pod));
            let (new, old): (Vec<_>, Vec<_>) = staying.partition(|pod| self.is_updated(pod));
            let pair = match (&new[..], &old[..]) {
                ([], []) => Some((None, None)),
                ([new], []) => Some((Some(*new), None)),
                ([], [old]) => Some((None, Some(*old))),
                ([new], [old]) => Some((Some(*new), Some(*old))),
                _ => None,
            };
            pairs.push((node, pair));
        }
        pairs
    }

    /// Deletes old pods first; placement then creates the new ones.
    fn delete_old_first(&self, limit: i32) -> PodChanges {
        let mut unavailable = 0;
        let (mut delete, mut candidates) = (Vec::new(), Vec::new());
        for (_, pair) in self.pairs() {
            match pair {
                Some((Some(new), None)) => unavailable += i32::from(!self.is_available(new)),
                Some((None, Some(old))) if self.is_available(old) => candidates.push(Arc::clone(old)),
                Some((None, Some(old))) => {
                    delete.push(Arc::clone(old));
                    unavailable += 1;
                }
                _ => unavailable += 1,
            }
        }
        let room = usize::try_from(limit - unavailable).unwrap_or_default();
        delete.extend(candidates.into_iter().take(room));
        PodChanges {
            delete,
            ..PodChanges::default()
        }
    }

    /// Creates new pods first, and deletes the old ones when the new ones are available.
    fn create_new_first(&self, limit: i32) -> PodChanges {
        let mut changes = PodChanges::default();
        let (mut surging, mut available) = (0, 0);
        let (mut candidates, mut strangers) = (Vec::new(), Vec::new());
        for (node, pair) in self.pairs() {
            let Some((new, old)) = pair else {
                surging += 1;
                continue;
            };
            available += i32::from(old.or(new).is_some_and(|one| self.is_available(one)));
            let Some(old) = old else { continue };
            let wanted = self
                .nodes
                .iter()
                .any(|(known, place)| name(&**known) == node && *place == Placement::Run);
            match new {
                Some(new) if self.is_available(new) => changes.delete.push(Arc::clone(old)),
                Some(_) => surging += 1,
                None => match (wanted, self.is_available(old)) {
                    (true, true) => candidates.push(node.to_owned()),
                    (true, false) => changes.create.push(node.to_owned()),
                    (false, true) => strangers.push(Arc::clone(old)),
                    (false, false) => changes.delete.push(Arc::clone(old)),
                },
            }
        }
        let room = |number: i32| usize::try_from(number).unwrap_or_default();
        changes
            .delete
            .extend(strangers.into_iter().take(room(available - self.desired_count())));
        changes
            .create
            .extend(candidates.into_iter().take(room(limit - surging)));
        changes
    }
}

fn is_deleting(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Sort key: bound pods first, then the oldest.
fn sort_key(pod: &Pod) -> (bool, Option<Timestamp>, String) {
    let unassigned = pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none());
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (unassigned, created, name(pod).to_owned())
}

//! What a DaemonSet's pods need: where one is missing, which are too many, and which make way for the next template. Pure.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, RollingUpdateDaemonSet},
        core::v1::{Node, Pod},
    },
    jiff::Timestamp,
};

use super::{
    place::{Place, place},
    template,
};
use crate::alive::workloads::{
    deployment::fractions::{RoundUp, resolve},
    name, pod,
};

/// What is to be done.
#[derive(Default)]
pub(super) struct Work {
    /// Nodes that get a pod.
    pub(super) create: Vec<String>,
    pub(super) delete: Vec<Arc<Pod>>,
    /// Pods that ended, of those that are deleted, with their nodes.
    pub(super) ended: Vec<(String, Arc<Pod>)>,
}

/// What one pass knows.
pub(super) struct View<'a> {
    pub(super) set: &'a DaemonSet,
    pub(super) hash: &'a str,
    pub(super) now: Timestamp,
    /// Every node, with what it is to the DaemonSet.
    pub(super) nodes: Vec<(Arc<Node>, Place)>,
    /// The pods by the node that they are on or meant for; without those that ended and are going.
    pub(super) pods: BTreeMap<String, Vec<Arc<Pod>>>,
}

/// The new and the old pod of a node.
type Pair<'a> = (Option<&'a Arc<Pod>>, Option<&'a Arc<Pod>>);

impl<'a> View<'a> {
    pub(super) fn new(
        set: &'a DaemonSet,
        hash: &'a str,
        now: Timestamp,
        nodes: Vec<Arc<Node>>,
        pods: &[Arc<Pod>],
    ) -> Self {
        let mut by_node: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
        for one in pods {
            let counts = !(pod::is_over(one) && is_going(one));
            if let Some(node) = template::node_of(one).filter(|_| counts) {
                by_node.entry(node.to_owned()).or_default().push(Arc::clone(one));
            }
        }
        for pods in by_node.values_mut() {
            pods.sort_by_cached_key(|pod| age(pod));
        }
        let nodes = nodes.into_iter().map(|node| {
            let place = place(set, &node);
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

    pub(super) fn on(&self, node: &Node) -> &[Arc<Pod>] {
        self.pods.get(name(node)).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn is_available(&self, one: &Pod) -> bool {
        let wait = self.set.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
        pod::is_available(one, wait.unwrap_or_default(), self.now)
    }

    pub(super) fn is_updated(&self, one: &Pod) -> bool {
        template::is_updated(self.set, self.hash, one)
    }

    fn wanted(&self) -> i32 {
        let wanted = self.nodes.iter().filter(|(_, place)| *place == Place::Wanted);
        i32::try_from(wanted.count()).unwrap_or(i32::MAX)
    }

    fn rolling(&self) -> Option<RollingUpdateDaemonSet> {
        let strategy = self.set.spec.as_ref()?.update_strategy.as_ref()?;
        let is_rolling = strategy.type_.as_deref() == Some("RollingUpdate");
        is_rolling.then(|| strategy.rolling_update.clone().unwrap_or_default())
    }

    /// How many nodes may have two pods, and how many none that is available.
    fn limits(&self) -> Option<(i32, i32)> {
        let rolling = self.rolling()?;
        let wanted = self.wanted();
        let surge = resolve(rolling.max_surge.as_ref(), wanted, RoundUp::Yes);
        let unavailable = resolve(rolling.max_unavailable.as_ref(), wanted, RoundUp::Yes);
        let stuck = wanted > 0 && surge == 0 && unavailable == 0;
        Some((surge, if stuck { 1 } else { unavailable }))
    }

    /// What makes each node have the pod that it should have, of whatever template.
    pub(super) fn placement(&self) -> Work {
        let mut work = Work::default();
        let surges = self.limits().is_some_and(|(surge, _)| surge > 0);
        for (node, place) in &self.nodes {
            let pods = self.on(node);
            match place {
                Place::Wanted if pods.is_empty() => work.create.push(name(&**node).to_owned()),
                Place::Wanted | Place::Tolerated => {
                    let staying = pods.iter().filter(|pod| !is_going(pod));
                    let (ended, running): (Vec<_>, Vec<_>) =
                        staying.cloned().partition(|one| pod::is_over(one));
                    work.ended
                        .extend(ended.into_iter().map(|pod| (name(&**node).to_owned(), pod)));
                    if !surges {
                        work.delete.extend(running.into_iter().skip(1));
                    } else if running.is_empty() {
                        work.create
                            .extend((*place == Place::Wanted).then(|| name(&**node).to_owned()));
                    } else {
                        work.delete.extend(self.replaced(running));
                    }
                }
                Place::Forbidden => work
                    .delete
                    .extend(pods.iter().filter(|pod| !is_going(pod)).cloned()),
            }
        }
        let is_node = |known: &str| self.nodes.iter().any(|(node, _)| name(&**node) == known);
        let homeless = self
            .pods
            .iter()
            .filter(|(node, _)| !is_node(node))
            .flat_map(|(_, pods)| pods);
        let unassigned = |pod: &&Arc<Pod>| pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none());
        work.delete.extend(homeless.filter(unassigned).cloned());
        work
    }

    /// Of pods on one node, those that go: all but one of each template, and the old one if the new one can do its work
    /// or it does not do it itself.
    fn replaced(&self, running: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
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

    /// What brings the next template onto the nodes, as far as the limits allow.
    pub(super) fn rollout(&self) -> Work {
        match self.limits() {
            None => Work::default(),
            Some((0, unavailable)) => self.replace(unavailable),
            Some((surge, _)) => self.surge(surge),
        }
    }

    /// The pods of each node that has some or should have. `None` if there are too many.
    fn pairs(&self) -> Vec<(&str, Option<Pair<'_>>)> {
        let empty = self
            .nodes
            .iter()
            .filter(|(node, place)| *place == Place::Wanted && self.on(node).is_empty());
        let mut pairs: Vec<_> = empty
            .map(|(node, _)| (name(&**node), Some((None, None))))
            .collect();
        for (node, pods) in &self.pods {
            let staying = pods.iter().filter(|pod| !is_going(pod));
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

    /// Old pods go before new ones come.
    fn replace(&self, limit: i32) -> Work {
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
        Work {
            delete,
            ..Work::default()
        }
    }

    /// New pods come before old ones go.
    fn surge(&self, limit: i32) -> Work {
        let mut work = Work::default();
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
                .any(|(known, place)| name(&**known) == node && *place == Place::Wanted);
            match new {
                Some(new) if self.is_available(new) => work.delete.push(Arc::clone(old)),
                Some(_) => surging += 1,
                None => match (wanted, self.is_available(old)) {
                    (true, true) => candidates.push(node.to_owned()),
                    (true, false) => work.create.push(node.to_owned()),
                    (false, true) => strangers.push(Arc::clone(old)),
                    (false, false) => work.delete.push(Arc::clone(old)),
                },
            }
        }
        let room = |number: i32| usize::try_from(number).unwrap_or_default();
        work.delete
            .extend(strangers.into_iter().take(room(available - self.wanted())));
        work.create
            .extend(candidates.into_iter().take(room(limit - surging)));
        work
    }
}

fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Those with a node first, then the oldest.
fn age(pod: &Pod) -> (bool, Option<Timestamp>, String) {
    let unassigned = pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none());
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (unassigned, created, name(pod).to_owned())
}

//! Changes of size: of one ReplicaSet, and of all of them when the Deployment's size changed.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use k8s_openapi::{api::apps::v1::ReplicaSet, jiff::Timestamp};

use super::{Halt, Sets, fractions, replicas, revision, rollout::Rollout, status::available};
use crate::alive::workloads::{name, replicaset};

/// Whether a ReplicaSet of the right size is touched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    /// Only if its size differs.
    Resized,
    /// Also if it says that it was scaled for another size of the Deployment.
    Outdated,
}

impl Rollout<'_> {
    /// Whether the Deployment's size is another than the one that its ReplicaSets were scaled for.
    pub(super) async fn is_resized(&mut self) -> Result<bool, Halt> {
        let sets = self.find().await?;
        let wanted = replicas(&self.deployment);
        let differs =
            |set: &&Arc<ReplicaSet>| revision::desired(set).is_some_and(|desired| desired != wanted);
        Ok(sets.all().filter(|set| is_active(set)).any(|set| differs(&set)))
    }

    /// Gives all ReplicaSets the sizes that follow from the Deployment's, without moving its rollout.
    pub(super) async fn resize(&mut self) -> Result<Option<Duration>, Halt> {
        let sets = self.find().await?;
        self.scale_all(&sets).await?;
        let spec = self.deployment.spec.as_ref();
        if spec.is_some_and(|spec| spec.paused == Some(true)) {
            self.tidy(&sets.old).await?;
        }
        self.write_counts(&sets).await
    }

    async fn scale_all(&mut self, sets: &Sets) -> Result<(), Halt> {
        let wanted = replicas(&self.deployment);
        if let Some(one) = only_active_or_newest(sets) {
            self.scale(&one, wanted, Touch::Resized).await?;
            return Ok(());
        }
        let active: Vec<_> = sets.all().filter(|set| is_active(set)).cloned().collect();
        if sets.new.as_ref().is_some_and(|new| self.is_saturated(new)) {
            for old in sets.old.iter().filter(|set| is_active(set)) {
                self.scale(old, 0, Touch::Resized).await?;
            }
        } else if fractions::is_rolling(&self.deployment) && !active.is_empty() {
            let active = self.by_size(active);
            let shared: Vec<_> = active.iter().map(|set| &**set).collect();
            let sizes = fractions::proportional(&self.deployment, &shared);
            for (set, size) in active.iter().zip(sizes) {
                self.scale(set, size, Touch::Outdated).await?;
            }
        }
        Ok(())
    }

    /// Biggest first. Of equal ones, newer ones grow first and older ones shrink first.
    fn by_size(&self, mut sets: Vec<Arc<ReplicaSet>>) -> Vec<Arc<ReplicaSet>> {
        let all = sets.iter().map(|set| replicaset::replicas(set)).sum();
        sets.sort_by_cached_key(|set| age(set));
        if fractions::room(&self.deployment, all) > 0 {
            sets.reverse();
        }
        sets.sort_by_key(|set| Reverse(replicaset::replicas(set)));
        sets
    }

    /// The new ReplicaSet has and knows the Deployment's size, and all of it is available.
    fn is_saturated(&self, new: &ReplicaSet) -> bool {
        let wanted = replicas(&self.deployment);
        replicaset::replicas(new) == wanted
            && revision::desired(new) == Some(wanted)
            && available(new) == wanted
    }

    /// Gives a ReplicaSet this size, and says so in an event. Returns whether its size changed.
    pub(super) async fn scale(
        &mut self,
        set: &ReplicaSet,
        size: i32,
        touch: Touch,
    ) -> Result<Option<ReplicaSet>, Halt> {
        let before = replicaset::replicas(set);
        if before == size && touch == Touch::Resized {
            return Ok(None);
        }
        let mut next = set.clone();
        revision::mark_sizes(&mut next, &self.deployment);
        next.spec.get_or_insert_default().replicas = Some(size);
        if next == *set {
            return Ok(None);
        }
        let scaled = self.writer.replace(&next).await?;
        if before == size {
            return Ok(None);
        }
        let direction = if before < size { "up" } else { "down" };
        let message = format!(
            "Scaled {direction} replica set {} from {before} to {size}",
            name(set)
        );
        self.ctx
            .recorder()
            .normal(&self.deployment, "ScalingReplicaSet", message);
        Ok(Some(scaled))
    }
}

/// With at most one ReplicaSet that has pods: that one, or the newest.
fn only_active_or_newest(sets: &Sets) -> Option<Arc<ReplicaSet>> {
    let mut active = sets.all().filter(|set| is_active(set));
    match (active.next(), active.next()) {
        (Some(only), None) => Some(Arc::clone(only)),
        (None, _) => sets.new.clone().or_else(|| sets.old.last().cloned()),
        (Some(_), Some(_)) => None,
    }
}

pub(super) fn is_active(set: &ReplicaSet) -> bool {
    replicaset::replicas(set) > 0
}

/// What orders ReplicaSets by age, oldest first.
pub(super) fn age(set: &ReplicaSet) -> (Option<Timestamp>, String) {
    let created = set.metadata.creation_timestamp.as_ref();
    (created.map(|time| time.0), name(set).to_owned())
}

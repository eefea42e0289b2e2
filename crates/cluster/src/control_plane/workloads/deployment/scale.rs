//! Scales ReplicaSets: one, or all of them when the Deployment was scaled.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use k8s_openapi::{api::apps::v1::ReplicaSet, jiff::Timestamp};

use super::{PassError, ReplicaSets, proportions, replicas, revision, rollout::Rollout, status::available};
use crate::control_plane::workloads::{name, replicaset};

/// When to update a ReplicaSet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UpdateIf {
    /// Only if its size differs.
    SizeDiffers,
    /// Also if its size annotations are outdated.
    AnnotationsDiffer,
}

impl Rollout<'_> {
    /// Whether the Deployment was scaled since its ReplicaSets were.
    pub(super) async fn was_scaled(&mut self) -> Result<bool, PassError> {
        let sets = self.find().await?;
        let wanted = replicas(&self.deployment);
        let differs =
            |set: &&Arc<ReplicaSet>| revision::desired_replicas(set).is_some_and(|desired| desired != wanted);
        Ok(sets.all().filter(|set| is_active(set)).any(|set| differs(&set)))
    }

    /// Scales all ReplicaSets to the Deployment's size, without progressing its rollout.
    pub(super) async fn scale_to_deployment(&mut self) -> Result<Option<Duration>, PassError> {
        let sets = self.find().await?;
        self.scale_all(&sets).await?;
        let spec = self.deployment.spec.as_ref();
        if spec.is_some_and(|spec| spec.paused == Some(true)) {
            self.prune(&sets.old).await?;
        }
        self.write_counts(&sets).await
    }

    async fn scale_all(&mut self, sets: &ReplicaSets) -> Result<(), PassError> {
        let wanted = replicas(&self.deployment);
        if let Some(one) = only_active_or_newest(sets) {
            self.scale(&one, wanted, UpdateIf::SizeDiffers).await?;
            return Ok(());
        }
        let active: Vec<_> = sets.all().filter(|set| is_active(set)).cloned().collect();
        if sets.new.as_ref().is_some_and(|new| self.is_saturated(new)) {
            for old in sets.old.iter().filter(|set| is_active(set)) {
                self.scale(old, 0, UpdateIf::SizeDiffers).await?;
            }
        } else if proportions::is_rolling(&self.deployment) && !active.is_empty() {
            let active = self.by_size(active);
            let shared: Vec<_> = active.iter().map(|set| &**set).collect();
            let sizes = proportions::proportional(&self.deployment, &shared);
            for (set, size) in active.iter().zip(sizes) {
                self.scale(set, size, UpdateIf::AnnotationsDiffer).await?;
            }
        }
        Ok(())
    }

    /// Sorts by size, biggest first. Of equal ones, newer ones grow first and older ones shrink first.
    fn by_size(&self, mut sets: Vec<Arc<ReplicaSet>>) -> Vec<Arc<ReplicaSet>> {
        let all = sets.iter().map(|set| replicaset::replicas(set)).sum();
        sets.sort_by_cached_key(|set| age_key(set));
        if proportions::replicas_to_add(&self.deployment, all) > 0 {
            sets.reverse();
        }
        sets.sort_by_key(|set| Reverse(replicaset::replicas(set)));
        sets
    }

    /// Whether the new ReplicaSet has the Deployment's size, was scaled for it, and is fully available.
    fn is_saturated(&self, new: &ReplicaSet) -> bool {
        let wanted = replicas(&self.deployment);
        replicaset::replicas(new) == wanted
            && revision::desired_replicas(new) == Some(wanted)
            && available(new) == wanted
    }

    /// Scales a ReplicaSet and records an event. Returns it if its size changed.
    pub(super) async fn scale(
        &mut self,
        set: &ReplicaSet,
        size: i32,
        update_if: UpdateIf,
    ) -> Result<Option<ReplicaSet>, PassError> {
        let before = replicaset::replicas(set);
        if before == size && update_if == UpdateIf::SizeDiffers {
            return Ok(None);
        }
        let mut next = set.clone();
        revision::set_size_annotations(&mut next, &self.deployment);
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

/// Returns the only ReplicaSet with replicas, or the newest if none has any. `None` if several have.
fn only_active_or_newest(sets: &ReplicaSets) -> Option<Arc<ReplicaSet>> {
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

/// Sort key by age, oldest first.
pub(super) fn age_key(set: &ReplicaSet) -> (Option<Timestamp>, String) {
    let created = set.metadata.creation_timestamp.as_ref();
    (created.map(|time| time.0), name(set).to_owned())
}

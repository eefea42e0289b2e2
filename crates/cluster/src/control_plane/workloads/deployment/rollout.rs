//! One pass over one Deployment: finds or creates its new ReplicaSet and scales old and new ones.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet, ReplicaSetSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Api;
use windlass_api::labels::Selector;
use windlass_runtime::{Clock, Context, Error, Writer};

use super::{
    HASH_LABEL, PassError, ReplicaSets, conditions,
    conditions::{PAUSED, PROGRESSING, TIMED_OUT, condition, has_reason},
    is_same_template, proportions, replicas, revision,
    scale::{UpdateIf, age_key, is_active},
    status,
};
use crate::control_plane::workloads::{
    claim::{claim, controller_of, controller_reference},
    name, namespace, pod, post_params, replicaset, template_hash, uid, writer,
};

/// The maximum length of names.
const MAX_NAME_LENGTH: usize = 253;

/// The state of one pass.
pub(super) struct Rollout<'a> {
    pub(super) ctx: &'a Context,
    pub(super) writer: Writer,
    pub(super) deployment: Deployment,
    /// The ReplicaSets that it controls, oldest first, as of the start of the pass.
    sets: Vec<Arc<ReplicaSet>>,
    /// The Deployment was written, so this state is stale.
    written: bool,
}

impl<'a> Rollout<'a> {
    pub(super) fn new(ctx: &'a Context, deployment: Deployment) -> Self {
        Self {
            writer: writer(ctx),
            ctx,
            deployment,
            sets: Vec::new(),
            written: false,
        }
    }

    pub(super) async fn reject_empty_selector(&mut self) -> Result<Option<Duration>, PassError> {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        self.ctx
            .recorder()
            .warning(&self.deployment, "SelectingAll", message);
        let mut status = self.deployment.status.clone().unwrap_or_default();
        if status.observed_generation < self.deployment.metadata.generation {
            status.observed_generation = self.deployment.metadata.generation;
            self.write_status(status).await?;
        }
        Ok(None)
    }

    pub(super) async fn claim(&mut self, candidates: Vec<Arc<ReplicaSet>>) -> Result<(), Error> {
        let selector = self.deployment.spec.as_ref().map(|spec| &spec.selector);
        let selector = selector.map(Selector::try_from).transpose();
        let selector = selector.map_err(Error::terminal)?.unwrap_or_default();
        self.sets = claim(self.ctx, &self.deployment, &selector, candidates).await?;
        self.sets.sort_by_cached_key(|set| age_key(set));
        Ok(())
    }

    /// Sets the Progressing condition when the Deployment is paused or resumed, so that the pause does not count towards
    /// the progress deadline.
    pub(super) async fn update_pause_condition(&mut self) -> Result<(), PassError> {
        let mut status = self.deployment.status.clone().unwrap_or_default();
        let progress = conditions::find(&status, PROGRESSING);
        if status::deadline(&self.deployment).is_none() || has_reason(progress, TIMED_OUT) {
            return Ok(());
        }
        let spec = self.deployment.spec.as_ref();
        let paused = spec.is_some_and(|spec| spec.paused == Some(true));
        let (reason, message) = match (paused, has_reason(progress, PAUSED)) {
            (true, false) => (PAUSED, "Deployment is paused"),
            (false, true) => ("DeploymentResumed", "Deployment is resumed"),
            _ => return Ok(()),
        };
        let now = Clock::system().now();
        conditions::set(
            &mut status,
            condition(PROGRESSING, "Unknown", reason, message, now),
        );
        self.write_status(status).await
    }

    /// Returns the ReplicaSets, and updates the revision annotations of the new one and the Deployment. `new` is `None` if
    /// it does not exist yet.
    pub(super) async fn find(&mut self) -> Result<ReplicaSets, PassError> {
        let template = self.deployment.spec.as_ref().map(|spec| &spec.template);
        let has_template = |set: &Arc<ReplicaSet>| {
            let own = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
            own.zip(template)
                .is_some_and(|(own, template)| is_same_template(own, template))
        };
        let mut sets = ReplicaSets {
            new: self.sets.iter().find(|set| has_template(set)).cloned(),
            old: self.sets.clone(),
        };
        let Some(new) = &sets.new else {
            return Ok(sets);
        };
        sets.old.retain(|set| !Arc::ptr_eq(set, new));
        self.update_annotations(new, &sets.old).await?;
        Ok(sets)
    }

    /// Updates the annotations of the new ReplicaSet, and copies its revision to the Deployment.
    async fn update_annotations(
        &mut self,
        new: &ReplicaSet,
        old: &[Arc<ReplicaSet>],
    ) -> Result<(), PassError> {
        let spec = self.deployment.spec.as_ref();
        let min_ready_seconds = spec.and_then(|spec| spec.min_ready_seconds);
        let mut marked = new.clone();
        revision::set_annotations(&mut marked, &self.deployment, revision::next(old));
        marked.spec.get_or_insert_default().min_ready_seconds = min_ready_seconds;
        if marked != *new {
            self.writer.replace(&marked).await?;
            return Err(PassError::Stale);
        }
        let mut status = self.deployment.status.clone().unwrap_or_default();
        let mut found = false;
        if status::deadline(&self.deployment).is_some() && conditions::find(&status, PROGRESSING).is_none() {
            let message = format!("Found new replica set \"{}\"", name(new));
            let now = Clock::system().now();
            let progress = condition(PROGRESSING, "True", "FoundNewReplicaSet", &message, now);
            conditions::set(&mut status, progress);
            found = true;
        }
        let of_set = revision::text(new).unwrap_or_default().to_owned();
        if self.set_revision(&of_set) || found {
            self.write_status(status).await?;
        }
        Ok(())
    }

    /// Sets the Deployment's revision annotation. Returns whether it changed.
    fn set_revision(&mut self, revision: &str) -> bool {
        let differs = revision::text(&self.deployment).unwrap_or_default() != revision;
        if differs {
            let marks = self.deployment.metadata.annotations.get_or_insert_default();
            marks.insert(revision::REVISION_ANNOTATION.to_owned(), revision.to_owned());
        }
        differs
    }

    /// Returns the ReplicaSets, and creates the new one if it does not exist.
    async fn find_or_create(&mut self) -> Result<ReplicaSets, PassError> {
        let mut sets = self.find().await?;
        if sets.new.is_none() {
            sets.new = Some(Arc::new(self.create(&sets.old).await?));
        }
        Ok(sets)
    }

    async fn create(&mut self, old: &[Arc<ReplicaSet>]) -> Result<ReplicaSet, PassError> {
        let revision = revision::next(old);
        let all = old.iter().map(|set| replicaset::replicas(set)).sum();
        let size = proportions::new_replicas(&self.deployment, all, 0);
        let wanted = self.new_set(size, revision);
        let created = match self.writer.create(&wanted).await {
            Ok(created) => created,
            Err(error) if error.is_already_exists() => return Err(self.handle_name_collision(&wanted).await),
            Err(error) if error.is_namespace_terminating() => {
                return Err(PassError::Failed(Error::terminal(error)));
            }
            Err(error) => {
                self.report_create_failure(&wanted, &pod::error_message(&error))
                    .await;
                return Err(error.into());
            }
        };
        if size > 0 {
            let message = format!("Scaled up replica set {} from 0 to {size}", name(&created));
            self.ctx
                .recorder()
                .normal(&self.deployment, "ScalingReplicaSet", message);
        }
        let mut status = self.deployment.status.clone().unwrap_or_default();
        let mut news = self.set_revision(&revision.to_string());
        if status::deadline(&self.deployment).is_some() {
            let message = format!("Created new replica set \"{}\"", name(&created));
            let now = Clock::system().now();
            let progress = condition(PROGRESSING, "True", "NewReplicaSetCreated", &message, now);
            conditions::set(&mut status, progress);
            news = true;
        }
        if news {
            self.write_status(status).await?;
        }
        Ok(created)
    }

    fn new_set(&self, size: i32, revision: i64) -> ReplicaSet {
        let spec = self.deployment.spec.clone().unwrap_or_default();
        let collisions = self
            .deployment
            .status
            .as_ref()
            .and_then(|status| status.collision_count);
        let hash = template_hash(&spec.template, collisions);
        let (mut template, mut selector) = (spec.template, spec.selector);
        let labels = template
            .metadata
            .get_or_insert_default()
            .labels
            .get_or_insert_default();
        labels.insert(HASH_LABEL.to_owned(), hash.clone());
        let labels = labels.clone();
        let matched = selector.match_labels.get_or_insert_default();
        matched.insert(HASH_LABEL.to_owned(), hash.clone());
        let mut base = name(&self.deployment).to_owned();
        base.truncate(MAX_NAME_LENGTH - 1 - hash.len());
        let mut set = ReplicaSet {
            metadata: ObjectMeta {
                name: Some(format!("{base}-{hash}")),
                namespace: self.deployment.metadata.namespace.clone(),
                labels: Some(labels),
                owner_references: Some(vec![controller_reference(&self.deployment)]),
                ..ObjectMeta::default()
            },
            spec: Some(ReplicaSetSpec {
                replicas: Some(size),
                min_ready_seconds: spec.min_ready_seconds,
                selector,
                template: Some(template),
            }),
            status: None,
        };
        revision::set_annotations(&mut set, &self.deployment, revision);
        revision::set_size_annotations(&mut set, &self.deployment);
        set
    }

    /// Handles an existing ReplicaSet of the same name. If it is the Deployment's own with the same template, the cache was
    /// stale. Otherwise it is a hash collision, and the collision count in the status changes the next hash.
    async fn handle_name_collision(&mut self, wanted: &ReplicaSet) -> PassError {
        let sets = Api::<ReplicaSet>::namespaced(self.ctx.client().clone(), namespace(wanted));
        let live = match sets.get(name(wanted)).await {
            Ok(live) => live,
            Err(error) => return error.into(),
        };
        let template = |set: &ReplicaSet| set.spec.as_ref().and_then(|spec| spec.template.clone());
        let ours = controller_of(&live).is_some_and(|controller| controller.uid == uid(&self.deployment));
        let same = template(&live)
            .zip(template(wanted))
            .is_some_and(|(one, other)| is_same_template(&one, &other));
        let error = format!("ReplicaSet {} already exists", name(wanted));
        if ours && same {
            return PassError::Failed(error.into());
        }
        let mut status = self.deployment.status.clone().unwrap_or_default();
        status.collision_count = Some(status.collision_count.unwrap_or_default() + 1);
        match self.write_status(status).await {
            Ok(()) => PassError::Stale,
            Err(halt) => halt,
        }
    }

    async fn report_create_failure(&mut self, wanted: &ReplicaSet, message: &str) {
        let reason = "ReplicaSetCreateError";
        let message = format!("Failed to create new replica set \"{}\": {message}", name(wanted));
        if status::deadline(&self.deployment).is_some() {
            let mut status = self.deployment.status.clone().unwrap_or_default();
            let now = Clock::system().now();
            conditions::set(
                &mut status,
                condition(PROGRESSING, "False", reason, &message, now),
            );
            // The creation is retried, and then this status too.
            let _ = self.write_status(status).await;
        }
        self.ctx.recorder().warning(&self.deployment, reason, message);
    }

    /// Strategy `RollingUpdate`: scales the new ReplicaSet up or the old ones down, within surge and unavailability.
    pub(super) async fn rolling_update(&mut self) -> Result<Option<Duration>, PassError> {
        let sets = self.find_or_create().await?;
        let Some(new) = sets.new.clone() else {
            return Ok(None);
        };
        if !self.scale_up_new(&new, &sets).await? && !self.scale_down_old(&new, &sets).await? {
            self.prune_when_complete(&sets).await?;
        }
        self.write_progress(&sets).await
    }

    /// Scales the new ReplicaSet. Returns whether its size changed.
    async fn scale_up_new(&mut self, new: &ReplicaSet, sets: &ReplicaSets) -> Result<bool, PassError> {
        let (size, wanted) = (replicaset::replicas(new), replicas(&self.deployment));
        let next = if size >= wanted {
            wanted
        } else {
            let all = sets.all().map(|set| replicaset::replicas(set)).sum();
            proportions::new_replicas(&self.deployment, all, size)
        };
        Ok(self.scale(new, next, UpdateIf::SizeDiffers).await?.is_some())
    }

    /// Scales the old ReplicaSets down as far as availability allows, unavailable pods first. Returns whether any was
    /// scaled.
    async fn scale_down_old(&mut self, new: &ReplicaSet, sets: &ReplicaSets) -> Result<bool, PassError> {
        let mut old: Vec<_> = sets.old.iter().filter(|set| is_active(set)).cloned().collect();
        let all: i32 = sets.all().map(|set| replicaset::replicas(set)).sum();
        let least = replicas(&self.deployment) - proportions::max_unavailable(&self.deployment);
        let coming = replicaset::replicas(new) - status::available(new);
        let most = all - least - coming;
        if old.is_empty() || most <= 0 {
            return Ok(false);
        }
        let mut taken = 0;
        for set in &mut old {
            let size = replicaset::replicas(set);
            let unhealthy = (size - status::available(set)).min(most - taken);
            if unhealthy <= 0 {
                continue;
            }
            if let Some(scaled) = self.scale(set, size - unhealthy, UpdateIf::SizeDiffers).await? {
                *set = Arc::new(scaled);
            }
            taken += unhealthy;
        }
        let available: i32 = old.iter().map(|set| status::available(set)).sum();
        let mut spare = available + status::available(new) - least;
        for set in &old {
            let size = replicaset::replicas(set);
            let part = size.min(spare);
            if part <= 0 {
                continue;
            }
            self.scale(set, size - part, UpdateIf::SizeDiffers).await?;
            spare -= part;
            taken += part;
        }
        Ok(taken > 0)
    }

    /// Strategy `Recreate`: scales the new ReplicaSet up when all old pods are gone.
    pub(super) async fn recreate(
        &mut self,
        has_pods: &(dyn Fn(&ReplicaSet) -> Result<bool, Error> + Sync),
    ) -> Result<Option<Duration>, PassError> {
        let mut sets = self.find().await?;
        let mut scaled = false;
        for old in sets.old.iter().filter(|set| is_active(set)) {
            scaled |= self.scale(old, 0, UpdateIf::SizeDiffers).await?.is_some();
        }
        if scaled || status::actual_total(&sets.old) > 0 {
            return self.write_progress(&sets).await;
        }
        for old in &sets.old {
            if has_pods(old)? {
                return self.write_progress(&sets).await;
            }
        }
        if sets.new.is_none() {
            sets = self.find_or_create().await?;
        }
        if let Some(new) = sets.new.clone() {
            self.scale(&new, replicas(&self.deployment), UpdateIf::SizeDiffers)
                .await?;
        }
        self.prune_when_complete(&sets).await?;
        self.write_progress(&sets).await
    }

    async fn prune_when_complete(&mut self, sets: &ReplicaSets) -> Result<(), PassError> {
        let status = self.deployment.status.clone().unwrap_or_default();
        if status::is_complete(&self.deployment, &status) {
            self.prune(&sets.old).await?;
        }
        Ok(())
    }

    /// Deletes the oldest ReplicaSets without pods beyond `revisionHistoryLimit`.
    pub(super) async fn prune(&mut self, old: &[Arc<ReplicaSet>]) -> Result<(), PassError> {
        let limit = self
            .deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.revision_history_limit);
        let Some(limit) = limit.filter(|limit| *limit != i32::MAX) else {
            return Ok(());
        };
        let mut staying: Vec<_> = old
            .iter()
            .filter(|set| set.metadata.deletion_timestamp.is_none())
            .collect();
        let surplus = staying
            .len()
            .saturating_sub(usize::try_from(limit).unwrap_or_default());
        staying.sort_by_cached_key(|set| (revision::of(set), age_key(set)));
        for set in staying.into_iter().take(surplus) {
            let status = set.status.as_ref();
            let observed = status.and_then(|status| status.observed_generation) >= set.metadata.generation;
            let empty = status.is_none_or(|status| status.replicas == 0) && !is_active(set);
            if observed && empty {
                self.writer.delete(&**set).await?;
            }
        }
        Ok(())
    }

    /// Writes the replica counts, without the Progressing condition.
    pub(super) async fn write_counts(&mut self, sets: &ReplicaSets) -> Result<Option<Duration>, PassError> {
        let status = status::status(&self.deployment, sets, Clock::system().now());
        self.finish(status).await?;
        Ok(None)
    }

    async fn write_progress(&mut self, sets: &ReplicaSets) -> Result<Option<Duration>, PassError> {
        let now = Clock::system().now();
        let status = status::rollout_status(&self.deployment, sets, now);
        let next = status::next_deadline_check(&self.deployment, &status, now);
        self.finish(status).await?;
        Ok(next)
    }

    /// Ends the pass with this status. Writes it only if it changed.
    async fn finish(&mut self, status: DeploymentStatus) -> Result<(), PassError> {
        if self.deployment.status.as_ref() == Some(&status) {
            return Ok(());
        }
        if self.written {
            return Err(PassError::Stale);
        }
        self.write_status(status).await
    }

    /// Writes the status, and with it the annotations.
    async fn write_status(&mut self, status: DeploymentStatus) -> Result<(), PassError> {
        if self.written {
            return Err(PassError::Stale);
        }
        self.deployment.status = Some(status);
        let all = Api::<Deployment>::namespaced(self.ctx.client().clone(), namespace(&self.deployment));
        all.replace_status(name(&self.deployment), &post_params(), &self.deployment)
            .await?;
        self.written = true;
        Ok(())
    }
}

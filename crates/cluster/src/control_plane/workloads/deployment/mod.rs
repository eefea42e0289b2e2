//! The Deployment controller: one ReplicaSet per template, and rollouts between them.
//!
//! ```text
//!   pass:  claim ReplicaSets ──► paused or scaled? ──► scale in proportion ──► status
//!                                       └ no ─► rolling update or recreate: new one up, old ones down ──► status
//! ```
//!
//! A pass reads the cache once and writes the status once. If it wrote the Deployment before (its revision, or a pause
//! condition), its state is stale, and another pass writes the status.

mod conditions;
pub(super) mod proportions;
mod revision;
mod rollout;
mod scale;
mod status;

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::{Pod, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use windlass_cache::{Indexer, ObjectKey};
use windlass_runtime::{Action, Context, Controller, Error, Manager, Reconciler, Request, Watch, WriteError};

use self::rollout::Rollout;
use super::{Orphans, orphans::Owner, uid};

/// As in Kubernetes.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::new(5).expect("not zero");

/// A Deployment settles after a few passes, unless another client keeps changing it.
const MAX_PASSES: usize = 10;

/// The label that keeps ReplicaSets of one Deployment from selecting each other's pods.
const HASH_LABEL: &str = "pod-template-hash";

pub(super) fn add(manager: Manager) -> Manager {
    let orphans = Orphans::<Deployment, ReplicaSet>::new();
    let watched = orphans.clone();
    // Pods need no trigger: their ReplicaSet's status has what matters.
    let controller = Controller::<Deployment>::new("deployment")
        .field_manager("deployment-controller")
        .concurrency(CONCURRENCY)
        .watch(Watch::<ReplicaSet>::new().mapped(move |set| watched.owners_to_reconcile(set)))
        .reads::<Pod>()
        .reconcile(Deployments { orphans });
    manager.controller(controller)
}

impl Owner for Deployment {
    fn selector(&self) -> Option<&LabelSelector> {
        self.spec.as_ref().map(|spec| &spec.selector)
    }
}

struct Deployments {
    orphans: Orphans<Deployment, ReplicaSet>,
}

impl Reconciler for Deployments {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        for _ in 0..MAX_PASSES {
            match self.pass(&request.key, &ctx).await {
                Ok(next) => return Ok(next.map_or(Action::done(), Action::requeue_after)),
                Err(PassError::Stale) => {}
                Err(PassError::Failed(error)) => return Err(error),
            }
        }
        Err(
            format!("not settled after {MAX_PASSES} passes: another client keeps changing the Deployment")
                .into(),
        )
    }
}

/// Why a pass ended early.
enum PassError {
    /// Its own writes made its state stale: start another pass.
    Stale,
    Failed(Error),
}

impl From<Error> for PassError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<kube::Error> for PassError {
    fn from(error: kube::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<WriteError> for PassError {
    fn from(error: WriteError) -> Self {
        Self::Failed(error.into())
    }
}

impl Deployments {
    /// Runs one pass. Returns when to reconcile again, if there is a deadline.
    async fn pass(&self, key: &ObjectKey, ctx: &Context) -> Result<Option<Duration>, PassError> {
        let deployment = ctx.lister::<Deployment>()?.try_get(key).map_err(Error::from)?;
        let Some(deployment) = deployment else {
            return Ok(None);
        };
        let Some(spec) = deployment.spec.clone() else {
            return Ok(None);
        };
        let mut rollout = Rollout::new(ctx, Deployment::clone(&deployment));
        if spec.selector == LabelSelector::default() {
            return rollout.reject_empty_selector().await;
        }
        rollout.claim(self.orphans.candidates(ctx, &deployment)?).await?;
        if deployment.metadata.deletion_timestamp.is_some() {
            let sets = rollout.find().await?;
            return rollout.write_counts(&sets).await;
        }
        rollout.update_pause_condition().await?;
        if spec.paused == Some(true) || rollout.was_scaled().await? {
            return rollout.scale_to_deployment().await;
        }
        if proportions::is_rolling(&deployment) {
            rollout.rolling_update().await
        } else {
            rollout.recreate(&|set| has_pods(ctx, set)).await
        }
    }
}

/// Whether the ReplicaSet has unfinished pods, including those that are being deleted.
fn has_pods(ctx: &Context, set: &ReplicaSet) -> Result<bool, Error> {
    let pods = ctx.lister::<Pod>()?;
    let by_owner = pods.cache().index(Indexer::owner());
    let pods = pods.by_index(&by_owner, uid(set));
    Ok(pods.iter().any(|pod| !super::pod::is_finished(pod)))
}

/// A Deployment's ReplicaSets.
#[derive(Clone, Default)]
struct ReplicaSets {
    /// The one with the Deployment's template.
    new: Option<Arc<ReplicaSet>>,
    /// The others, oldest first.
    old: Vec<Arc<ReplicaSet>>,
}

impl ReplicaSets {
    fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new)
    }
}

fn replicas(deployment: &Deployment) -> i32 {
    let spec = deployment.spec.as_ref();
    spec.and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Whether the templates are equal, ignoring the `pod-template-hash` label.
fn is_same_template(one: &PodTemplateSpec, other: &PodTemplateSpec) -> bool {
    let metadata = |template: &PodTemplateSpec| {
        let mut metadata = template.metadata.clone().unwrap_or_default();
        let mut labels = metadata.labels.take().unwrap_or_default();
        labels.remove(HASH_LABEL);
        (metadata, labels)
    };
    one.spec == other.spec && metadata(one) == metadata(other)
}

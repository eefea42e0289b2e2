//! Deployments: a ReplicaSet for each template, and the way from one to the next.
//!
//! ```text
//!   pass:  claim ReplicaSets ──► paused or resized? ──► scale in proportion ──► status
//!                                       └ no ─► rolling or recreate: new one up, old ones down ──► status
//! ```
//!
//! A pass is from one reading of the cache to one writing of the status. Where it wrote the Deployment earlier (its
//! revision, or that it is paused) what it knows is out of date, and the status is left to another pass.

mod conditions;
pub(super) mod fractions;
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
use windlass_cache::{IndexBy, ObjectKey};
use windlass_runtime::{
    Action, Clock, Context, Controller, Error, Manager, Reconciler, Request, Watch, WriteError,
};

use self::rollout::Rollout;
use super::{Strays, strays::Owner, uid};

/// As many at a time as in a real cluster.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::new(5).expect("not zero");

/// A Deployment is settled after a few passes. One that is not is being changed by somebody else all the time.
const PASSES: usize = 10;

/// With it, ReplicaSets of one Deployment do not select each other's pods.
const HASH_LABEL: &str = "pod-template-hash";

pub(super) fn add(manager: Manager, clock: Clock) -> Manager {
    let strays = Strays::<Deployment, ReplicaSet>::new();
    let watched = strays.clone();
    // Pods need not trigger: what matters of them is in their ReplicaSet's status.
    let controller = Controller::<Deployment>::new("deployment")
        .component("deployment-controller")
        .concurrency(CONCURRENCY)
        .watch(Watch::<ReplicaSet>::new().mapped(move |set| watched.concerns(set)))
        .reads::<Pod>()
        .reconcile(Deployments { strays, clock });
    manager.controller(controller)
}

impl Owner for Deployment {
    fn selector(&self) -> Option<&LabelSelector> {
        self.spec.as_ref().map(|spec| &spec.selector)
    }
}

struct Deployments {
    strays: Strays<Deployment, ReplicaSet>,
    clock: Clock,
}

impl Reconciler for Deployments {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        for _ in 0..PASSES {
            match self.pass(&request.key, &ctx).await {
                Ok(next) => return Ok(next.map_or(Action::done(), Action::requeue_after)),
                Err(Halt::Again) => {}
                Err(Halt::Failed(error)) => return Err(error),
            }
        }
        Err("it does not come to rest: somebody else keeps changing it".into())
    }
}

/// Why a pass did not come to its end.
enum Halt {
    /// What it knows is out of date, by its own doing.
    Again,
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<kube::Error> for Halt {
    fn from(error: kube::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<WriteError> for Halt {
    fn from(error: WriteError) -> Self {
        Self::Failed(error.into())
    }
}

impl Deployments {
    /// Returns when to look again, if not only after the next change.
    async fn pass(&self, key: &ObjectKey, ctx: &Context) -> Result<Option<Duration>, Halt> {
        let deployment = ctx.lister::<Deployment>()?.try_get(key).map_err(Error::from)?;
        let Some(deployment) = deployment else {
            return Ok(None);
        };
        let Some(spec) = deployment.spec.clone() else {
            return Ok(None);
        };
        let mut rollout = Rollout::new(ctx, Deployment::clone(&deployment), self.clock);
        if spec.selector == LabelSelector::default() {
            return rollout.refuse_to_select_all().await;
        }
        rollout.claim(self.strays.candidates(ctx, &deployment)?).await?;
        if deployment.metadata.deletion_timestamp.is_some() {
            let sets = rollout.find().await?;
            return rollout.write_counts(&sets).await;
        }
        rollout.note_pause().await?;
        if spec.paused == Some(true) || rollout.is_resized().await? {
            return rollout.resize().await;
        }
        if fractions::is_rolling(&deployment) {
            rollout.roll().await
        } else {
            rollout.recreate(&|set| has_pods(ctx, set)).await
        }
    }
}

/// Whether pods of this ReplicaSet are there that have not ended, going or not.
fn has_pods(ctx: &Context, set: &ReplicaSet) -> Result<bool, Error> {
    let pods = ctx.lister::<Pod>()?;
    let by_owner = pods.cache().index(IndexBy::owner());
    let pods = pods.by_index(&by_owner, uid(set));
    Ok(pods.iter().any(|pod| !super::pod::is_over(pod)))
}

/// A Deployment's ReplicaSets.
#[derive(Clone, Default)]
struct Sets {
    /// The one that has the Deployment's template.
    new: Option<Arc<ReplicaSet>>,
    /// The others, oldest first.
    old: Vec<Arc<ReplicaSet>>,
}

impl Sets {
    fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new)
    }
}

fn replicas(deployment: &Deployment) -> i32 {
    let spec = deployment.spec.as_ref();
    spec.and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Whether the templates describe the same pods; the label that tells ReplicaSets apart does not count.
fn is_same(one: &PodTemplateSpec, other: &PodTemplateSpec) -> bool {
    let metadata = |template: &PodTemplateSpec| {
        let mut metadata = template.metadata.clone().unwrap_or_default();
        let mut labels = metadata.labels.take().unwrap_or_default();
        labels.remove(HASH_LABEL);
        (metadata, labels)
    };
    one.spec == other.spec && metadata(one) == metadata(other)
}

//! The ReplicaSet controller: creates and deletes pods to match `spec.replicas`, and counts them.

mod ranking;
mod status;

use std::{num::NonZeroUsize, sync::Arc};

use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, ReplicaSetSpec},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use windlass_api::labels::Selector;
use windlass_cache::Indexer;
use windlass_runtime::{Action, Clock, Context, Controller, Error, Manager, Reconciler, Request, Watch};

use self::status::Observed;
use super::{
    Orphans,
    claim::{claim, controller_of, controller_reference},
    orphans::Owner,
    pod, write_status,
};

/// As in Kubernetes.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::new(5).expect("not zero");

/// Limit of pods that one reconcile creates or deletes. Their watch events trigger the next reconcile.
const MAX_BURST: usize = 500;

pub(super) fn add(manager: Manager) -> Manager {
    let orphans = Orphans::<ReplicaSet, Pod>::new();
    let watched = orphans.clone();
    let controller = Controller::<ReplicaSet>::new("replicaset")
        .field_manager("replicaset-controller")
        .concurrency(CONCURRENCY)
        .watch(Watch::<Pod>::new().mapped(move |pod| watched.owners_to_reconcile(pod)))
        .reconcile(ReplicaSets { orphans });
    manager.controller(controller)
}

impl Owner for ReplicaSet {
    fn selector(&self) -> Option<&LabelSelector> {
        self.spec.as_ref().map(|spec| &spec.selector)
    }
}

struct ReplicaSets {
    orphans: Orphans<ReplicaSet, Pod>,
}

impl Reconciler for ReplicaSets {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let Some(set) = ctx.lister::<ReplicaSet>()?.try_get(&request.key)? else {
            return Ok(Action::done());
        };
        let Some(spec) = &set.spec else {
            return Ok(Action::done());
        };
        let selector = Selector::try_from(&spec.selector).map_err(Error::terminal)?;
        let pods = self.orphans.candidates(&ctx, &set)?;
        let terminating = pods
            .iter()
            .filter(|pod| is_own_terminating(&set, &selector, pod))
            .count();
        let active = pods.into_iter().filter(|pod| pod::is_active(pod)).collect();
        let active = claim(&ctx, &*set, &selector, active).await?;
        let failure = match set.metadata.deletion_timestamp {
            None => self.manage(&ctx, &set, spec, &active).await?,
            Some(_) => None,
        };
        let now = Clock::system().now();
        let status = status::status(
            &set,
            &Observed {
                active: &active,
                terminating,
                failure: failure.as_deref(),
                now,
            },
        );
        let waits = status.ready_replicas != status.available_replicas;
        if set.status.as_ref() != Some(&status) {
            write_status(&ctx, &*set, |set| set.status = Some(status.clone())).await?;
        }
        if let Some(failure) = failure {
            return Err(failure.into());
        }
        let next = pod::next_available(&active, min_ready_seconds(&set), now).filter(|_| waits);
        Ok(next.map_or(Action::done(), Action::requeue_after))
    }
}

impl ReplicaSets {
    /// Creates missing or deletes surplus pods. Returns the server's message if it rejected one.
    async fn manage(
        &self,
        ctx: &Context,
        set: &Arc<ReplicaSet>,
        spec: &ReplicaSetSpec,
        active: &[Arc<Pod>],
    ) -> Result<Option<String>, Error> {
        let wanted = usize::try_from(replicas(set)).unwrap_or_default();
        let outcome = if active.len() < wanted {
            let missing = (wanted - active.len()).min(MAX_BURST);
            let template = spec.template.clone().unwrap_or_default();
            let pod = pod::from_template(&template, &**set, controller_reference(&**set));
            pod::create(ctx, &**set, &vec![pod; missing]).await
        } else {
            let surplus = (active.len() - wanted).min(MAX_BURST);
            let mut ranked = active.to_vec();
            if 0 < surplus && surplus < ranked.len() {
                let siblings = self.siblings(ctx, set)?;
                ranking::sort(&mut ranked, &siblings, Clock::system().now());
            }
            pod::delete(ctx, &**set, &ranked[..surplus]).await
        };
        Ok(outcome.err().map(|error| pod::error_message(&error)))
    }

    /// Returns the pods of all ReplicaSets with the same controller; none without a controller.
    fn siblings(&self, ctx: &Context, set: &Arc<ReplicaSet>) -> Result<Vec<Arc<Pod>>, Error> {
        let Some(controller) = controller_of(&**set) else {
            return Ok(Vec::new());
        };
        let sets = ctx.lister::<ReplicaSet>()?;
        let by_owner = sets.cache().index(Indexer::owner());
        let mut siblings = Vec::new();
        for related in sets.by_index(&by_owner, &controller.uid) {
            siblings.extend(self.orphans.controlled_by(ctx, super::uid(&*related))?);
        }
        Ok(siblings)
    }
}

pub(super) fn replicas(set: &ReplicaSet) -> i32 {
    let spec = set.spec.as_ref();
    spec.and_then(|spec| spec.replicas).unwrap_or(1)
}

pub(super) fn min_ready_seconds(set: &ReplicaSet) -> i32 {
    let spec = set.spec.as_ref();
    spec.and_then(|spec| spec.min_ready_seconds).unwrap_or_default()
}

/// Whether the pod is a terminating pod of this ReplicaSet; they count as `terminatingReplicas`.
fn is_own_terminating(set: &ReplicaSet, selector: &Selector, pod: &Pod) -> bool {
    let ours = controller_of(pod).is_some_and(|controller| controller.uid == super::uid(set));
    let labels = pod.metadata.labels.as_ref();
    ours && pod::is_terminating(pod) && labels.is_some_and(|labels| selector.matches_map(labels))
}

//! ReplicaSets: as many pods as are asked for, and a count of those that are there.

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
use kube::core::{Selector, SelectorExt};
use windlass_cache::IndexBy;
use windlass_runtime::{Action, Clock, Context, Controller, Error, Manager, Reconciler, Request, Watch};

use self::status::Findings;
use super::{
    Strays,
    claim::{claim, controller_of, reference},
    pod,
    strays::Owner,
    write_status,
};

/// As many at a time as in a real cluster.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::new(5).expect("not zero");

/// No pass creates or deletes more; the pods that it made trigger the next.
const BURST: usize = 500;

pub(super) fn add(manager: Manager, clock: Clock) -> Manager {
    let strays = Strays::<ReplicaSet, Pod>::new();
    let watched = strays.clone();
    let controller = Controller::<ReplicaSet>::new("replicaset")
        .component("replicaset-controller")
        .concurrency(CONCURRENCY)
        .watch(Watch::<Pod>::new().mapped(move |pod| watched.concerns(pod)))
        .reconcile(ReplicaSets { strays, clock });
    manager.controller(controller)
}

impl Owner for ReplicaSet {
    fn selector(&self) -> Option<&LabelSelector> {
        self.spec.as_ref().map(|spec| &spec.selector)
    }
}

struct ReplicaSets {
    strays: Strays<ReplicaSet, Pod>,
    clock: Clock,
}

impl Reconciler for ReplicaSets {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let Some(set) = ctx.lister::<ReplicaSet>()?.try_get(&request.key)? else {
            return Ok(Action::done());
        };
        let Some(spec) = &set.spec else {
            return Ok(Action::done());
        };
        let selector = Selector::try_from(spec.selector.clone()).map_err(Error::terminal)?;
        let pods = self.strays.candidates(&ctx, &set)?;
        let terminating = pods.iter().filter(|pod| is_leaving(&set, &selector, pod)).count();
        let active = pods.into_iter().filter(|pod| pod::is_active(pod)).collect();
        let active = claim(&ctx, &*set, &selector, active).await?;
        let failure = match set.metadata.deletion_timestamp {
            None => self.manage(&ctx, &set, spec, &active).await?,
            Some(_) => None,
        };
        let now = self.clock.now();
        let status = status::status(
            &set,
            &Findings {
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
    /// Creates what is missing or deletes what is too much. What the server refused is returned, in its words.
    async fn manage(
        &self,
        ctx: &Context,
        set: &Arc<ReplicaSet>,
        spec: &ReplicaSetSpec,
        active: &[Arc<Pod>],
    ) -> Result<Option<String>, Error> {
        let wanted = usize::try_from(replicas(set)).unwrap_or_default();
        let outcome = if active.len() < wanted {
            let missing = (wanted - active.len()).min(BURST);
            let template = spec.template.clone().unwrap_or_default();
            let pod = pod::from_template(&template, &**set, reference(&**set));
            pod::create(ctx, &**set, &vec![pod; missing]).await
        } else {
            let surplus = (active.len() - wanted).min(BURST);
            let mut ranked = active.to_vec();
            if 0 < surplus && surplus < ranked.len() {
                let siblings = self.siblings(ctx, set)?;
                ranking::sort(&mut ranked, &siblings, self.clock.now());
            }
            pod::delete(ctx, &**set, &ranked[..surplus]).await
        };
        Ok(outcome.err().map(|error| pod::said(&error)))
    }

    /// The pods of all ReplicaSets of the same controller; none without one.
    fn siblings(&self, ctx: &Context, set: &Arc<ReplicaSet>) -> Result<Vec<Arc<Pod>>, Error> {
        let Some(controller) = controller_of(&**set) else {
            return Ok(Vec::new());
        };
        let sets = ctx.lister::<ReplicaSet>()?;
        let by_owner = sets.cache().index(IndexBy::owner());
        let mut siblings = Vec::new();
        for related in sets.by_index(&by_owner, &controller.uid) {
            siblings.extend(self.strays.of(ctx, super::uid(&*related))?);
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

/// One of ours that goes, and still counts for those who wait for its room.
fn is_leaving(set: &ReplicaSet, selector: &Selector, pod: &Pod) -> bool {
    let ours = controller_of(pod).is_some_and(|controller| controller.uid == super::uid(set));
    let labels = pod.metadata.labels.as_ref();
    ours && pod::is_terminating(pod) && labels.is_some_and(|labels| selector.matches(labels))
}

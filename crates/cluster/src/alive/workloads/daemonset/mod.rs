//! DaemonSets: a pod on each node that is one for it.
//!
//! ```text
//!   pass:  revision of the template ──► a pod for each node, none too many ──► next template where it may go ──► status
//! ```

mod backoff;
mod history;
mod place;
mod template;
mod update;

use std::{
    num::NonZeroUsize,
    sync::{Arc, OnceLock},
    time::Duration,
};

use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, DaemonSet, DaemonSetStatus},
        core::v1::{Node, Pod},
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::core::Selector;
use windlass_cache::{Index, IndexBy, Lister, ObjectKey, Query, Stored};
use windlass_runtime::{
    Action, Clock, Context, Controller, Error, Manager, Predicate, Reconciler, Request, Watch,
};

use self::{
    backoff::Backoff,
    place::Place,
    update::{View, Work},
};
use super::{
    Strays,
    claim::{claim, controller_of},
    count, name, number, pod,
    strays::Owner,
    uid, write_status,
};

/// As many at a time as in a real cluster.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::new(2).expect("not zero");

/// No pass creates or deletes more; the pods that it made trigger the next.
const BURST: usize = 250;

pub(super) fn add(manager: Manager, clock: Clock) -> Manager {
    let (pods, revisions) = (Strays::new(), Strays::new());
    let (watched, kept) = (pods.clone(), revisions.clone());
    let places = Arc::new(OnceLock::<Places>::new());
    let known = Arc::clone(&places);
    // Before the first pass, every DaemonSet is still to be looked at.
    let concerned = move |node: &Node| {
        known
            .get()
            .map(|places| places.concerns(node))
            .unwrap_or_default()
    };
    let controller = Controller::<DaemonSet>::new("daemonset")
        .component("daemonset-controller")
        .concurrency(CONCURRENCY)
        .watch(Watch::<Pod>::new().mapped(move |pod| watched.concerns(pod)))
        .watch(Watch::<ControllerRevision>::new().mapped(move |revision| kept.concerns(revision)))
        .watch(
            Watch::<Node>::new()
                .when(Predicate::new(is_another_place))
                .mapped(concerned),
        )
        .reconcile(DaemonSets {
            pods,
            revisions,
            places,
            clock,
            backoff: Backoff::default(),
        });
    manager.controller(controller)
}

impl Owner for DaemonSet {
    fn selector(&self) -> Option<&LabelSelector> {
        self.spec.as_ref().map(|spec| &spec.selector)
    }
}

/// Heartbeats change nodes all the time; only where pods may be matters.
fn is_another_place(old: Option<&Stored<Node>>, new: &Stored<Node>) -> bool {
    let place = |stored: &Stored<Node>| {
        let node = stored.object().ok()?;
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
        Some((node.metadata.labels.clone(), taints))
    };
    old.is_none_or(|old| place(old) != place(new))
}

/// Whom nodes concern that come and change.
struct Places {
    sets: Lister<DaemonSet>,
    pods: Lister<Pod>,
    by_node: Index<Pod>,
}

impl Places {
    fn of(ctx: &Context) -> Result<Self, Error> {
        let pods = ctx.lister::<Pod>()?.clone();
        let by_node = IndexBy::field("spec.nodeName".parse()?);
        Ok(Self {
            sets: ctx.lister::<DaemonSet>()?.clone(),
            by_node: pods.cache().index(by_node),
            pods,
        })
    }

    /// The DaemonSets that have something to do there, or something wrong in their status.
    fn concerns(&self, node: &Node) -> Vec<ObjectKey> {
        let pods = self.pods.by_index(&self.by_node, name(node));
        let is_concerned = |set: &Arc<DaemonSet>| {
            let mut owners = pods.iter().filter_map(|pod| controller_of(&**pod));
            let has_pod = owners.any(|owner| owner.uid == uid(&**set));
            let misplaced = set
                .status
                .as_ref()
                .is_some_and(|status| status.number_misscheduled > 0);
            match place::place(set, node) {
                Place::Wanted => !has_pod || misplaced,
                Place::Tolerated => has_pod && misplaced,
                Place::Forbidden => has_pod,
            }
        };
        let mut sets = self.sets.list(&Query::all());
        sets.retain(is_concerned);
        sets.iter().map(|set| ObjectKey::of(&**set)).collect()
    }
}

struct DaemonSets {
    pods: Strays<DaemonSet, Pod>,
    revisions: Strays<DaemonSet, ControllerRevision>,
    /// Set by the first pass.
    places: Arc<OnceLock<Places>>,
    clock: Clock,
    backoff: Backoff,
}

impl Reconciler for DaemonSets {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let sets = ctx.lister::<DaemonSet>()?;
        if self.places.get().is_none() {
            let places = Places::of(&ctx)?;
            self.places.get_or_init(|| places);
        }
        let Some(set) = sets.try_get(&request.key)? else {
            return Ok(Action::done());
        };
        let selector = set.selector().cloned().unwrap_or_default();
        if selector == LabelSelector::default() {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            ctx.recorder().warning(&set, "SelectingAll", message);
            return Ok(Action::done());
        }
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Action::done());
        }
        let selector = Selector::try_from(selector).map_err(Error::terminal)?;
        let pods = self.claimed(&ctx, &set, &selector).await?;
        let history = history::history(&ctx, &set, &selector, &self.revisions, &pods).await?;
        let hash = history.hash.clone();
        let nodes = ctx.lister::<Node>()?.list(&Query::all());
        let view = View::new(&set, &hash, self.clock.now(), nodes, &pods);
        let worked = self.work(&ctx, &view).await;
        let pods = self.claimed(&ctx, &set, &selector).await?;
        if worked.is_ok() {
            history.tidy(&ctx, &set, &pods).await?;
        }
        let nodes = view.nodes.into_iter().map(|(node, _)| node).collect();
        let view = View::new(&set, &hash, self.clock.now(), nodes, &pods);
        let status = status(&view);
        let wait = set
            .spec
            .as_ref()
            .and_then(|spec| spec.min_ready_seconds)
            .unwrap_or_default();
        let available = pod::next_available(&pods, wait, view.now).filter(|_| wait > 0);
        if set.status.as_ref() != Some(&status) {
            write_status(&ctx, &*set, |set| set.status = Some(status.clone())).await?;
        }
        let next = match (worked?, available) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Ok(next.map_or(Action::done(), Action::requeue_after))
    }
}

impl DaemonSets {
    async fn claimed(
        &self,
        ctx: &Context,
        set: &DaemonSet,
        selector: &Selector,
    ) -> Result<Vec<Arc<Pod>>, Error> {
        claim(ctx, set, selector, self.pods.candidates(ctx, set)?).await
    }

    /// Brings pods to their nodes, and once they are there, the next template. Returns after which time to look again.
    async fn work(&self, ctx: &Context, view: &View<'_>) -> Result<Option<Duration>, Error> {
        let mut work = view.placement();
        let wait = self.clear_ended(ctx, view, &mut work);
        let placed = work.create.is_empty() && work.delete.is_empty();
        act(ctx, view, work).await?;
        if placed {
            act(ctx, view, view.rollout()).await?;
        }
        Ok(wait)
    }

    /// Pods that ended make room for others, failed ones only after a while.
    fn clear_ended(&self, ctx: &Context, view: &View<'_>, work: &mut Work) -> Option<Duration> {
        let mut wait: Option<Duration> = None;
        let observed = view
            .set
            .status
            .as_ref()
            .and_then(|status| status.observed_generation);
        for (node, ended) in std::mem::take(&mut work.ended) {
            let who = ObjectKey::of(&*ended);
            if pod::phase(&ended) == "Failed" {
                let what = format!("{}/{}/{node}", uid(view.set), observed.unwrap_or_default());
                if let Some(more) = self.backoff.failed(&what) {
                    wait = Some(wait.map_or(more, |wait| wait.min(more)));
                    continue;
                }
                let message = format!("Found failed daemon pod {who} on node {node}, will try to kill it");
                ctx.recorder().warning(view.set, "FailedDaemonPod", message);
            } else {
                let message =
                    format!("Found succeeded daemon pod {who} on node {node}, will try to delete it");
                ctx.recorder().normal(view.set, "SucceededDaemonPod", message);
            }
            work.delete.push(ended);
        }
        wait
    }
}

async fn act(ctx: &Context, view: &View<'_>, mut work: Work) -> Result<(), Error> {
    work.create.truncate(BURST);
    work.delete.truncate(BURST);
    let created = pod::create(ctx, view.set, &template::pods(view.set, view.hash, &work.create)).await;
    let deleted = pod::delete(ctx, view.set, &work.delete).await;
    Ok(created.and(deleted)?)
}

fn status(view: &View<'_>) -> DaemonSetStatus {
    let before = view.set.status.clone().unwrap_or_default();
    let (wanted, others): (Vec<_>, Vec<_>) =
        view.nodes.iter().partition(|(_, place)| *place == Place::Wanted);
    // Of several pods on a node the oldest counts.
    let first: Vec<_> = wanted
        .iter()
        .filter_map(|(node, _)| view.on(node).first())
        .collect();
    let counted = |is_so: &dyn Fn(&Pod) -> bool| number(first.iter().filter(|pod| is_so(pod)).count());
    let available = counted(&|pod| view.is_available(pod));
    let misplaced = others.iter().filter(|(node, _)| !view.on(node).is_empty());
    DaemonSetStatus {
        desired_number_scheduled: number(wanted.len()),
        current_number_scheduled: number(first.len()),
        number_misscheduled: number(misplaced.count()),
        number_ready: counted(&pod::is_ready),
        updated_number_scheduled: count(counted(&|pod| view.is_updated(pod))),
        number_available: count(available),
        number_unavailable: count(number(wanted.len()) - available),
        observed_generation: view.set.metadata.generation,
        ..before
    }
}

//! The DaemonSet controller: one pod on each eligible node.
//!
//! ```text
//!   reconcile:  revision of the template ──► one pod per eligible node ──► rolling update ──► status
//! ```

mod backoff;
mod history;
mod placement;
mod pod_changes;
mod template;

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
use windlass_api::labels::Selector;
use windlass_cache::{CachedObject, Index, Indexer, Lister, ObjectKey, Query};
use windlass_runtime::{
    Action, Clock, Context, Controller, Error, Manager, Predicate, Reconciler, Request, Watch,
};

use self::{
    backoff::Backoff,
    placement::Placement,
    pod_changes::{DaemonSetState, PodChanges},
};
use super::{
    Orphans,
    claim::{claim, controller_of},
    name, omit_zero,
    orphans::Owner,
    pod, to_count, uid, write_status,
};

/// As in Kubernetes.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::new(2).expect("not zero");

/// Limit of pods that one reconcile creates or deletes. Their watch events trigger the next reconcile.
const MAX_BURST: usize = 250;

pub(super) fn add(manager: Manager) -> Manager {
    let (pods, revisions) = (Orphans::new(), Orphans::new());
    let (watched, kept) = (pods.clone(), revisions.clone());
    let node_mapper = Arc::new(OnceLock::<NodeMapper>::new());
    let known = Arc::clone(&node_mapper);
    // Before the first reconcile, every DaemonSet is queued anyway.
    let concerned = move |node: &Node| {
        known
            .get()
            .map(|node_mapper| node_mapper.sets_to_reconcile(node))
            .unwrap_or_default()
    };
    let controller = Controller::<DaemonSet>::new("daemonset")
        .field_manager("daemonset-controller")
        .concurrency(CONCURRENCY)
        .watch(Watch::<Pod>::new().mapped(move |pod| watched.owners_to_reconcile(pod)))
        .watch(Watch::<ControllerRevision>::new().mapped(move |revision| kept.owners_to_reconcile(revision)))
        .watch(
            Watch::<Node>::new()
                .filter(Predicate::new(placement_changed))
                .mapped(concerned),
        )
        .reconcile(DaemonSets {
            pods,
            revisions,
            node_mapper,
            backoff: Backoff::default(),
        });
    manager.controller(controller)
}

impl Owner for DaemonSet {
    fn selector(&self) -> Option<&LabelSelector> {
        self.spec.as_ref().map(|spec| &spec.selector)
    }
}

/// Ignores heartbeats: only labels and taints affect placement.
fn placement_changed(old: Option<&CachedObject<Node>>, new: &CachedObject<Node>) -> bool {
    let place = |stored: &CachedObject<Node>| {
        let node = stored.object().ok()?;
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
        Some((node.metadata.labels.clone(), taints))
    };
    old.is_none_or(|old| place(old) != place(new))
}

/// Maps node changes to the DaemonSets to reconcile.
struct NodeMapper {
    sets: Lister<DaemonSet>,
    pods: Lister<Pod>,
    by_node: Index<Pod>,
}

impl NodeMapper {
    fn of(ctx: &Context) -> Result<Self, Error> {
        let pods = ctx.lister::<Pod>()?.clone();
        let by_node = Indexer::field("spec.nodeName".parse()?);
        Ok(Self {
            sets: ctx.lister::<DaemonSet>()?.clone(),
            by_node: pods.cache().index(by_node),
            pods,
        })
    }

    /// Returns the DaemonSets that must create or delete a pod on the node, or update their status.
    fn sets_to_reconcile(&self, node: &Node) -> Vec<ObjectKey> {
        let pods = self.pods.by_index(&self.by_node, name(node));
        let is_concerned = |set: &Arc<DaemonSet>| {
            let mut owners = pods.iter().filter_map(|pod| controller_of(&**pod));
            let has_pod = owners.any(|owner| owner.uid == uid(&**set));
            let misplaced = set
                .status
                .as_ref()
                .is_some_and(|status| status.number_misscheduled > 0);
            match placement::placement(set, node) {
                Placement::Run => !has_pod || misplaced,
                Placement::KeepRunning => has_pod && misplaced,
                Placement::DoNotRun => has_pod,
            }
        };
        let mut sets = self.sets.list(&Query::all());
        sets.retain(is_concerned);
        sets.iter().map(|set| ObjectKey::of(&**set)).collect()
    }
}

struct DaemonSets {
    pods: Orphans<DaemonSet, Pod>,
    revisions: Orphans<DaemonSet, ControllerRevision>,
    /// Set by the first reconcile.
    node_mapper: Arc<OnceLock<NodeMapper>>,
    backoff: Backoff,
}

impl Reconciler for DaemonSets {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let sets = ctx.lister::<DaemonSet>()?;
        if self.node_mapper.get().is_none() {
            let node_mapper = NodeMapper::of(&ctx)?;
            self.node_mapper.get_or_init(|| node_mapper);
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
        let selector = Selector::try_from(&selector).map_err(Error::terminal)?;
        let pods = self.claimed(&ctx, &set, &selector).await?;
        let history = history::sync_history(&ctx, &set, &selector, &self.revisions, &pods).await?;
        let hash = history.hash.clone();
        let nodes = ctx.lister::<Node>()?.list(&Query::all());
        let state = DaemonSetState::new(&set, &hash, Clock::system().now(), nodes, &pods);
        let worked = self.sync_pods(&ctx, &state).await;
        let pods = self.claimed(&ctx, &set, &selector).await?;
        if worked.is_ok() {
            history.prune(&ctx, &set, &pods).await?;
        }
        let nodes = state.nodes.into_iter().map(|(node, _)| node).collect();
        let state = DaemonSetState::new(&set, &hash, Clock::system().now(), nodes, &pods);
        let status = status(&state);
        let wait = set
            .spec
            .as_ref()
            .and_then(|spec| spec.min_ready_seconds)
            .unwrap_or_default();
        let available = pod::next_available(&pods, wait, state.now).filter(|_| wait > 0);
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

    /// Creates and deletes pods for placement, and if none is needed, for the rolling update. Returns when to reconcile
    /// again.
    async fn sync_pods(&self, ctx: &Context, state: &DaemonSetState<'_>) -> Result<Option<Duration>, Error> {
        let mut changes = state.placement();
        let wait = self.replace_finished(ctx, state, &mut changes);
        let placed = changes.create.is_empty() && changes.delete.is_empty();
        apply(ctx, state, changes).await?;
        if placed {
            apply(ctx, state, state.rollout()).await?;
        }
        Ok(wait)
    }

    /// Replaces finished pods; failed ones only after a back-off. Returns the remaining back-off.
    fn replace_finished(
        &self,
        ctx: &Context,
        state: &DaemonSetState<'_>,
        changes: &mut PodChanges,
    ) -> Option<Duration> {
        let mut wait: Option<Duration> = None;
        let observed = state
            .set
            .status
            .as_ref()
            .and_then(|status| status.observed_generation);
        for (node, ended) in std::mem::take(&mut changes.finished) {
            let who = ObjectKey::of(&*ended);
            if pod::phase(&ended) == "Failed" {
                let what = format!("{}/{}/{node}", uid(state.set), observed.unwrap_or_default());
                if let Some(more) = self.backoff.record_failure(&what) {
                    wait = Some(wait.map_or(more, |wait| wait.min(more)));
                    continue;
                }
                let message = format!("Found failed daemon pod {who} on node {node}, will try to kill it");
                ctx.recorder().warning(state.set, "FailedDaemonPod", message);
            } else {
                let message =
                    format!("Found succeeded daemon pod {who} on node {node}, will try to delete it");
                ctx.recorder().normal(state.set, "SucceededDaemonPod", message);
            }
            changes.delete.push(ended);
        }
        wait
    }
}

async fn apply(ctx: &Context, state: &DaemonSetState<'_>, mut changes: PodChanges) -> Result<(), Error> {
    changes.create.truncate(MAX_BURST);
    changes.delete.truncate(MAX_BURST);
    let created = pod::create(
        ctx,
        state.set,
        &template::pods(state.set, state.hash, &changes.create),
    )
    .await;
    let deleted = pod::delete(ctx, state.set, &changes.delete).await;
    Ok(created.and(deleted)?)
}

fn status(state: &DaemonSetState<'_>) -> DaemonSetStatus {
    let before = state.set.status.clone().unwrap_or_default();
    let (wanted, others): (Vec<_>, Vec<_>) = state
        .nodes
        .iter()
        .partition(|(_, place)| *place == Placement::Run);
    // Of several pods on a node, the oldest counts.
    let first: Vec<_> = wanted
        .iter()
        .filter_map(|(node, _)| state.pods_on(node).first())
        .collect();
    let counted = |is_so: &dyn Fn(&Pod) -> bool| to_count(first.iter().filter(|pod| is_so(pod)).count());
    let available = counted(&|pod| state.is_available(pod));
    let misplaced = others.iter().filter(|(node, _)| !state.pods_on(node).is_empty());
    DaemonSetStatus {
        desired_number_scheduled: to_count(wanted.len()),
        current_number_scheduled: to_count(first.len()),
        number_misscheduled: to_count(misplaced.count()),
        number_ready: counted(&pod::is_ready),
        updated_number_scheduled: omit_zero(counted(&|pod| state.is_updated(pod))),
        number_available: omit_zero(available),
        number_unavailable: omit_zero(to_count(wanted.len()) - available),
        observed_generation: state.set.metadata.generation,
        ..before
    }
}

//! PodDisruptionBudgets: how many pods are healthy, how many have to be, and what may be disrupted.
//!
//! ```text
//!   Pod changes ── selectors: which budgets cover it ──► budget ── scale: what controllers want ──► count ──► status
//! ```

mod count;
mod scale;
mod selectors;

use std::sync::Arc;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::Pod,
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus},
    },
    jiff::Timestamp,
};
use kube::{Api, ResourceExt, api::PostParams, core::Selector};
use windlass_cache::{IndexBy, ObjectKey, Query};
use windlass_runtime::{
    Action, Clock, Context, Controller, Error, Manager, Predicate, Reconciler, Request, Watch,
};

use self::{
    count::{Evicted, Want},
    scale::Trouble,
    selectors::Selectors,
};
use super::FIELD_MANAGER;

/// What its events are said to come from.
const SOURCE: &str = "controllermanager";

pub(super) fn add(manager: Manager) -> Manager {
    let selectors = Selectors::default();
    let counting = Counting {
        clock: Clock::starting_at(Timestamp::now()),
        selectors: selectors.clone(),
    };
    let known = selectors.clone();
    let pods = Watch::<Pod>::new()
        .when(Predicate::new(move |_, new| known.concern(new.meta())))
        .mapped(move |pod| selectors.covering(pod));
    let controller = Controller::<PodDisruptionBudget>::new("disruption")
        .watch(pods)
        .reads::<ReplicaSet>()
        .reads::<Deployment>()
        .component(FIELD_MANAGER)
        .reconcile(counting);
    manager.controller(controller)
}

struct Counting {
    clock: Clock,
    selectors: Selectors,
}

impl Reconciler for Counting {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let budget = ctx.lister::<PodDisruptionBudget>()?.try_get(&request.key)?;
        let selector = budget.as_ref().and_then(|budget| selector(budget));
        self.selectors.set(&request.key, selector.clone());
        let Some(budget) = budget else {
            return Ok(Action::done());
        };
        let recorder = ctx.recorder().source(SOURCE);
        let pods = match selector {
            Some(selector) => pods(&ctx, &budget, selector)?,
            None => Vec::new(),
        };
        if pods.is_empty() {
            recorder.normal(&budget, "NoPods", "No matching pods found");
        }
        let now = self.clock.now();
        let want = match self.want(&ctx, &request.key, &budget, &pods).await {
            Ok(want) => want,
            Err(Trouble::Failed(error)) => return Err(error),
            Err(Trouble::Told(why)) => {
                let text = format!("Failed to calculate the number of expected pods: {why}");
                recorder.warning(&budget, "CalculateExpectedPodCountFailed", text);
                write(&ctx, &budget, count::failed(&budget, &why, now)).await?;
                return Ok(Action::done());
            }
        };
        let evicted = Evicted::of(&budget, &pods, now);
        for name in &evicted.overdue {
            // A real controller names the namespace twice too.
            let namespace = request.key.namespace().unwrap_or_default();
            let text = format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
            if let Some(pod) = pods.iter().find(|pod| pod.name_any() == *name) {
                recorder.warning(pod, "NotDeleted", text);
            }
        }
        let status = count::status(&budget, want, &pods, &evicted, now);
        write(&ctx, &budget, status).await?;
        Ok(evicted.until.map_or(Action::done(), Action::requeue_after))
    }
}

impl Counting {
    async fn want(
        &self,
        ctx: &Context,
        key: &ObjectKey,
        budget: &Arc<PodDisruptionBudget>,
        pods: &[Arc<Pod>],
    ) -> Result<Want, Trouble> {
        if !Want::needs_scale(budget) {
            return Ok(Want::of(budget, pods.len(), None));
        }
        let expected = scale::expected(ctx, key.namespace().unwrap_or_default(), pods).await?;
        if expected.unmanaged {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            let selector = selector.map(selectors::in_go).unwrap_or_default();
            let text = format!(
                "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, the \
                 status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for \
                 these pods please set \".spec.minAvailable\" field of the PDB to an integer value."
            );
            ctx.recorder()
                .source(SOURCE)
                .warning(budget, "UnmanagedPods", text);
        }
        Ok(Want::of(budget, pods.len(), Some(expected.scale)))
    }
}

/// What the budget selects; one without a selector selects nothing.
fn selector(budget: &PodDisruptionBudget) -> Option<Selector> {
    let selector = budget.spec.as_ref()?.selector.clone()?;
    Selector::try_from(selector).ok()
}

/// The pods that the budget covers. One label of its selector finds them, so that others are not looked at.
fn pods(ctx: &Context, budget: &PodDisruptionBudget, selector: Selector) -> Result<Vec<Arc<Pod>>, Error> {
    let lister = ctx.lister::<Pod>()?;
    let mut query = Query::all().labels(selector);
    if let Some(namespace) = budget.metadata.namespace.as_deref() {
        query = query.namespace(namespace);
    }
    let spec = budget.spec.as_ref();
    let labels = spec.and_then(|spec| spec.selector.as_ref()?.match_labels.as_ref());
    if let Some((name, value)) = labels.and_then(|labels| labels.first_key_value()) {
        let index = lister.cache().index(IndexBy::label(name.as_str()));
        query = query.indexed(&index, value);
    }
    Ok(lister.list(&query))
}

async fn write(
    ctx: &Context,
    budget: &PodDisruptionBudget,
    status: Option<PodDisruptionBudgetStatus>,
) -> Result<(), Error> {
    let Some(status) = status else {
        return Ok(());
    };
    let wanted = PodDisruptionBudget {
        status: Some(status),
        ..budget.clone()
    };
    let namespace = budget.metadata.namespace.as_deref().unwrap_or_default();
    let api = Api::<PodDisruptionBudget>::namespaced(ctx.client().clone(), namespace);
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    match api.replace_status(&budget.name_any(), &params, &wanted).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => {
            other?;
            Ok(())
        }
    }
}

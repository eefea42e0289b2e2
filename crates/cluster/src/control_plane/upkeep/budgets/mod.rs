//! The disruption controller: updates the status of `PodDisruptionBudgets`.
//!
//! ```text
//!   Pod change ── selectors: its budgets ──► budget ── scale: replicas of the pods' controllers ──► count ──► status
//! ```

mod count;
mod scale;
mod selectors;

use std::sync::Arc;

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
    policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus},
};
use kube::{Api, ResourceExt, api::PostParams};
use windlass_api::{labels::Selector, status::StatusClass};
use windlass_cache::{Indexer, ObjectKey, Query};
use windlass_runtime::{
    Action, Clock, Context, Controller, Error, Manager, Predicate, Reconciler, Request, Watch,
};

use self::{
    count::{EvictedPods, Requirement},
    scale::ScaleError,
    selectors::Selectors,
};
use super::FIELD_MANAGER;

/// Source of the events.
const SOURCE: &str = "controllermanager";

pub(super) fn add(manager: Manager) -> Manager {
    let selectors = Selectors::default();
    let counting = DisruptionController {
        selectors: selectors.clone(),
    };
    let known = selectors.clone();
    let pods = Watch::<Pod>::new()
        .filter(Predicate::new(move |_, new| known.may_select(new.meta())))
        .mapped(move |pod| selectors.budgets_of(pod));
    let controller = Controller::<PodDisruptionBudget>::new("disruption")
        .watch(pods)
        .reads::<ReplicaSet>()
        .reads::<Deployment>()
        .field_manager(FIELD_MANAGER)
        .reconcile(counting);
    manager.controller(controller)
}

struct DisruptionController {
    selectors: Selectors,
}

impl Reconciler for DisruptionController {
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
        let now = Clock::system().now();
        let requirement = match self.requirement(&ctx, &request.key, &budget, &pods).await {
            Ok(requirement) => requirement,
            Err(ScaleError::Request(error)) => return Err(error),
            Err(ScaleError::Unsupported(why)) => {
                let text = format!("Failed to calculate the number of expected pods: {why}");
                recorder.warning(&budget, "CalculateExpectedPodCountFailed", text);
                write_status(&ctx, &budget, count::failure_status(&budget, &why, now)).await?;
                return Ok(Action::done());
            }
        };
        let evicted = EvictedPods::of(&budget, &pods, now);
        for name in &evicted.overdue {
            // Kubernetes prints the namespace twice too.
            let namespace = request.key.namespace().unwrap_or_default();
            let text = format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
            if let Some(pod) = pods.iter().find(|pod| pod.name_any() == *name) {
                recorder.warning(pod, "NotDeleted", text);
            }
        }
        let status = count::status(&budget, requirement, &pods, &evicted, now);
        write_status(&ctx, &budget, status).await?;
        Ok(evicted.until.map_or(Action::done(), Action::requeue_after))
    }
}

impl DisruptionController {
    async fn requirement(
        &self,
        ctx: &Context,
        key: &ObjectKey,
        budget: &Arc<PodDisruptionBudget>,
        pods: &[Arc<Pod>],
    ) -> Result<Requirement, ScaleError> {
        if !Requirement::needs_scale(budget) {
            return Ok(Requirement::of(budget, pods.len(), None));
        }
        let expected = scale::expected(ctx, key.namespace().unwrap_or_default(), pods).await?;
        if expected.unmanaged {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            let selector = selector.map(selectors::format_like_go).unwrap_or_default();
            let text = format!(
                "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, the \
                 status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for \
                 these pods please set \".spec.minAvailable\" field of the PDB to an integer value."
            );
            ctx.recorder()
                .source(SOURCE)
                .warning(budget, "UnmanagedPods", text);
        }
        Ok(Requirement::of(budget, pods.len(), Some(expected.scale)))
    }
}

/// Returns the budget's selector. A budget without one selects no pods.
fn selector(budget: &PodDisruptionBudget) -> Option<Selector> {
    let selector = budget.spec.as_ref()?.selector.as_ref()?;
    Selector::try_from(selector).ok()
}

/// Returns the budget's pods, by an index on one label of its selector.
fn pods(ctx: &Context, budget: &PodDisruptionBudget, selector: Selector) -> Result<Vec<Arc<Pod>>, Error> {
    let lister = ctx.lister::<Pod>()?;
    let mut query = Query::all().labels(selector);
    if let Some(namespace) = budget.metadata.namespace.as_deref() {
        query = query.namespace(namespace);
    }
    let spec = budget.spec.as_ref();
    let labels = spec.and_then(|spec| spec.selector.as_ref()?.match_labels.as_ref());
    if let Some((name, value)) = labels.and_then(|labels| labels.first_key_value()) {
        let index = lister.cache().index(Indexer::label(name.as_str()));
        query = query.indexed(&index, value);
    }
    Ok(lister.list(&query))
}

async fn write_status(
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
        Err(kube::Error::Api(status)) if StatusClass::of(&status) == StatusClass::NotFound => Ok(()),
        other => {
            other?;
            Ok(())
        }
    }
}

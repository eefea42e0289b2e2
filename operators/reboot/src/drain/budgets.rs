//! Finds the PodDisruptionBudgets that cover a pod. The server does not name them if there are several.

use windlass::{
    api::labels::Selector,
    k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    kube::{self, Api, Client, ResourceExt, api::ListParams},
};

/// Returns their names, sorted.
pub(super) async fn covering(client: &Client, pod: &Pod) -> Result<Vec<String>, kube::Error> {
    let namespace = pod.namespace().unwrap_or_default();
    let budgets = Api::<PodDisruptionBudget>::namespaced(client.clone(), &namespace);
    let found = budgets.list(&ListParams::default()).await?;
    let covers = |budget: &PodDisruptionBudget| covers(budget, pod);
    let mut names: Vec<_> = found
        .items
        .iter()
        .filter(|budget| covers(budget))
        .map(ResourceExt::name_any)
        .collect();
    names.sort();
    Ok(names)
}

/// An empty selector covers every pod of the namespace, a missing one covers none.
fn covers(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
    selector.is_some_and(|selector| selector.matches_map(pod.labels()))
}

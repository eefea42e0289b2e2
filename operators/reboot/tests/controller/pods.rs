//! Pods and PodDisruptionBudgets whose status the test controls: no other controller acts on these nodes.

use windlass::{
    k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    kube::api::{DeleteParams, Patch, PatchParams, PostParams},
    prelude::*,
};
use windlass_suite::Context as Case;

/// Creates a ready pod on a node, with a controller of this kind.
pub(crate) async fn pod(case: &Case, node: &str, name: &str, owner: &str) -> anyhow::Result<Pod> {
    let controller =
        json!({ "apiVersion": "apps/v1", "kind": owner, "name": "it", "uid": "it", "controller": true });
    let pod = json!({
        "metadata": { "name": name, "labels": { "app": name }, "ownerReferences": [controller] },
        "spec": { "nodeName": node, "containers": [{ "name": "main", "image": "main" }] },
    });
    let pods = case.api::<Pod>();
    pods.create(&PostParams::default(), &from_value(pod)?).await?;
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    let status = Patch::Merge(json!({ "status": { "phase": "Running", "conditions": ready } }));
    Ok(pods.patch_status(name, &PatchParams::default(), &status).await?)
}

/// Creates a budget for the pods of this name. `None`: it is not processed yet.
pub(crate) async fn budget(case: &Case, name: &str, pod: &str, allows: Option<i32>) -> anyhow::Result<()> {
    let spec = json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": pod } } });
    let budget = from_value(json!({ "metadata": { "name": name }, "spec": spec }))?;
    let budgets = case.api::<PodDisruptionBudget>();
    budgets.create(&PostParams::default(), &budget).await?;
    match allows {
        Some(disruptions) => set_disruptions_allowed(case, name, disruptions).await,
        None => Ok(()),
    }
}

/// Sets the budget's status.
pub(crate) async fn set_disruptions_allowed(
    case: &Case,
    budget: &str,
    disruptions: i32,
) -> anyhow::Result<()> {
    let status = Patch::Merge(json!({ "status": {
        "observedGeneration": 1, "disruptionsAllowed": disruptions, "currentHealthy": 1, "desiredHealthy": 1,
        "expectedPods": 1,
    } }));
    let budgets = case.api::<PodDisruptionBudget>();
    budgets
        .patch_status(budget, &PatchParams::default(), &status)
        .await?;
    Ok(())
}

/// Does what a kubelet does when a pod has stopped.
pub(crate) async fn stop_pod(case: &Case, pod: &str) -> anyhow::Result<()> {
    let pods = case.api::<Pod>();
    pods.delete(pod, &DeleteParams::default().grace_period(0)).await?;
    Ok(())
}

/// Whether this pod, by UID, exists and is not terminating.
pub(crate) async fn is_running(case: &Case, pod: &Pod) -> anyhow::Result<bool> {
    let found = case.api::<Pod>().get_opt(&pod.name_any()).await?;
    Ok(found.is_some_and(|found| found.uid() == pod.uid() && found.metadata.deletion_timestamp.is_none()))
}

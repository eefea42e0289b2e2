//! Detects whether the controllers are done: every status matches the existing objects. A pause without events is not
//! enough.

use anyhow::Result;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet},
    core::v1::Pod,
};
use kube::{ResourceExt, api::ListParams};
use windlass_suite::Context;

/// Whether every status has observed the current generation and counts the existing pods.
pub(crate) async fn is_settled(ctx: &Context) -> Result<bool> {
    let all = ListParams::default();
    let deployments = ctx.api::<Deployment>().list(&all).await?.items;
    let sets = ctx.api::<ReplicaSet>().list(&all).await?.items;
    let daemons = ctx.api::<DaemonSet>().list(&all).await?.items;
    let pods = ctx.api::<Pod>().list(&all).await?.items;
    let observed = |generation: Option<i64>, observed: Option<i64>| observed == generation;
    Ok(deployments.iter().all(|deployment| {
        let status = deployment.status.clone().unwrap_or_default();
        let own = sets.iter().filter(|set| is_owned(*set, &deployment.name_any()));
        let ready: i32 = own.filter_map(|set| set.status.as_ref()?.ready_replicas).sum();
        observed(deployment.metadata.generation, status.observed_generation)
            && status.ready_replicas.unwrap_or_default() == ready
    }) && sets.iter().all(|set| {
        let status = set.status.clone().unwrap_or_default();
        let own: Vec<_> = pods
            .iter()
            .filter(|pod| is_owned(*pod, &set.name_any()))
            .collect();
        let active = own.iter().filter(|pod| is_active(pod));
        let ready = active.clone().filter(|pod| is_ready(pod)).count();
        let fails = status.conditions.is_some();
        let wanted = set.spec.as_ref().and_then(|spec| spec.replicas);
        observed(set.metadata.generation, status.observed_generation)
            && (fails || Some(status.replicas) == wanted)
            && usize::try_from(status.replicas).ok() == Some(active.count())
            && usize::try_from(status.ready_replicas.unwrap_or_default()).ok() == Some(ready)
    }) && daemons.iter().all(|set| {
        let status = set.status.clone().unwrap_or_default();
        let wanted = status.current_number_scheduled == status.desired_number_scheduled;
        observed(set.metadata.generation, status.observed_generation) && wanted
    }))
}

fn is_owned(object: &impl ResourceExt, owner: &str) -> bool {
    let mut owners = object.owner_references().iter();
    owners.any(|reference| reference.name == owner)
}

fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Failed" | "Succeeded"))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    let mut conditions = conditions.unwrap_or_default().iter();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

//! Predicates on pods, and their creation and deletion by controllers.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use k8s_openapi::{
    api::core::v1::{Pod, PodCondition, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
    jiff::{SignedDuration, Timestamp},
};
use kube::Resource;
use windlass_api::conditions;
use windlass_runtime::{Context, DeleteOutcome, WriteError, events::Regarding};

use super::{name, namespace, writer};

/// The maximum length of names.
const MAX_NAME_LENGTH: usize = 253;

/// The first batch is small, because a template that the server rejects fails for every pod.
const FIRST_BATCH: usize = 1;

pub(super) fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// Whether the pod is neither finished nor being deleted.
pub(super) fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Whether the pod is being deleted but not finished.
pub(super) fn is_terminating(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_some()
}

pub(super) fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

fn ready_condition(pod: &Pod) -> Option<&PodCondition> {
    conditions::find(pod, "Ready")
}

pub(super) fn is_ready(pod: &Pod) -> bool {
    ready_condition(pod).is_some_and(|condition| condition.status == "True")
}

/// Returns since when the pod has been ready, if it is.
pub(super) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = ready_condition(pod).filter(|condition| condition.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Whether the pod has been ready for `min_ready_seconds`.
pub(super) fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    if min_ready_seconds == 0 {
        return is_ready(pod);
    }
    available_from(pod, min_ready_seconds).is_some_and(|from| from <= now)
}

/// Returns when the pod will have been ready for `min_ready_seconds`, if it stays ready.
pub(super) fn available_from(pod: &Pod, min_ready_seconds: i32) -> Option<Timestamp> {
    let wait = SignedDuration::from_secs(min_ready_seconds.into());
    ready_since(pod)?.checked_add(wait).ok()
}

/// Returns the time until the next of these pods becomes available.
pub(super) fn next_available(pods: &[Arc<Pod>], min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    let times = pods
        .iter()
        .filter_map(|pod| available_from(pod, min_ready_seconds));
    let next = times.filter(|time| *time > now).min()?;
    Duration::try_from(next.duration_since(now)).ok()
}

/// Builds a pod from a template, with a `generateName`.
pub(super) fn from_template(
    template: &PodTemplateSpec,
    owner: &impl Resource,
    controller: OwnerReference,
) -> Pod {
    let described = template.metadata.clone().unwrap_or_default();
    let mut prefix = format!("{}-", name(owner));
    if prefix.len() > MAX_NAME_LENGTH {
        prefix.truncate(MAX_NAME_LENGTH);
    }
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(prefix),
            namespace: Some(namespace(owner).to_owned()),
            labels: described.labels,
            annotations: described.annotations,
            finalizers: described.finalizers,
            owner_references: Some(vec![controller]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// Creates pods in batches that double in size, and stops after a batch with a failure. Records events on the owner.
/// Returns the first failure.
pub(super) async fn create<How>(
    ctx: &Context,
    owner: &impl Regarding<How>,
    pods: &[Pod],
) -> Result<(), WriteError> {
    let mut rest = pods;
    let mut size = FIRST_BATCH;
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(size.min(rest.len()));
        let outcomes = join_all(batch.iter().map(|pod| create_one(ctx, owner, pod))).await;
        outcomes.into_iter().collect::<Result<(), _>>()?;
        (rest, size) = (later, size * 2);
    }
    Ok(())
}

async fn create_one<How>(ctx: &Context, owner: &impl Regarding<How>, pod: &Pod) -> Result<(), WriteError> {
    match writer(ctx).create(pod).await {
        Ok(created) => {
            let message = format!("Created pod: {}", name(&created));
            ctx.recorder().normal(owner, "SuccessfulCreate", message);
            Ok(())
        }
        // Every creation would fail, and the owner will be deleted too.
        Err(error) if error.is_namespace_terminating() => Ok(()),
        Err(error) => {
            let message = format!("Error creating: {}", error_message(&error));
            ctx.recorder().warning(owner, "FailedCreate", message);
            Err(error)
        }
    }
}

/// Deletes pods concurrently, and records events on the owner. Ignores pods that no longer exist.
pub(super) async fn delete<How>(
    ctx: &Context,
    owner: &impl Regarding<How>,
    pods: &[Arc<Pod>],
) -> Result<(), WriteError> {
    let outcomes = join_all(pods.iter().map(|pod| delete_one(ctx, owner, pod))).await;
    outcomes.into_iter().collect()
}

async fn delete_one<How>(ctx: &Context, owner: &impl Regarding<How>, pod: &Pod) -> Result<(), WriteError> {
    match writer(ctx).delete(pod).await {
        Ok(DeleteOutcome::AlreadyGone) => Ok(()),
        Ok(_) => {
            let message = format!("Deleted pod: {}", name(pod));
            ctx.recorder().normal(owner, "SuccessfulDelete", message);
            Ok(())
        }
        Err(error) => {
            let message = format!("Error deleting: {}", error_message(&error));
            ctx.recorder().warning(owner, "FailedDelete", message);
            Err(error)
        }
    }
}

/// Returns the server's message, if the error has one.
pub(super) fn error_message(error: &WriteError) -> String {
    let status = error.status().map(|status| status.message.clone());
    status
        .filter(|message| !message.is_empty())
        .unwrap_or_else(|| error.to_string())
}

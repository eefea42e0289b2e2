//! Computes the status of a ReplicaSet.

use std::sync::Arc;

use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use windlass_api::conditions;

use super::{
    super::{omit_zero, pod, to_count},
    min_ready_seconds, replicas,
};

const FAILURE: &str = "ReplicaFailure";

/// The pods and failures that one reconcile found.
pub(super) struct Observed<'a> {
    pub(super) active: &'a [Arc<Pod>],
    pub(super) terminating: usize,
    /// Why pods could not be created or deleted.
    pub(super) failure: Option<&'a str>,
    pub(super) now: Timestamp,
}

/// Computes the status.
pub(super) fn status(set: &ReplicaSet, found: &Observed<'_>) -> ReplicaSetStatus {
    let before = set.status.clone().unwrap_or_default();
    let active = found.active;
    let ready = active.iter().filter(|pod| pod::is_ready(pod));
    let wait = min_ready_seconds(set);
    let available = active
        .iter()
        .filter(|pod| pod::is_available(pod, wait, found.now));
    let labelled = active.iter().filter(|pod| has_labels_of_template(set, pod));
    ReplicaSetStatus {
        replicas: to_count(active.len()),
        fully_labeled_replicas: omit_zero(to_count(labelled.count())),
        ready_replicas: omit_zero(to_count(ready.count())),
        available_replicas: omit_zero(to_count(available.count())),
        terminating_replicas: Some(to_count(found.terminating)),
        observed_generation: set.metadata.generation,
        conditions: conditions(set, before.conditions, found),
    }
}

fn has_labels_of_template(set: &ReplicaSet, pod: &Pod) -> bool {
    let spec = set.spec.as_ref();
    let template = spec.and_then(|spec| spec.template.as_ref()?.metadata.as_ref());
    let wanted = template.and_then(|template| template.labels.as_ref());
    let labels = pod.metadata.labels.as_ref();
    let has = |key: &String, value| labels.is_some_and(|labels| labels.get(key) == Some(value));
    wanted.into_iter().flatten().all(|(key, value)| has(key, value))
}

/// Sets or removes the failure condition. An existing one keeps its first message.
fn conditions(
    set: &ReplicaSet,
    before: Option<Vec<ReplicaSetCondition>>,
    found: &Observed<'_>,
) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions = before.unwrap_or_default();
    let known = conditions::find(&conditions, FAILURE).is_some();
    match found.failure {
        Some(failure) if !known => conditions.push(ReplicaSetCondition {
            type_: FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: reason(to_count(found.active.len()), replicas(set)),
            message: Some(failure.to_owned()),
            last_transition_time: Some(Time(found.now)),
        }),
        None => conditions.retain(|condition| condition.type_ != FAILURE),
        Some(_) => {}
    }
    (!conditions.is_empty()).then_some(conditions)
}

fn reason(active: i32, wanted: i32) -> Option<String> {
    match active.cmp(&wanted) {
        std::cmp::Ordering::Less => Some("FailedCreate".to_owned()),
        std::cmp::Ordering::Greater => Some("FailedDelete".to_owned()),
        std::cmp::Ordering::Equal => None,
    }
}

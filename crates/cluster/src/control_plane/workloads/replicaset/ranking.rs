//! Ranks the pods of a ReplicaSet for deletion.

use std::{cmp::Ordering, collections::HashMap, sync::Arc};

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};

use super::super::{pod, uid};

/// Set by users: pods with lower cost are deleted first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Sorts pods, first to delete first: unassigned or not running pods, then those with lower deletion cost, more siblings on
/// their node, later readiness, more restarts, later creation.
///
/// `siblings` are the pods of all ReplicaSets with the same controller, including `pods`.
pub(super) fn sort(pods: &mut [Arc<Pod>], siblings: &[Arc<Pod>], now: Timestamp) {
    let mut on_node: HashMap<&str, usize> = HashMap::new();
    for sibling in siblings.iter().filter(|pod| pod::is_active(pod)) {
        *on_node.entry(node(sibling)).or_default() += 1;
    }
    let together = |pod: &Pod| on_node.get(node(pod)).copied().unwrap_or_default();
    pods.sort_by(|one, other| {
        assigned(one)
            .cmp(&assigned(other))
            .then_with(|| phase(one).cmp(&phase(other)))
            .then_with(|| pod::is_ready(one).cmp(&pod::is_ready(other)))
            .then_with(|| cost(one).cmp(&cost(other)))
            .then_with(|| together(other).cmp(&together(one)))
            .then_with(|| by_age(one, other, ready_since(one), ready_since(other), now))
            .then_with(|| restarts(other).cmp(&restarts(one)))
            .then_with(|| by_age(one, other, created(one), created(other), now))
    });
}

fn node(pod: &Pod) -> &str {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default()
}

fn assigned(pod: &Pod) -> bool {
    !node(pod).is_empty()
}

fn phase(pod: &Pod) -> u8 {
    match pod::phase(pod) {
        "Unknown" => 1,
        "Running" => 2,
        // Pending, and invalid phases.
        _ => 0,
    }
}

fn cost(pod: &Pod) -> i32 {
    let cost = pod
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(DELETION_COST));
    cost.and_then(|cost| cost.parse().ok()).unwrap_or_default()
}

fn ready_since(pod: &Pod) -> Option<Timestamp> {
    // If only one of two is ready, an earlier criterion has decided.
    pod::ready_since(pod)
}

fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// Returns the highest restart count of its containers, and of its sidecars.
fn restarts(pod: &Pod) -> (i32, i32) {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_deref());
    let containers = containers.unwrap_or_default().iter().map(|one| one.restart_count);
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref());
    let is_sidecar = |name: &str| {
        let of_that_name = init
            .unwrap_or_default()
            .iter()
            .find(|container| container.name == name);
        of_that_name.is_some_and(|container| container.restart_policy.as_deref() == Some("Always"))
    };
    let sidecars = status.and_then(|status| status.init_container_statuses.as_deref());
    let sidecars = sidecars
        .unwrap_or_default()
        .iter()
        .filter(|one| is_sidecar(&one.name))
        .map(|one| one.restart_count);
    (
        containers.max().unwrap_or_default(),
        sidecars.max().unwrap_or_default(),
    )
}

/// Sorts younger pods first. Ages of the same order of magnitude count as equal, and the UID decides, so that it is not
/// always the youngest pod that is deleted.
fn by_age(
    one: &Pod,
    other: &Pod,
    since: Option<Timestamp>,
    other_since: Option<Timestamp>,
    now: Timestamp,
) -> Ordering {
    match (since, other_since) {
        (Some(since), Some(other_since)) if since != other_since => magnitude(since, now)
            .cmp(&magnitude(other_since, now))
            .then_with(|| uid(one).cmp(uid(other))),
        (since, other_since) => since.is_some().cmp(&other_since.is_some()),
    }
}

/// Returns the binary logarithm of an age in nanoseconds; -1 for times in the future.
fn magnitude(since: Timestamp, now: Timestamp) -> i64 {
    let age = now.duration_since(since).as_nanos();
    u128::try_from(age)
        .ok()
        .and_then(u128::checked_ilog2)
        .map_or(-1, i64::from)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::core::v1::{ContainerStatus, PodCondition, PodSpec, PodStatus},
        apimachinery::pkg::apis::meta::v1::Time,
    };

    use super::*;

    const NOW: i64 = 1_000_000;

    /// A pod on a node that has been ready since its creation, a thousand seconds ago.
    fn pod(name: &str) -> Pod {
        let then = Some(Time(Timestamp::from_second(NOW - 1000).expect("a time")));
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.uid = Some(name.to_owned());
        pod.metadata.creation_timestamp = then.clone();
        pod.spec = Some(PodSpec {
            node_name: Some("n1".to_owned()),
            ..PodSpec::default()
        });
        pod.status = Some(PodStatus {
            phase: Some("Running".to_owned()),
            conditions: Some(vec![PodCondition {
                type_: "Ready".to_owned(),
                status: "True".to_owned(),
                last_transition_time: then,
                ..PodCondition::default()
            }]),
            ..PodStatus::default()
        });
        pod
    }

    fn changed(name: &str, change: impl FnOnce(&mut Pod, &mut PodStatus)) -> Pod {
        let mut pod = pod(name);
        let mut status = pod.status.take().expect("it has one");
        change(&mut pod, &mut status);
        pod.status = Some(status);
        pod
    }

    fn at(seconds: i64) -> Time {
        Time(Timestamp::from_second(NOW + seconds).expect("a time"))
    }

    fn order(pods: &[Pod], siblings: &[Pod]) -> Vec<String> {
        let mut sorted: Vec<_> = pods.iter().cloned().map(Arc::new).collect();
        let siblings: Vec<_> = siblings.iter().cloned().map(Arc::new).collect();
        sort(
            &mut sorted,
            &siblings,
            Timestamp::from_second(NOW).expect("a time"),
        );
        sorted.iter().map(|pod| uid(&**pod).to_owned()).collect()
    }

    /// Each case differs from an ordinary pod in one property. The pod to delete has the later name, so that only this
    /// property puts it first.
    #[test]
    fn pods_with_least_value_are_deleted_first() {
        let cases: Vec<(&str, Pod)> = vec![
            ("unassigned", changed("z", |pod, _| pod.spec = None)),
            (
                "pending",
                changed("z", |_, status| status.phase = Some("Pending".into())),
            ),
            (
                "unknown",
                changed("z", |_, status| status.phase = Some("Unknown".into())),
            ),
            ("not ready", changed("z", |_, status| status.conditions = None)),
            (
                "cheap",
                changed("z", |pod, _| {
                    pod.metadata.annotations = Some([(DELETION_COST.to_owned(), "-1".to_owned())].into());
                }),
            ),
            (
                "ready later",
                changed("z", |_, status| {
                    let ready = &mut status.conditions.as_mut().expect("it has some")[0];
                    ready.last_transition_time = Some(at(-1));
                }),
            ),
            (
                "restarted",
                changed("z", |_, status| {
                    status.container_statuses = Some(vec![ContainerStatus {
                        restart_count: 1,
                        ..ContainerStatus::default()
                    }]);
                }),
            ),
            (
                "younger",
                changed("z", |pod, _| pod.metadata.creation_timestamp = Some(at(-1))),
            ),
        ];
        for (what, worse) in cases {
            assert_eq!(order(&[pod("a"), worse], &[]), ["z", "a"], "{what}");
        }
    }

    #[test]
    fn pod_with_more_siblings_on_its_node_is_deleted_first() {
        let elsewhere = changed("a", |pod, _| {
            pod.spec.as_mut().expect("it has one").node_name = Some("n2".into());
        });
        let siblings = [pod("z"), pod("y"), elsewhere.clone()];
        assert_eq!(order(&[elsewhere, pod("z")], &siblings), ["z", "a"]);
    }

    #[test]
    fn ages_of_the_same_magnitude_sort_by_uid() {
        let older = changed("a", |pod, _| pod.metadata.creation_timestamp = Some(at(-1010)));
        assert_eq!(order(&[pod("b"), older], &[]), ["a", "b"]);
    }
}

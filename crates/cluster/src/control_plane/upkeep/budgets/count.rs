//! Computes the status of a budget from its pods and the expected pod count. Pure functions.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{
    api::{
        core::v1::Pod,
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus},
    },
    apimachinery::pkg::{
        apis::meta::v1::{Condition, Time},
        util::intstr::IntOrString,
    },
    jiff::{SignedDuration, Timestamp},
};
use kube::ResourceExt;
use windlass_api::conditions;

/// How long an evicted pod may take until its deletion begins. After that it counts as healthy again.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";

/// The expected number of pods of a budget, and how many of them must be healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Requirement {
    pub(super) expected: i32,
    pub(super) healthy: i32,
}

impl Requirement {
    /// Computes the requirement. `scale` is the total scale of the pods' controllers, if it is needed.
    pub(super) fn of(budget: &PodDisruptionBudget, pods: usize, scale: Option<i32>) -> Self {
        let spec = budget.spec.as_ref();
        let there = i32::try_from(pods).unwrap_or(i32::MAX);
        let expected = scale.unwrap_or(there);
        let healthy = match spec.map(|spec| (&spec.max_unavailable, &spec.min_available)) {
            Some((Some(unavailable), _)) => (expected - resolve_int_or_percent(unavailable, expected)).max(0),
            Some((None, Some(available))) => resolve_int_or_percent(available, expected),
            _ => 0,
        };
        Self { expected, healthy }
    }

    /// Whether the budget depends on the scale of the pods' controllers.
    pub(super) fn needs_scale(budget: &PodDisruptionBudget) -> bool {
        budget.spec.as_ref().is_some_and(|spec| {
            spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
        })
    }
}

/// Resolves a number, or a percentage of `whole`, rounded up.
fn resolve_int_or_percent(value: &IntOrString, whole: i32) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let part = (i64::from(whole) * percent + 99).div_euclid(100);
            i32::try_from(part).unwrap_or(i32::MAX)
        }
    }
}

/// The evicted pods whose deletion has not begun.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct EvictedPods {
    pub(super) pods: BTreeMap<String, Time>,
    /// The time until the first of them counts as healthy again.
    pub(super) until: Option<Duration>,
    /// Evicted pods that were not deleted in time.
    pub(super) overdue: Vec<String>,
}

impl EvictedPods {
    pub(super) fn of(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], now: Timestamp) -> Self {
        let mut evicted = Self::default();
        let noted = budget
            .status
            .as_ref()
            .and_then(|status| status.disrupted_pods.as_ref());
        let staying = pods
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none());
        for pod in staying {
            let name = pod.name_any();
            let Some(at) = noted.and_then(|noted| noted.get(&name)) else {
                continue;
            };
            let rest = (at.0 + DELETION_TIMEOUT).duration_since(now);
            if rest.is_negative() {
                evicted.overdue.push(name);
                continue;
            }
            // Timestamps have whole seconds, so wait for the next one.
            let rest = rest.unsigned_abs() + Duration::from_secs(1);
            evicted.until = Some(evicted.until.map_or(rest, |until| until.min(rest)));
            evicted.pods.insert(name, at.clone());
        }
        evicted
    }
}

/// Computes the budget's status. `None` if it is unchanged.
pub(super) fn status(
    budget: &PodDisruptionBudget,
    requirement: Requirement,
    pods: &[Arc<Pod>],
    evicted: &EvictedPods,
    now: Timestamp,
) -> Option<PodDisruptionBudgetStatus> {
    let healthy = pods
        .iter()
        .filter(|pod| {
            pod.metadata.deletion_timestamp.is_none()
                && !evicted.pods.contains_key(&pod.name_any())
                && is_ready(pod)
        })
        .count();
    let healthy = i32::try_from(healthy).unwrap_or(i32::MAX);
    // A budget without pods allows no disruptions, so it is safe when the first pods appear.
    let allowed = if requirement.expected > 0 {
        (healthy - requirement.healthy).max(0)
    } else {
        0
    };
    let before = budget.status.clone().unwrap_or_default();
    let generation = budget.metadata.generation;
    let (status, reason) = if allowed > 0 {
        ("True", "SufficientPods")
    } else {
        ("False", "InsufficientPods")
    };
    let conditions = with_condition(&before, status, reason, "", generation, now);
    let wanted = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(requirement.healthy),
        expected_pods: Some(requirement.expected),
        disruptions_allowed: Some(allowed),
        disrupted_pods: (!evicted.pods.is_empty()).then(|| evicted.pods.clone()),
        observed_generation: generation,
        conditions: Some(conditions),
    };
    (wanted != before).then_some(wanted)
}

/// Computes the status of a budget whose pods cannot be counted: no disruptions allowed. `None` if it is unchanged.
pub(super) fn failure_status(
    budget: &PodDisruptionBudget,
    why: &str,
    now: Timestamp,
) -> Option<PodDisruptionBudgetStatus> {
    let before = budget.status.clone().unwrap_or_default();
    let observed = before.observed_generation;
    let wanted = PodDisruptionBudgetStatus {
        disruptions_allowed: Some(0),
        conditions: Some(with_condition(&before, "False", "SyncFailed", why, observed, now)),
        ..before.clone()
    };
    (wanted != before).then_some(wanted)
}

fn with_condition(
    before: &PodDisruptionBudgetStatus,
    status: &str,
    reason: &str,
    message: &str,
    observed_generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = before.conditions.clone().unwrap_or_default();
    let wanted = Condition {
        type_: DISRUPTION_ALLOWED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation,
        last_transition_time: Time(now),
    };
    conditions::set(&mut conditions, wanted);
    conditions
}

fn is_ready(pod: &Pod) -> bool {
    conditions::is_true(pod, "Ready")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(spec: &serde_json::Value) -> PodDisruptionBudget {
        let budget = serde_json::json!({"metadata": {"name": "b", "generation": 2}, "spec": spec});
        serde_json::from_value(budget).expect("a budget")
    }

    #[test]
    fn percentages_of_the_scale_round_up() {
        for (spec, pods, scale, expected, healthy) in [
            (serde_json::json!({"minAvailable": 1}), 3, None, 3, 1),
            (serde_json::json!({"minAvailable": "50%"}), 1, Some(3), 3, 2),
            (serde_json::json!({"minAvailable": "100%"}), 1, Some(3), 3, 3),
            (serde_json::json!({"maxUnavailable": 1}), 1, Some(3), 3, 2),
            (serde_json::json!({"maxUnavailable": "30%"}), 4, Some(4), 4, 2),
            (serde_json::json!({"maxUnavailable": 5}), 4, Some(4), 4, 0),
            (serde_json::json!({"maxUnavailable": "0%"}), 0, Some(0), 0, 0),
        ] {
            let budget = budget(&spec);
            assert_eq!(Requirement::needs_scale(&budget), scale.is_some(), "{spec}");
            assert_eq!(
                Requirement::of(&budget, pods, scale),
                Requirement { expected, healthy },
                "{spec}"
            );
        }
    }

    #[test]
    fn evicted_pod_counts_again_after_the_deletion_timeout() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let mut budget = budget(&serde_json::json!({"minAvailable": 1}));
        budget.status = Some(PodDisruptionBudgetStatus {
            disrupted_pods: Some(BTreeMap::from([
                ("a".to_owned(), Time(at(0))),
                ("gone".to_owned(), Time(at(0))),
            ])),
            ..PodDisruptionBudgetStatus::default()
        });
        let pod = serde_json::json!({
            "metadata": {"name": "a"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let pods = [Arc::new(serde_json::from_value::<Pod>(pod).expect("a pod"))];
        let requirement = Requirement::of(&budget, 1, None);
        let healthy = |evicted: &EvictedPods| {
            let status = status(&budget, requirement, &pods, evicted, at(200)).expect("there was none");
            (
                status.current_healthy,
                status.disrupted_pods.map(|pods| pods.len()),
            )
        };
        let evicted = EvictedPods::of(&budget, &pods, at(100));
        assert_eq!(evicted.until, Some(Duration::from_secs(21)));
        assert_eq!(healthy(&evicted), (Some(0), Some(1)));
        let evicted = EvictedPods::of(&budget, &pods, at(121));
        assert_eq!(evicted.overdue, ["a"]);
        assert_eq!(healthy(&evicted), (Some(1), None));
    }
}

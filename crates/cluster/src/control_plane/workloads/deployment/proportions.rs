//! Replica counts during a rollout: surge, unavailability and proportional scaling. Pure arithmetic.

use k8s_openapi::{
    api::apps::v1::{Deployment, ReplicaSet, RollingUpdateDeployment},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::{replicas, revision};
use crate::control_plane::workloads::replicaset;

/// Resolves a number, or a percentage of a total.
pub(crate) fn resolve(value: Option<&IntOrString>, total: i32, round_up: RoundUp) -> i32 {
    match value {
        None => 0,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(text)) => {
            let percent = text
                .strip_suffix('%')
                .and_then(|number| number.parse::<i64>().ok());
            let hundredfold = percent.unwrap_or_default() * i64::from(total);
            let share = match round_up {
                RoundUp::Yes => hundredfold.div_euclid(100) + i64::from(hundredfold.rem_euclid(100) > 0),
                RoundUp::No => hundredfold.div_euclid(100),
            };
            i32::try_from(share).unwrap_or(i32::MAX)
        }
    }
}

/// Whether a percentage rounds up or down.
#[derive(Clone, Copy)]
pub(crate) enum RoundUp {
    Yes,
    No,
}

fn rolling(deployment: &Deployment) -> Option<RollingUpdateDeployment> {
    let strategy = deployment.spec.as_ref()?.strategy.as_ref()?;
    let is_rolling = strategy.type_.as_deref() == Some("RollingUpdate");
    is_rolling.then(|| strategy.rolling_update.clone().unwrap_or_default())
}

pub(super) fn is_rolling(deployment: &Deployment) -> bool {
    rolling(deployment).is_some()
}

/// Returns how many more replicas than `spec.replicas` may exist.
pub(super) fn max_surge(deployment: &Deployment) -> i32 {
    let Some(rolling) = rolling(deployment) else {
        return 0;
    };
    resolve(rolling.max_surge.as_ref(), replicas(deployment), RoundUp::Yes)
}

/// Returns how many of `spec.replicas` may be unavailable.
pub(super) fn max_unavailable(deployment: &Deployment) -> i32 {
    let wanted = replicas(deployment);
    let Some(rolling) = rolling(deployment).filter(|_| wanted > 0) else {
        return 0;
    };
    let unavailable = resolve(rolling.max_unavailable.as_ref(), wanted, RoundUp::No);
    // If both round to zero, no rollout could progress.
    let stuck = unavailable == 0 && max_surge(deployment) == 0;
    if stuck { 1 } else { unavailable.min(wanted) }
}

/// Returns the size to which the new ReplicaSet may grow now.
pub(super) fn new_replicas(deployment: &Deployment, all: i32, new: i32) -> i32 {
    let wanted = replicas(deployment);
    if !is_rolling(deployment) {
        return wanted;
    }
    let room = wanted + max_surge(deployment) - all;
    if room <= 0 {
        return new;
    }
    new + room.min(wanted - new)
}

/// Returns the new sizes of these ReplicaSets when the Deployment is scaled during a rollout, in proportion to their size.
/// `sets` must be sorted: biggest first, and of equal ones the one to prefer.
pub(super) fn proportional(deployment: &Deployment, sets: &[&ReplicaSet]) -> Vec<i32> {
    let mut sizes: Vec<_> = sets.iter().map(|set| replicaset::replicas(set)).collect();
    let to_add = replicas_to_add(deployment, sizes.iter().sum());
    if to_add == 0 {
        return sizes;
    }
    let mut added = 0;
    for (set, size) in sets.iter().zip(&mut sizes) {
        let share = share(deployment, set, to_add, added);
        *size += share;
        added += share;
    }
    // The biggest gets the rounding remainder.
    if let Some(first) = sizes.first_mut() {
        *first = (*first + to_add - added).max(0);
    }
    sizes
}

/// Returns how many replicas may be added; negative if some must be removed.
pub(super) fn replicas_to_add(deployment: &Deployment, all: i32) -> i32 {
    let allowed = match replicas(deployment) {
        0 => 0,
        wanted => wanted + max_surge(deployment),
    };
    allowed - all
}

fn share(deployment: &Deployment, set: &ReplicaSet, to_add: i32, added: i32) -> i32 {
    if replicaset::replicas(set) == 0 || to_add == added {
        return 0;
    }
    let (fraction, allowed) = (fraction(deployment, set), to_add - added);
    if to_add > 0 {
        fraction.min(allowed)
    } else {
        fraction.max(allowed)
    }
}

/// Returns the change of size with which the ReplicaSet keeps its proportion.
fn fraction(deployment: &Deployment, set: &ReplicaSet) -> i32 {
    let size = replicaset::replicas(set);
    let wanted = replicas(deployment);
    if wanted == 0 {
        return -size;
    }
    let status = deployment.status.as_ref();
    // Without a valid annotation of the previous size, use the current one.
    let before = revision::number_annotation(set, revision::MAX_REPLICAS_ANNOTATION)
        .filter(|before| *before > 0)
        .or_else(|| status.and_then(|status| status.replicas))
        .unwrap_or_default();
    if before == 0 {
        return 0;
    }
    let whole = i64::from(wanted + max_surge(deployment));
    // Half rounds up; all of these are positive.
    let grown = (2 * i64::from(size) * whole + i64::from(before)) / (2 * i64::from(before));
    i32::try_from(grown).unwrap_or(i32::MAX) - size
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::{DeploymentSpec, DeploymentStrategy, ReplicaSetSpec};

    use super::*;

    fn deployment(wanted: i32, surge: &str, unavailable: &str) -> Deployment {
        let value = |text: &str| match text.parse() {
            Ok(number) => IntOrString::Int(number),
            Err(_) => IntOrString::String(text.to_owned()),
        };
        Deployment {
            spec: Some(DeploymentSpec {
                replicas: Some(wanted),
                strategy: Some(DeploymentStrategy {
                    type_: Some("RollingUpdate".to_owned()),
                    rolling_update: Some(RollingUpdateDeployment {
                        max_surge: Some(value(surge)),
                        max_unavailable: Some(value(unavailable)),
                    }),
                }),
                ..DeploymentSpec::default()
            }),
            ..Deployment::default()
        }
    }

    fn set(size: i32, max: &str) -> ReplicaSet {
        let mut set = ReplicaSet {
            spec: Some(ReplicaSetSpec {
                replicas: Some(size),
                ..ReplicaSetSpec::default()
            }),
            ..ReplicaSet::default()
        };
        set.metadata.annotations =
            Some([(revision::MAX_REPLICAS_ANNOTATION.to_owned(), max.to_owned())].into());
        set
    }

    #[test]
    fn surge_rounds_up_unavailability_down_and_not_both_to_zero() {
        for (wanted, surge, unavailable, expected) in [
            (10, "25%", "25%", (3, 2)),
            (1, "25%", "25%", (1, 0)),
            (4, "0", "20%", (0, 1)),
            (3, "2", "5", (2, 3)),
            (0, "25%", "25%", (0, 0)),
            (3, "0%", "0%", (0, 1)),
        ] {
            let deployment = deployment(wanted, surge, unavailable);
            let found = (max_surge(&deployment), max_unavailable(&deployment));
            assert_eq!(found, expected, "{wanted} {surge} {unavailable}");
        }
    }

    #[test]
    fn new_replica_set_grows_within_the_surge() {
        let deployment = deployment(10, "30%", "0");
        for (all, new, expected) in [
            (10, 0, 3),
            (13, 3, 3),
            (12, 3, 4),
            (5, 0, 8),
            (9, 9, 10),
            (14, 2, 2),
        ] {
            assert_eq!(new_replicas(&deployment, all, new), expected, "{all} {new}");
        }
    }

    #[test]
    fn scaling_during_a_rollout_is_proportional() {
        for (wanted, sizes, max, expected) in [
            (20, vec![8, 5], "13", vec![14, 9]),
            (5, vec![8, 5], "13", vec![5, 3]),
            (0, vec![8, 5], "13", vec![0, 0]),
            (10, vec![8, 5], "13", vec![8, 5]),
            (12, vec![5, 5, 3], "13", vec![6, 6, 3]),
            (20, vec![8, 5], "none", vec![18, 5]),
        ] {
            let deployment = deployment(wanted, "3", "2");
            let sets: Vec<_> = sizes.iter().map(|size| set(*size, max)).collect();
            let found = proportional(&deployment, &sets.iter().collect::<Vec<_>>());
            assert_eq!(found, expected, "{wanted} {sizes:?} {max}");
        }
    }
}

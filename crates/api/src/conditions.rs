//! Looks up and sets conditions in a status, of any condition type.
//!
//! ```
//! use serde_json::json;
//! use windlass_api::conditions;
//!
//! let node = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
//! assert!(conditions::is_true(&node, "Ready"));
//! assert!(conditions::find(&node, "DiskPressure").is_none());
//!
//! let mut conditions = node["status"]["conditions"].as_array().unwrap().clone();
//! let not_ready = json!({"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"});
//! assert!(conditions::set(&mut conditions, not_ready));
//! assert!(!conditions::is_true(&conditions, "Ready"));
//! ```

use serde_json::Value;

/// A condition: a type, such as `Ready`, and a status. Implemented for JSON, and with the feature `kube` for the condition
/// types of `k8s-openapi`.
pub trait Condition {
    /// Returns the type.
    fn condition_type(&self) -> &str;

    /// Returns the status: `True`, `False` or `Unknown`.
    fn status(&self) -> &str;
}

/// A condition with the time of its last transition, for [`set`].
pub trait Transition: Condition + PartialEq {
    /// Takes the time of the last transition from an earlier state of the condition, if that has one.
    fn copy_transition_time(&mut self, from: &Self);
}

/// Something with conditions: an object, or a list of conditions.
pub trait HasConditions {
    /// The type of the conditions.
    type Condition: Condition;

    /// Returns the conditions.
    fn conditions(&self) -> &[Self::Condition];
}

/// Returns the condition of this type.
pub fn find<'a, T: HasConditions + ?Sized>(of: &'a T, kind: &str) -> Option<&'a T::Condition> {
    of.conditions()
        .iter()
        .find(|condition| condition.condition_type() == kind)
}

/// Whether the condition is `True`. A missing or unknown condition is not.
pub fn is_true<T: HasConditions + ?Sized>(of: &T, kind: &str) -> bool {
    has_status(of, kind, "True")
}

/// Whether there is a condition of this type with this status.
pub fn has_status<T: HasConditions + ?Sized>(of: &T, kind: &str, status: &str) -> bool {
    find(of, kind).is_some_and(|condition| condition.status() == status)
}

/// Sets a condition. It replaces the one of its type, and keeps that one's place; a new type goes to the end. The time of the
/// last transition changes only with the status.
///
/// Returns whether anything changed; an unchanged status need not be written.
pub fn set<C: Transition>(conditions: &mut Vec<C>, mut condition: C) -> bool {
    let same_type = |known: &&mut C| known.condition_type() == condition.condition_type();
    let Some(known) = conditions.iter_mut().find(same_type) else {
        conditions.push(condition);
        return true;
    };
    keep_transition_time(&mut condition, Some(known));
    let changed = *known != condition;
    *known = condition;
    changed
}

/// Keeps the time of the last transition if the condition has the same status as before. [`set`] does so; this is for lists
/// that are computed as a whole.
pub fn keep_transition_time<C: Transition>(condition: &mut C, before: Option<&C>) {
    if let Some(before) = before.filter(|before| before.status() == condition.status()) {
        condition.copy_transition_time(before);
    }
}

impl<C: Condition> HasConditions for [C] {
    type Condition = C;

    fn conditions(&self) -> &[C] {
        self
    }
}

impl<C: Condition> HasConditions for Vec<C> {
    type Condition = C;

    fn conditions(&self) -> &[C] {
        self
    }
}

/// An object in JSON, with its conditions in the status.
impl HasConditions for Value {
    type Condition = Value;

    fn conditions(&self) -> &[Value] {
        let conditions = self["status"]["conditions"].as_array();
        conditions.map_or(&[], Vec::as_slice)
    }
}

impl Condition for Value {
    fn condition_type(&self) -> &str {
        self["type"].as_str().unwrap_or_default()
    }

    fn status(&self) -> &str {
        self["status"].as_str().unwrap_or_default()
    }
}

impl Transition for Value {
    fn copy_transition_time(&mut self, from: &Self) {
        let time = &from["lastTransitionTime"];
        if time.is_string() {
            self["lastTransitionTime"] = time.clone();
        }
    }
}

#[cfg(feature = "kube")]
mod typed {
    use k8s_openapi::{
        api::{
            apps::v1::{
                DaemonSet, DaemonSetCondition, Deployment, DeploymentCondition, ReplicaSet,
                ReplicaSetCondition, StatefulSet, StatefulSetCondition,
            },
            batch::v1::{Job, JobCondition},
            core::v1::{Namespace, NamespaceCondition, Node, NodeCondition, Pod, PodCondition},
        },
        apiextensions_apiserver::pkg::apis::apiextensions::v1::{
            CustomResourceDefinition, CustomResourceDefinitionCondition,
        },
        apimachinery::pkg::apis::meta::v1::{self, Time},
    };

    use super::{Condition, HasConditions, Transition};

    macro_rules! condition {
        ($condition:ty) => {
            impl Condition for $condition {
                fn condition_type(&self) -> &str {
                    &self.type_
                }

                fn status(&self) -> &str {
                    &self.status
                }
            }

            impl Transition for $condition {
                fn copy_transition_time(&mut self, from: &Self) {
                    copy_time(&mut self.last_transition_time, &from.last_transition_time);
                }
            }
        };
    }

    /// The time is required in `meta/v1`, and optional elsewhere.
    trait TransitionTime: Clone {
        fn is_set(&self) -> bool;
    }

    impl TransitionTime for Time {
        fn is_set(&self) -> bool {
            true
        }
    }

    impl TransitionTime for Option<Time> {
        fn is_set(&self) -> bool {
            self.is_some()
        }
    }

    fn copy_time<T: TransitionTime>(to: &mut T, from: &T) {
        if from.is_set() {
            to.clone_from(from);
        }
    }

    macro_rules! conditions {
        ($($object:ty: $condition:ty),* $(,)?) => {
            $(condition!($condition);

            impl HasConditions for $object {
                type Condition = $condition;

                fn conditions(&self) -> &[$condition] {
                    let status = self.status.as_ref();
                    let conditions = status.and_then(|status| status.conditions.as_deref());
                    conditions.unwrap_or_default()
                }
            })*
        };
    }

    condition!(v1::Condition);
    conditions!(
        CustomResourceDefinition: CustomResourceDefinitionCondition,
        DaemonSet: DaemonSetCondition,
        Deployment: DeploymentCondition,
        Job: JobCondition,
        Namespace: NamespaceCondition,
        Node: NodeCondition,
        Pod: PodCondition,
        ReplicaSet: ReplicaSetCondition,
        StatefulSet: StatefulSetCondition,
    );
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn condition_is_found_by_type_and_status() {
        let conditions = vec![
            json!({"type": "Ready", "status": "False", "reason": "A"}),
            json!({"type": "Synced", "status": "Unknown"}),
            json!({"status": "True"}),
        ];
        assert_eq!(find(&conditions, "Ready"), Some(&conditions[0]));
        assert_eq!(find(&conditions[1..], "Ready"), None);
        assert!(!is_true(&conditions, "Ready") && !is_true(&conditions, "Other"));
        assert!(has_status(&conditions, "Synced", "Unknown"));
        assert!(!has_status(&conditions, "Ready", "Unknown"));
        let object = json!({"status": {"conditions": conditions}});
        assert_eq!(
            find(&object, "Ready").map(|found| &found["reason"]),
            Some(&json!("A"))
        );
        for object in [
            json!({}),
            json!({"status": null}),
            json!({"status": {"conditions": 1}}),
        ] {
            assert_eq!(find(&object, "Ready"), None);
        }
    }

    #[test]
    fn transition_time_changes_only_with_the_status() {
        let condition = |kind: &str, status: &str, reason: &str, time: Option<&str>| json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": time});
        let mut conditions = vec![
            condition("Ready", "False", "A", Some("1")),
            condition("Synced", "True", "A", None),
        ];
        assert!(set(&mut conditions, condition("Ready", "False", "B", Some("2"))));
        assert!(
            !set(&mut conditions, condition("Ready", "False", "B", Some("3"))),
            "nothing but the time"
        );
        assert!(
            set(&mut conditions, condition("Synced", "True", "A", Some("4"))),
            "without a time before"
        );
        assert!(set(&mut conditions, condition("Other", "True", "A", Some("5"))));
        let expected = [
            condition("Ready", "False", "B", Some("1")),
            condition("Synced", "True", "A", Some("4")),
            condition("Other", "True", "A", Some("5")),
        ];
        assert_eq!(conditions, expected);
        assert!(set(&mut conditions, condition("Ready", "True", "B", Some("6"))));
        assert_eq!(conditions[0], condition("Ready", "True", "B", Some("6")));
    }

    #[cfg(feature = "kube")]
    #[test]
    fn typed_conditions_are_set() {
        use k8s_openapi::{api::core::v1::NodeCondition, apimachinery::pkg::apis::meta::v1};
        let typed = |status: &str, time: &str| json!({"type": "Ready", "status": status, "reason": "A", "message": "", "lastTransitionTime": time});
        let times = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"];
        let [old, new] = times.map(|time| typed("True", time));
        let read = |value: &serde_json::Value| -> v1::Condition {
            serde_json::from_value(value.clone()).expect("a condition")
        };
        let mut conditions = vec![read(&old)];
        assert!(!set(&mut conditions, read(&new)));
        assert!(set(&mut conditions, read(&typed("False", times[1]))));
        assert_eq!(conditions, [read(&typed("False", times[1]))]);

        let read = |value: &serde_json::Value| -> NodeCondition {
            serde_json::from_value(value.clone()).expect("a condition")
        };
        let mut condition = read(&new);
        keep_transition_time(&mut condition, Some(&read(&old)));
        assert_eq!(condition, read(&old));
        let timeless = NodeCondition {
            last_transition_time: None,
            ..read(&old)
        };
        keep_transition_time(&mut condition, Some(&timeless));
        assert_eq!(condition, read(&old), "a missing time is not copied");
    }

    #[cfg(feature = "kube")]
    #[test]
    fn typed_conditions_are_found() {
        use k8s_openapi::api::core::v1::Pod;
        let pod: Pod = serde_json::from_value(json!({
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .expect("a pod");
        assert!(is_true(&pod, "Ready"));
        assert!(find(&pod, "Initialized").is_none());
        assert!(!is_true(&Pod::default(), "Ready"));
    }
}

//! Looks up conditions in a status, of any condition type.
//!
//! ```
//! use serde_json::json;
//! use windlass_api::conditions;
//!
//! let node = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
//! assert!(conditions::is_true(&node, "Ready"));
//! assert!(conditions::find(&node, "DiskPressure").is_none());
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
        apimachinery::pkg::apis::meta::v1,
    };

    use super::{Condition, HasConditions};

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
        };
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

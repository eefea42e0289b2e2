//! The Foo resource.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass::kube::{CustomResource, core::crd::CustomResourceExt};

/// Asks for a Deployment with this name and size.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    crates(kube_core = "windlass::kube::core", k8s_openapi = "windlass::k8s_openapi"),
    group = "samplecontroller.k8s.io",
    version = "v1alpha1",
    kind = "Foo",
    doc = "Asks for a Deployment.",
    namespaced,
    status = "FooStatus",
    // The server refuses CRDs in this group without it.
    annotation(
        "api-approved.kubernetes.io",
        "unapproved, experimental-only; please get an approval from Kubernetes API reviewers if you're trying to develop a CRD in the *.k8s.io or *.kubernetes.io groups"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct FooSpec {
    /// The name of the Deployment, in the Foo's namespace. Empty: nothing is done.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub deployment_name: String,
    /// How many replicas. Left out: one at first, and then whatever somebody sets on the Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10))]
    pub replicas: Option<i32>,
}

/// What is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FooStatus {
    /// How many replicas of the Deployment are available.
    #[serde(default)]
    pub available_replicas: i32,
}

/// The definition to install before the controller can start; it waits until then.
pub fn crd()
-> windlass::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition {
    Foo::crd()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Statement 1: what upstream's definition says, this one says too. It says more in three places: the fields are
    /// described, `spec` must be there, and a null counts as left out.
    #[test]
    fn the_definition_is_upstreams() {
        fn assert_within(expected: &Value, actual: &Value, path: &str) {
            match (expected, actual) {
                (Value::Object(expected), Value::Object(actual)) => {
                    for (name, expected) in expected {
                        let found = actual
                            .get(name)
                            .unwrap_or_else(|| panic!("{path}.{name} is missing"));
                        assert_within(expected, found, &format!("{path}.{name}"));
                    }
                }
                (Value::Array(expected), Value::Array(actual)) => {
                    assert_eq!(expected.len(), actual.len(), "{path}");
                    for (expected, actual) in expected.iter().zip(actual) {
                        assert_within(expected, actual, path);
                    }
                }
                (Value::Number(expected), Value::Number(actual)) => {
                    assert_eq!(expected.as_f64(), actual.as_f64(), "{path}");
                }
                _ => assert_eq!(expected, actual, "{path}"),
            }
        }
        let upstream = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": "foos.samplecontroller.k8s.io",
                "annotations": {
                    "api-approved.kubernetes.io": "unapproved, experimental-only; please get an approval from Kubernetes API reviewers if you're trying to develop a CRD in the *.k8s.io or *.kubernetes.io groups"
                },
            },
            "spec": {
                "group": "samplecontroller.k8s.io",
                "names": { "kind": "Foo", "plural": "foos" },
                "scope": "Namespaced",
                "versions": [{
                    "name": "v1alpha1",
                    "served": true,
                    "storage": true,
                    "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                        "spec": { "type": "object", "properties": {
                            "deploymentName": { "type": "string" },
                            "replicas": { "type": "integer", "minimum": 1, "maximum": 10 },
                        } },
                        "status": { "type": "object", "properties": { "availableReplicas": { "type": "integer" } } },
                    } } },
                    "subresources": { "status": {} },
                }],
            },
        });
        assert_within(
            &upstream,
            &serde_json::to_value(crd()).expect("it serialises"),
            "crd",
        );
    }

    #[test]
    fn a_foo_with_an_empty_spec_and_status_can_be_read() {
        let foo: Foo = serde_json::from_value(json!({
            "apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "metadata": {}, "spec": {}, "status": {},
        }))
        .expect("it decodes");
        assert_eq!(
            (foo.spec, foo.status),
            (FooSpec::default(), Some(FooStatus::default()))
        );
    }
}

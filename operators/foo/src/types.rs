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

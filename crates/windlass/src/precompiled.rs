//! Compiles the decoding of common kinds here, once.
//!
//! rustc reuses the generic code that a dependency has compiled, unless it optimizes for speed: in a debug build, and in
//! one for size, a controller's crate need not compile the decoding of a pod or a CRD again. What is not used is not
//! linked.

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Namespace, Node, Pod, Secret, Service},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Of objects in a cache and in responses.
#[used]
static FROM_TEXT: [fn(&str) -> bool; 7] = [
    from_text::<ConfigMap>,
    from_text::<Deployment>,
    from_text::<Namespace>,
    from_text::<Node>,
    from_text::<Pod>,
    from_text::<Secret>,
    from_text::<Service>,
];

/// Of objects from `json!`, and of the CRDs that [`resource`](crate::resource) generates.
#[used]
static FROM_VALUE: [fn(Value) -> bool; 4] = [
    from_value::<ConfigMap>,
    from_value::<CustomResourceDefinition>,
    from_value::<Deployment>,
    from_value::<Service>,
];

fn from_text<K: DeserializeOwned>(text: &str) -> bool {
    serde_json::from_str::<K>(text).is_ok()
}

fn from_value<K: DeserializeOwned>(value: Value) -> bool {
    serde_json::from_value::<K>(value).is_ok()
}

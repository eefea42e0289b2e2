//! The definition that is installed, and the size of the example.

use serde_json::{Value, json};
use windlass::prelude::*;
use windlass_foo::{Foo, FooSpec, FooStatus};

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
        &serde_json::to_value(Foo::crd()).expect("it serialises"),
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
        (
            FooSpec {
                deployment_name: String::new(),
                replicas: None
            },
            Some(FooStatus {
                available_replicas: 0
            })
        )
    );
}

/// The facade promises a whole controller in at most 45 lines of its author's: types, what should be there, and `main`.
#[test]
fn the_whole_controller_is_at_most_45_lines() {
    let mut lines = 0;
    for source in [include_str!("../src/lib.rs"), include_str!("../src/main.rs")] {
        // Comments, and the lint that takes the kind's name for a placeholder, are not what it takes.
        let code = source.replace(LINT, "");
        let written = code
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with("//"));
        lines += written.count();
    }
    assert!(lines <= 45, "{lines} lines");
    assert!(lines > 30, "{lines} lines: is it all there?");
}

const LINT: &str = "#![allow(
    clippy::disallowed_names,
    reason = \"here, foo is not a placeholder: it is what the kind is called\"
)]";

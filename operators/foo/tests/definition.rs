//! The CRD, and the size of the example.

use serde_json::{Value, json};
use windlass::prelude::*;
use windlass_foo::{Foo, FooSpec, FooStatus};

/// The CRD contains all of upstream's. It adds three things: descriptions, a required `spec`, and nullable optional fields.
#[test]
fn crd_contains_upstream_crd() {
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
    let upstream = serde_yaml_ng::from_str(include_str!("upstream-crd.yaml")).expect("a manifest");
    assert_within(
        &upstream,
        &serde_json::to_value(Foo::crd()).expect("it serialises"),
        "crd",
    );
}

#[test]
fn foo_with_empty_spec_and_status_decodes() {
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

/// The facade promises a whole controller in at most 45 lines: types, desired state and `main`.
#[test]
fn the_whole_controller_is_at_most_45_lines() {
    let lines = code_lines(LIB).len() + code_lines(MAIN).len();
    assert!(lines <= 45, "{lines} lines");
    assert!(lines > 30, "{lines} lines: is it all there?");
}

/// The facade's example is this controller, in a group that needs no approval.
#[test]
fn facade_example_equals_this_controller() {
    let library = LIB
        .replace(APPROVAL, "")
        .replace("samplecontroller.k8s.io", "example.com")
        .replace("pub ", "");
    let imports = |line: &&str| !line.starts_with("use ");
    let library = code_lines(&library);
    let whole: Vec<_> = library
        .into_iter()
        .chain(code_lines(MAIN).into_iter().filter(imports))
        .collect();
    let shown = include_str!("../../../crates/windlass/examples/foo.rs");
    assert_eq!(code_lines(shown), whole);
}

const LIB: &str = include_str!("../src/lib.rs");
const MAIN: &str = include_str!("../src/main.rs");

/// The lines of code, without comments and the lint exception for the kind's name.
fn code_lines(source: &str) -> Vec<&str> {
    let source = source.split_once(LINT_EXCEPTION).map_or(source, |(_, code)| code);
    let lines = source.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .collect()
}

const LINT_EXCEPTION: &str = "#![allow(
    clippy::disallowed_names,
    reason = \"here, foo is not a placeholder: it is what the kind is called\"
)]";

const APPROVAL: &str = "#[kube(annotation(
    \"api-approved.kubernetes.io\",
    \"unapproved, experimental-only; please get an approval from Kubernetes API reviewers if you're trying to develop a CRD in the *.k8s.io or *.kubernetes.io groups\"
))]
";

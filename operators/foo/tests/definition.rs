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
    let upstream = serde_yaml_ng::from_str(include_str!("upstream-crd.yaml")).expect("a manifest");
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
    let lines = written(LIB).len() + written(MAIN).len();
    assert!(lines <= 45, "{lines} lines");
    assert!(lines > 30, "{lines} lines: is it all there?");
}

/// The facade's page shows this very controller, under a group for which nobody has to be asked.
#[test]
fn the_facade_walks_through_this_controller() {
    let library = LIB
        .replace(APPROVAL, "")
        .replace("samplecontroller.k8s.io", "example.com")
        .replace("pub ", "");
    let imports = |line: &&str| !line.starts_with("use ");
    let library = written(&library);
    let whole: Vec<_> = library
        .into_iter()
        .chain(written(MAIN).into_iter().filter(imports))
        .collect();
    let shown = include_str!("../../../crates/windlass/examples/foo.rs");
    assert_eq!(written(shown), whole);
}

const LIB: &str = include_str!("../src/lib.rs");
const MAIN: &str = include_str!("../src/main.rs");

/// Comments, and the lint that takes the kind's name for a placeholder, are not what it takes.
fn written(source: &str) -> Vec<&str> {
    let source = source.split_once(LINT).map_or(source, |(_, code)| code);
    let lines = source.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .collect()
}

const LINT: &str = "#![allow(
    clippy::disallowed_names,
    reason = \"here, foo is not a placeholder: it is what the kind is called\"
)]";

const APPROVAL: &str = "#[kube(annotation(
    \"api-approved.kubernetes.io\",
    \"unapproved, experimental-only; please get an approval from Kubernetes API reviewers if you're trying to develop a CRD in the *.k8s.io or *.kubernetes.io groups\"
))]
";

//! The CRD.

use serde_json::{Value, json};
use windlass::prelude::*;
use windlass_icecream::{Icecream, IcecreamSpec, IcecreamStatus};

fn definition() -> Value {
    serde_json::to_value(Icecream::crd()).expect("it serialises")
}

#[test]
fn crd_has_the_upstream_names() {
    let definition = definition();
    assert_eq!(definition["metadata"]["name"], "icecreams.controller.nicoleh.io");
    let spec = &definition["spec"];
    assert_eq!(spec["group"], "controller.nicoleh.io");
    assert_eq!(
        (&spec["names"]["kind"], &spec["names"]["plural"]),
        (&json!("Icecream"), &json!("icecreams"))
    );
    assert_eq!(spec["scope"], "Namespaced");
    let version = &spec["versions"][0];
    assert_eq!(version["name"], "v1alpha1");
    assert_eq!(version["subresources"], json!({ "status": {} }));
}

#[test]
fn crd_schema_has_these_fields_and_replica_limits() {
    let definition = definition();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    let fields = |part: &str| {
        let properties = schema[part]["properties"].as_object().expect("an object");
        let typed = properties
            .iter()
            .map(|(name, field)| format!("{name}: {}", field["type"]));
        typed.collect::<Vec<_>>()
    };
    assert_eq!(
        fields("spec"),
        [
            "deploymentName: \"string\"",
            "flavor: \"string\"",
            "replicas: \"integer\""
        ]
    );
    assert_eq!(
        fields("status"),
        [
            "nodeNames: \"array\"",
            "podIPs: \"array\"",
            "podNames: \"array\"",
            "totalAllocatedCPU: \"string\"",
            "totalAllocatedMemory: \"string\"",
        ]
    );
    let replicas = &schema["spec"]["properties"]["replicas"];
    assert_eq!(
        (replicas["minimum"].as_f64(), replicas["maximum"].as_f64()),
        (Some(1.0), Some(10.0))
    );
    // The lists are atomic: an apply replaces them as a whole.
    assert_eq!(
        schema["status"]["properties"]["podNames"].get("x-kubernetes-list-type"),
        None
    );
}

#[test]
fn icecream_with_empty_spec_and_status_decodes() {
    let icecream: Icecream = serde_json::from_value(json!({
        "apiVersion": "controller.nicoleh.io/v1alpha1", "kind": "Icecream", "metadata": {}, "spec": {}, "status": {},
    }))
    .expect("it decodes");
    let empty = IcecreamSpec {
        deployment_name: String::new(),
        replicas: None,
        flavor: None,
    };
    assert_eq!(
        (icecream.spec, icecream.status),
        (empty, Some(IcecreamStatus::default()))
    );
}

/// The toolkit's second example must stay short: types, watches, reconcile and `main`.
#[test]
fn the_whole_controller_is_at_most_180_lines() {
    let sources = [
        include_str!("../src/lib.rs"),
        include_str!("../src/status.rs"),
        include_str!("../src/main.rs"),
    ];
    let lines = sources.iter().flat_map(|source| source.lines()).map(str::trim);
    let lines = lines
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .count();
    assert!(lines <= 180, "{lines} lines");
    assert!(lines > 100, "{lines} lines: is it all there?");
}

#[test]
fn versions_are_converted_without_loss() {
    windlass::webhook::testing::round_trips::<Icecream, windlass_icecream::v1beta1::Icecream>();
}

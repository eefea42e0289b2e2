//! The CRD, and the size of the example.

use windlass::{prelude::*, serde_json};
use windlass_webapp::WebApp;

#[test]
fn crd_has_rules_and_list_map_conditions() {
    let crd = serde_json::to_value(WebApp::crd()).expect("it serializes");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    let rule = |at: &serde_json::Value| at["x-kubernetes-validations"][0]["rule"].clone();
    assert_eq!(
        rule(&schema["spec"]),
        "!has(self.ttlSeconds) || self.replicas == 1"
    );
    assert_eq!(rule(&schema["spec"]["properties"]["port"]), "self == oldSelf");
    assert_eq!(schema["spec"]["properties"]["replicas"]["default"], 1);
    let conditions = &schema["status"]["properties"]["conditions"];
    assert_eq!(conditions["x-kubernetes-list-type"], "map");
    assert_eq!(conditions["x-kubernetes-list-map-keys"], json!(["type"]));
}

/// The README promises less than 200 lines of types and controller.
#[test]
fn controller_has_less_than_200_lines() {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let lines = include_str!("../src/lib.rs").lines().filter(is_code).count();
    assert!((100..200).contains(&lines), "{lines} lines of code");
}

//! The shipped manifests match the code.

use std::{collections::BTreeSet, path::Path};

use serde::Deserialize;
use serde_json::Value;
use windlass::prelude::*;
use windlass_reboot::{RebootPolicy, state::AnnotationKeys};

const CRD: &str = "manifests/crd.yaml";

fn path(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_default()
}

fn documents(name: &str) -> Vec<Value> {
    serde_yaml_ng::Deserializer::from_str(&text(name))
        .map(|document| Value::deserialize(document).expect("YAML"))
        .collect()
}

/// With `WINDLASS_WRITE=1`, writes the file.
#[test]
fn crd_yaml_matches_the_code() {
    let head = "# Written by `WINDLASS_WRITE=1 cargo test -p windlass-reboot --test integration manifests`; do not edit.\n";
    let wanted = serde_yaml_ng::to_string(&RebootPolicy::crd()).expect("YAML");
    let wanted = format!("{head}{wanted}");
    if std::env::var_os("WINDLASS_WRITE").is_some() {
        std::fs::write(path(CRD), &wanted).expect("the file is written");
    }
    assert!(
        text(CRD) == wanted,
        "{CRD} is not what the program installs: run `WINDLASS_WRITE=1 cargo test -p windlass-reboot --test integration manifests`"
    );
}

#[test]
fn kustomization_lists_every_manifest() {
    let kustomization = &documents("kustomization.yaml")[0];
    let resources = kustomization["resources"].as_array().expect("resources");
    let applied: BTreeSet<_> = resources.iter().filter_map(Value::as_str).collect();
    let files = std::fs::read_dir(path("manifests")).expect("manifests");
    let files: Vec<_> = files
        .map(|file| format!("manifests/{}", file.expect("a file").file_name().display()))
        .collect();
    assert!(
        applied.contains("rbac.yaml"),
        "the controller's roles are missing"
    );
    for file in files.iter().map(String::as_str) {
        assert!(applied.contains(file), "{file} is missing in kustomization.yaml");
        for object in documents(file) {
            assert!(object["kind"].is_string(), "{file}");
        }
    }
}

/// The annotation keys in the admission policy, which is text, are those that agents write.
#[test]
fn admission_policy_uses_the_annotation_keys() {
    let (policy, names) = (text("manifests/agent-policy.yaml"), AnnotationKeys::default());
    for name in [&names.reboot_needed, &names.reboot_in_progress] {
        assert!(policy.contains(&format!("'{name}'")), "{name}");
    }
}

/// `attacks_host.rs` tests more of the pods' security.
#[test]
fn agent_is_unprivileged_and_mounts_only_the_bus_socket() {
    let daemon_set = documents("manifests/agent.yaml").remove(0);
    let pod = &daemon_set["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let security = &container["securityContext"];
    assert_eq!(security["privileged"], false);
    assert_eq!(security["allowPrivilegeEscalation"], false);
    assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}));
    assert_eq!(security["readOnlyRootFilesystem"], true);
    for shared in ["hostPID", "hostIPC", "hostNetwork"] {
        assert!(pod[shared].is_null(), "{shared}");
    }
    let volumes = pod["volumes"].as_array().expect("volumes");
    let paths: Vec<_> = volumes.iter().map(|volume| &volume["hostPath"]).collect();
    assert_eq!(
        paths,
        [&json!({"path": "/run/dbus/system_bus_socket", "type": "Socket"})]
    );
    assert_eq!(container["volumeMounts"][0]["readOnly"], true);
}

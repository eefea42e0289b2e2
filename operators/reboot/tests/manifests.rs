//! The shipped manifests match the code.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

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

/// All objects of the YAML files in these folders.
fn objects_in(folders: &[&str]) -> Vec<Value> {
    let mut objects = Vec::new();
    for folder in folders {
        let Ok(files) = std::fs::read_dir(path(folder)) else {
            continue;
        };
        for file in files {
            let name = file.expect("a file").file_name().display().to_string();
            if Path::new(&name)
                .extension()
                .is_some_and(|extension| extension == "yaml")
            {
                objects.extend(documents(&format!("{folder}/{name}")));
            }
        }
    }
    objects
}

/// Returns the rights of a role by which its holder runs a pod of its own choice, or gives itself such a right.
fn workload_rights(role: &Value) -> Vec<String> {
    const RESOURCES: [&str; 18] = [
        "*",
        "pods",
        "pods/*",
        "pods/exec",
        "pods/attach",
        "pods/ephemeralcontainers",
        "podtemplates",
        "replicationcontrollers",
        "daemonsets",
        "deployments",
        "replicasets",
        "statefulsets",
        "jobs",
        "cronjobs",
        "nodes/proxy",
        "serviceaccounts/token",
        "roles",
        "rolebindings",
    ];
    const VERBS: [&str; 6] = ["*", "create", "update", "patch", "bind", "escalate"];
    let words = |value: &Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.filter_map(|one| one.as_str().map(ToOwned::to_owned))
            .collect()
    };
    let mut found = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        for resource in words(&rule["resources"]) {
            for verb in words(&rule["verbs"]) {
                if RESOURCES.contains(&&*resource) && VERBS.contains(&&*verb) {
                    found.push(format!("{verb} {resource}"));
                }
            }
        }
    }
    found
}

/// A token that may create pods in a namespace that allows privileged ones is root on every node.
#[test]
fn no_account_may_create_workloads_where_pods_may_be_privileged() {
    let objects = objects_in(&[".", "manifests", "hooks"]);
    let levels: BTreeMap<_, _> = objects
        .iter()
        .filter(|object| object["kind"] == "Namespace")
        .filter_map(|namespace| {
            let level = &namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
            Some((
                namespace["metadata"]["name"].as_str()?,
                level.as_str().unwrap_or("privileged"),
            ))
        })
        .collect();
    assert_eq!(
        levels.get("windlass-reboot"),
        Some(&"privileged"),
        "for the agents: {levels:?}"
    );
    let mut roles = 0;
    for role in &objects {
        let namespace = match role["kind"].as_str() {
            // It may be bound everywhere.
            Some("ClusterRole") => None,
            Some("Role") => role["metadata"]["namespace"].as_str(),
            _ => continue,
        };
        roles += 1;
        let level = namespace.and_then(|namespace| levels.get(namespace));
        if !matches!(level, Some(&("baseline" | "restricted"))) {
            let rights = workload_rights(role);
            assert_eq!(rights, [""; 0], "{} in {namespace:?}", role["metadata"]["name"]);
        }
    }
    assert!(roles >= 4, "{roles} roles were checked");
}

/// The objects that `kubectl apply -k` of this folder applies.
fn applied_by(kustomization: &str) -> Vec<Value> {
    let folder = Path::new(kustomization).parent().unwrap_or(Path::new(""));
    let resources = documents(kustomization).remove(0)["resources"].clone();
    let resources = resources.as_array().expect("resources").clone();
    let files = resources.iter().filter_map(Value::as_str);
    files
        .flat_map(|file| documents(&folder.join(file).display().to_string()))
        .collect()
}

#[test]
fn rights_for_hooks_are_installed_only_on_request() {
    for object in applied_by("kustomization.yaml") {
        assert_eq!(
            workload_rights(&object),
            [""; 0],
            "{}",
            object["metadata"]["name"]
        );
    }
    let hooks = applied_by("hooks/kustomization.yaml");
    let kinds: Vec<_> = hooks
        .iter()
        .filter_map(|object| object["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["Namespace", "Role", "RoleBinding"]);
    let default = windlass_reboot::Arguments::default().hook_namespace;
    assert_eq!(hooks[0]["metadata"]["name"], default.as_str());
    for object in &hooks[1..] {
        assert_eq!(object["metadata"]["namespace"], default.as_str());
    }
    assert_eq!(hooks[2]["roleRef"]["name"], hooks[1]["metadata"]["name"]);
    let controller = json!([{ "kind": "ServiceAccount", "name": "reboot", "namespace": "windlass-reboot" }]);
    assert_eq!(hooks[2]["subjects"], controller);
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
fn agent_is_unprivileged_and_mounts_only_the_folder_of_the_bus() {
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
    // A mounted socket would be that of a bus that no longer exists after a restart of the bus.
    assert_eq!(paths, [&json!({"path": "/run/dbus", "type": "Directory"})]);
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/run/dbus");
    let address = "--dbus-address=unix:path=/run/dbus/system_bus_socket";
    assert!(
        container["args"]
            .as_array()
            .is_some_and(|args| args.contains(&json!(address)))
    );
    assert_eq!(container["volumeMounts"][0]["readOnly"], true);
}

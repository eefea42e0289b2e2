//! What the shipped manifests and host files allow a compromised agent.

use std::{os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use serde::Deserialize;
use serde_json::{Value, json};

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The pod template of the workload in this file.
fn pod(file: &str) -> Value {
    let text = text(file);
    let mut objects =
        serde_yaml_ng::Deserializer::from_str(&text).map(|one| Value::deserialize(one).expect("YAML"));
    let workload = objects.find(|object| !object["spec"]["template"].is_null());
    workload.expect("a workload")["spec"]["template"]["spec"].clone()
}

const PODS: [&str; 2] = ["manifests/agent.yaml", "manifests/controller.yaml"];

#[test]
fn pods_run_as_an_unprivileged_user_without_capabilities() {
    for file in PODS {
        let pod = pod(file);
        let security = &pod["securityContext"];
        assert_eq!(security["runAsNonRoot"], true, "{file}");
        assert!(
            security["runAsUser"].as_u64().is_some_and(|user| user > 0),
            "{file}"
        );
        assert!(
            security["runAsGroup"].as_u64().is_some_and(|group| group > 0),
            "{file}"
        );
        assert_eq!(
            security["seccompProfile"],
            json!({ "type": "RuntimeDefault" }),
            "{file}"
        );
        assert!(
            security["supplementalGroups"].is_null() && security["fsGroup"].is_null(),
            "{file}"
        );
        assert!(pod["initContainers"].is_null(), "{file}");
        for container in pod["containers"].as_array().expect("containers") {
            let security = &container["securityContext"];
            assert_eq!(security["allowPrivilegeEscalation"], false, "{file}");
            assert_eq!(security["readOnlyRootFilesystem"], true, "{file}");
            assert_eq!(security["capabilities"], json!({ "drop": ["ALL"] }), "{file}");
            assert_ne!(security["privileged"], true, "{file}");
            for overrides in [
                "runAsUser",
                "runAsGroup",
                "runAsNonRoot",
                "seccompProfile",
                "procMount",
            ] {
                assert!(
                    security[overrides].is_null(),
                    "{file}: {overrides} belongs into the pod's security context"
                );
            }
            assert!(!container["resources"]["limits"]["memory"].is_null(), "{file}");
        }
    }
}

#[test]
fn agent_mounts_one_host_folder_and_shares_no_host_namespace() {
    for file in PODS {
        let pod = pod(file);
        for shared in [
            "hostPID",
            "hostIPC",
            "hostNetwork",
            "hostUsers",
            "shareProcessNamespace",
        ] {
            assert!(pod[shared].is_null(), "{file}: {shared}");
        }
    }
    let agent = pod(PODS[0]);
    let folder = json!({ "path": "/run/dbus", "type": "Directory" });
    assert_eq!(agent["volumes"], json!([{ "name": "dbus", "hostPath": folder }]));
    let mount = json!({ "name": "dbus", "mountPath": "/run/dbus", "readOnly": true });
    assert_eq!(agent["containers"][0]["volumeMounts"], json!([mount]));
    assert!(
        pod(PODS[1])["volumes"].is_null(),
        "the controller mounts nothing of its host"
    );
}

#[test]
fn only_the_agent_runs_as_the_reboot_user() {
    let users = PODS.map(|file| pod(file)["securityContext"]["runAsUser"].clone());
    assert_ne!(users[0], users[1]);
    let sysusers = text("host/windlass-reboot.sysusers.conf");
    let lines: Vec<_> = sysusers.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        lines,
        [
            format!("g windlass-reboot {} -", users[0]),
            format!(
                "u windlass-reboot {0}:{0} \"Windlass reboot agent\" / -",
                users[0]
            ),
        ],
        "no home and no shell"
    );
    // A user ID of common base images.
    assert_ne!(users[0], 65532);
}

#[test]
fn pods_expose_health_and_metrics_but_no_debug_pages() {
    for file in PODS {
        let pod = pod(file);
        let container = &pod["containers"][0];
        let flags: Vec<_> = container["args"]
            .as_array()
            .expect("args")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let port = &container["ports"][0]["containerPort"];
        assert!(
            flags.contains(&&*format!("--listen=0.0.0.0:{port}")),
            "{file}: {flags:?}"
        );
        for flag in flags
            .iter()
            .filter_map(|flag| flag.strip_prefix("--debug-listen="))
        {
            assert!(flag.starts_with("127.0.0.1:"), "{file}: {flag}");
            assert_eq!(
                container["ports"].as_array().map(Vec::len),
                Some(1),
                "{file}: it is not a port of the pod"
            );
        }
    }
}

/// The rest of the rule refuses this user everything else and does not concern other users.
#[test]
fn polkit_rule_allows_only_reboot_for_one_user() {
    let rule = text("host/windlass-reboot.rules");
    let code: String = rule
        .lines()
        .filter(|line| !line.starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n");
    let quoted: Vec<_> = code.split('"').skip(1).step_by(2).collect();
    assert_eq!(
        quoted,
        [
            "windlass-reboot",
            "org.freedesktop.login1.reboot",
            "org.freedesktop.login1.reboot-multiple-sessions",
        ]
    );
    let results: Vec<_> = code
        .split("polkit.Result.")
        .skip(1)
        .map(|rest| rest.split(';').next().unwrap_or_default())
        .collect();
    assert_eq!(results, ["NOT_HANDLED", "YES", "NO"]);
}

/// `attacks_bus.rs` tests the policy on a real bus.
#[test]
fn bus_policy_allows_one_method_to_one_user() {
    let policy = text("host/windlass-reboot.dbus.conf");
    assert_eq!(policy.matches("<policy ").count(), 1);
    assert!(policy.contains("<policy user=\"windlass-reboot\">"));
    let allowed: Vec<_> = policy
        .split("send_member=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap_or_default())
        .collect();
    assert_eq!(allowed, ["Hello", "Reboot"]);
    assert_eq!(policy.matches("<allow ").count(), allowed.len());
}

#[test]
fn install_copies_the_files_to_their_host_paths() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("host/install");
    let status = Command::new("sh")
        .arg(&script)
        .env("DESTDIR", folder.path())
        .status();
    assert!(status.expect("it runs").success());
    for (from, to) in [
        (
            "host/windlass-reboot.sysusers.conf",
            "etc/sysusers.d/windlass-reboot.conf",
        ),
        (
            "host/windlass-reboot.rules",
            "etc/polkit-1/rules.d/10-windlass-reboot.rules",
        ),
        (
            "host/windlass-reboot.dbus.conf",
            "etc/dbus-1/system.d/windlass-reboot.conf",
        ),
    ] {
        let there = folder.path().join(to);
        assert_eq!(std::fs::read_to_string(&there).expect(to), text(from));
        assert!(
            text(from).contains(&format!("/{to}")),
            "{from} names its destination"
        );
        let mode = std::fs::metadata(&there).expect(to).permissions().mode() & 0o777;
        assert_eq!(mode, 0o644, "{to}: polkit and the bus must be able to read it");
    }
}

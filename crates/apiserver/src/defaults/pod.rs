//! Pods and the templates of pods.

use serde_json::{Value, json};

use super::{
    Plain::{Empty, Number, Text},
    Rule, apply, apply_matching, items, set,
};

const SPEC: [Rule; 5] = [
    ("restartPolicy", Text("Always")),
    ("dnsPolicy", Text("ClusterFirst")),
    ("terminationGracePeriodSeconds", Number(30)),
    ("securityContext", Empty),
    ("schedulerName", Text("default-scheduler")),
];

const CONTAINER: [Rule; 9] = [
    ("terminationMessagePath", Text("/dev/termination-log")),
    ("terminationMessagePolicy", Text("File")),
    ("ports[].protocol", Text("TCP")),
    ("env[].valueFrom.fieldRef.apiVersion", Text("v1")),
    ("lifecycle.postStart.httpGet.path", Text("/")),
    ("lifecycle.postStart.httpGet.scheme", Text("HTTP")),
    ("lifecycle.preStop.httpGet.path", Text("/")),
    ("lifecycle.preStop.httpGet.scheme", Text("HTTP")),
    ("resources", Empty),
];

const PROBE: [Rule; 7] = [
    ("timeoutSeconds", Number(1)),
    ("periodSeconds", Number(10)),
    ("successThreshold", Number(1)),
    ("failureThreshold", Number(3)),
    ("httpGet.path", Text("/")),
    ("httpGet.scheme", Text("HTTP")),
    ("grpc.service", Text("")),
];

const VOLUME: [Rule; 9] = [
    ("configMap.defaultMode", Number(0o644)),
    ("secret.defaultMode", Number(0o644)),
    ("downwardAPI.defaultMode", Number(0o644)),
    ("downwardAPI.items[].fieldRef.apiVersion", Text("v1")),
    ("projected.defaultMode", Number(0o644)),
    (
        "projected.sources[].serviceAccountToken.expirationSeconds",
        Number(3600),
    ),
    (
        "projected.sources[].downwardAPI.items[].fieldRef.apiVersion",
        Text("v1"),
    ),
    ("hostPath.type", Text("")),
    (
        "ephemeral.volumeClaimTemplate.spec.volumeMode",
        Text("Filesystem"),
    ),
];

/// The sources that pods and persistent volumes share.
const SOURCE: [Rule; 11] = [
    ("hostPath.type", Text("")),
    ("iscsi.iscsiInterface", Text("default")),
    ("rbd.pool", Text("rbd")),
    ("rbd.user", Text("admin")),
    ("rbd.keyring", Text("/etc/ceph/keyring")),
    ("azureDisk.cachingMode", Text("ReadWrite")),
    ("azureDisk.fsType", Text("ext4")),
    ("azureDisk.kind", Text("Shared")),
    ("azureDisk.readOnly", super::Plain::Flag(false)),
    ("scaleIO.storageMode", Text("ThinProvisioned")),
    ("scaleIO.fsType", Text("xfs")),
];

/// A template's pod; its metadata has no time of its own.
pub(super) fn fill_template(template: &mut Value) {
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("creationTimestamp");
    }
    if let Some(spec) = template.get_mut("spec") {
        fill_spec(spec);
    }
}

/// What pods and templates have in common.
pub(super) fn fill_spec(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    for rule in SPEC {
        apply(rule, spec);
    }
    // The old name of the field is still written, and still read.
    let account = ["serviceAccountName", "serviceAccount"]
        .iter()
        .find_map(|key| spec[*key].as_str().filter(|name| !name.is_empty()))
        .map(str::to_owned);
    if let Some(account) = account {
        spec["serviceAccountName"] = account.clone().into();
        spec["serviceAccount"] = account.into();
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        items(spec, list).for_each(fill_container);
    }
    for volume in items(spec, "volumes") {
        // A volume that says nothing but its name is an empty directory.
        if volume.as_object().is_some_and(|fields| fields.len() == 1) {
            set(volume, "emptyDir", json!({}));
        }
        apply_matching(&VOLUME, volume);
        fill_volume_source(volume);
    }
}

/// What only pods get: a template passes it on to its pods as it is.
pub(super) fn fill_pod(spec: &mut Value) {
    set(spec, "enableServiceLinks", true);
    let on_host = spec["hostNetwork"] == true;
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            let resources = &mut container["resources"];
            let limits = resources.get("limits").and_then(Value::as_object).cloned();
            if let Some(limits) = limits {
                set(resources, "requests", json!({}));
                let requests = &mut resources["requests"];
                for (resource, amount) in limits {
                    set(requests, &resource, amount);
                }
            }
            if on_host {
                for port in items(container, "ports") {
                    let number = port["containerPort"].clone();
                    // A port that is 0, and so is refused later, is absent here as everywhere.
                    if number != 0 {
                        set(port, "hostPort", number);
                    }
                }
            }
        }
    }
}

pub(super) fn fill_volume_source(volume: &mut Value) {
    apply_matching(&SOURCE, volume);
}

fn fill_container(container: &mut Value) {
    for rule in CONTAINER {
        apply(rule, container);
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe) {
            for rule in PROBE {
                apply(rule, probe);
            }
        }
    }
    let policy = pull_policy(container["image"].as_str().unwrap_or_default());
    set(container, "imagePullPolicy", policy);
}

/// An image whose tag may move is pulled every time.
fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or_default();
    let has_digest = image.contains('@');
    match name.split_once(':') {
        _ if has_digest => "IfNotPresent",
        Some((_, tag)) if tag != "latest" => "IfNotPresent",
        _ => "Always",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_whose_tag_may_move_are_always_pulled() {
        for (image, policy) in [
            ("i", "Always"),
            ("i:latest", "Always"),
            ("host:5000/i", "Always"),
            ("host:5000/i:v1", "IfNotPresent"),
            ("i@sha256:00", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }
}

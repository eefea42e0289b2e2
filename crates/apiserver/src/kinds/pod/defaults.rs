//! The defaults of pods and pod templates.

use serde_json::{Value, json};

use crate::kinds::defaulting::{
    DefaultRule,
    DefaultValue::{Empty, Flag, Number, Text},
    apply_matching, apply_rule, items, set_if_absent,
};

/// How long a pod may take to stop.
pub(in crate::kinds) const GRACE_SECONDS: i64 = 30;

const SPEC: [DefaultRule; 5] = [
    ("restartPolicy", Text("Always")),
    ("dnsPolicy", Text("ClusterFirst")),
    ("terminationGracePeriodSeconds", Number(GRACE_SECONDS)),
    ("securityContext", Empty),
    ("schedulerName", Text("default-scheduler")),
];

const CONTAINER: [DefaultRule; 9] = [
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

const PROBE: [DefaultRule; 7] = [
    ("timeoutSeconds", Number(1)),
    ("periodSeconds", Number(10)),
    ("successThreshold", Number(1)),
    ("failureThreshold", Number(3)),
    ("httpGet.path", Text("/")),
    ("httpGet.scheme", Text("HTTP")),
    ("grpc.service", Text("")),
];

const VOLUME: [DefaultRule; 9] = [
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

/// Volume sources common to pods and persistent volumes.
const SOURCE: [DefaultRule; 11] = [
    ("hostPath.type", Text("")),
    ("iscsi.iscsiInterface", Text("default")),
    ("rbd.pool", Text("rbd")),
    ("rbd.user", Text("admin")),
    ("rbd.keyring", Text("/etc/ceph/keyring")),
    ("azureDisk.cachingMode", Text("ReadWrite")),
    ("azureDisk.fsType", Text("ext4")),
    ("azureDisk.kind", Text("Shared")),
    ("azureDisk.readOnly", Flag(false)),
    ("scaleIO.storageMode", Text("ThinProvisioned")),
    ("scaleIO.fsType", Text("xfs")),
];

/// A pod template; its metadata has no creation timestamp.
pub(in crate::kinds) fn fill_template(template: &mut Value) {
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("creationTimestamp");
    }
    if let Some(spec) = template.get_mut("spec") {
        fill_spec(spec);
    }
}

/// The defaults common to pods and templates.
pub(in crate::kinds) fn fill_spec(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    for rule in SPEC {
        apply_rule(rule, spec);
    }
    // The deprecated name of the field is still written and read.
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
        // A volume with only a name is an empty directory.
        if volume.as_object().is_some_and(|fields| fields.len() == 1) {
            set_if_absent(volume, "emptyDir", json!({}));
        }
        apply_matching(&VOLUME, volume);
        fill_volume_source(volume);
    }
}

/// The defaults of pods but not of templates.
pub(in crate::kinds) fn fill_pod(spec: &mut Value) {
    set_if_absent(spec, "enableServiceLinks", true);
    let on_host = spec["hostNetwork"] == true;
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            let resources = &mut container["resources"];
            let limits = resources.get("limits").and_then(Value::as_object).cloned();
            if let Some(limits) = limits {
                set_if_absent(resources, "requests", json!({}));
                let requests = &mut resources["requests"];
                for (resource, amount) in limits {
                    set_if_absent(requests, &resource, amount);
                }
            }
            if on_host {
                for port in items(container, "ports") {
                    let number = port["containerPort"].clone();
                    // An invalid port 0 counts as absent and is rejected later.
                    if number != 0 {
                        set_if_absent(port, "hostPort", number);
                    }
                }
            }
        }
    }
}

pub(in crate::kinds) fn fill_volume_source(volume: &mut Value) {
    apply_matching(&SOURCE, volume);
}

fn fill_container(container: &mut Value) {
    for rule in CONTAINER {
        apply_rule(rule, container);
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe) {
            for rule in PROBE {
                apply_rule(rule, probe);
            }
        }
    }
    let policy = pull_policy(container["image"].as_str().unwrap_or_default());
    set_if_absent(container, "imagePullPolicy", policy);
}

/// An image with tag `latest` or none is pulled always.
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
    fn images_with_a_mutable_tag_are_always_pulled() {
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

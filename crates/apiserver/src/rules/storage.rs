//! Volumes, claims and classes.

use serde_json::Value;

use super::findings::{Findings, list, text};
use crate::{
    naming,
    schema::{Problem, quantity},
    trail::Trail,
};

const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

/// The fields of a volume's spec that are not its source.
const NOT_SOURCES: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

pub(super) fn check(kind: &str, value: &Value, findings: &mut Findings) {
    let spec = &value["spec"];
    match kind {
        "PersistentVolume" => check_volume(spec, findings),
        "PersistentVolumeClaim" => check_claim(spec, &Trail::from_root("spec"), findings),
        "StorageClass" => {
            if text(&value["provisioner"]).is_empty() {
                findings.required("provisioner", "");
            }
            for key in value["parameters"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, _)| key)
            {
                if key.is_empty() {
                    findings.invalid("parameters", "", "field can not be empty.");
                }
            }
            findings.one_of("reclaimPolicy", &value["reclaimPolicy"], &["Delete", "Retain"]);
            let modes = ["Immediate", "WaitForFirstConsumer"];
            findings.one_of("volumeBindingMode", &value["volumeBindingMode"], &modes);
        }
        _ => {}
    }
}

fn check_volume(spec: &Value, findings: &mut Findings) {
    if list(&spec["accessModes"]).is_empty() {
        findings.required("spec.accessModes", "");
    }
    check_access_modes(spec, &Trail::from_root("spec.accessModes"), findings);
    let capacity = &spec["capacity"];
    if capacity.as_object().is_none_or(serde_json::Map::is_empty) {
        findings.required("spec.capacity", "");
    }
    if capacity.get("storage").is_none() || capacity.as_object().is_some_and(|all| all.len() > 1) {
        let problem = Problem::NotSupported(capacity.clone(), vec!["storage".into()]);
        findings.add("spec.capacity", problem);
    }
    check_storage(capacity, &Trail::from_root("spec.capacity[storage]"), findings);
    let fields = spec.as_object().into_iter().flatten();
    if fields
        .into_iter()
        .all(|(key, _)| NOT_SOURCES.contains(&key.as_str()))
    {
        findings.required("spec", "must specify a volume type");
    }
    let policies = ["Delete", "Recycle", "Retain"];
    findings.one_of(
        "spec.persistentVolumeReclaimPolicy",
        &spec["persistentVolumeReclaimPolicy"],
        &policies,
    );
    check_shared(spec, &Trail::from_root("spec"), findings);
}

/// Where a volume's bytes are.
pub(super) fn source(spec: &Value) -> Vec<(&String, &Value)> {
    let fields = spec.as_object().into_iter().flatten();
    fields
        .filter(|(key, _)| !NOT_SOURCES.contains(&key.as_str()))
        .collect()
}

/// What a claim asks for, or a template of claims.
pub(super) fn check_claim(spec: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let remark = "at least 1 access mode is required";
    if list(&spec["accessModes"]).is_empty() {
        findings.required(path.at("accessModes"), remark);
    }
    findings.selector(&path.at("selector"), &spec["selector"]);
    check_access_modes(spec, &path.at("accessModes"), findings);
    let requests = &spec["resources"]["requests"];
    let resources = path.at("resources");
    let storage = resources.entry("storage");
    if requests.get("storage").is_none() {
        findings.required(storage, "");
    }
    check_storage(requests, &storage, findings);
    check_shared(spec, path, findings);
}

fn check_access_modes(spec: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let modes = list(&spec["accessModes"]);
    for mode in modes {
        findings.one_of(path, mode, &ACCESS_MODES);
    }
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        let why = "may not use ReadWriteOncePod with other access modes";
        findings.forbidden(path, why);
    }
}

fn check_storage(amounts: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let amount = &amounts["storage"];
    if quantity::nanos(amount).is_some_and(|nanos| nanos <= 0) {
        findings.invalid(path, amount.clone(), "must be greater than zero");
    }
}

fn check_shared(spec: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let class = text(&spec["storageClassName"]);
    if !class.is_empty() {
        findings.named(path.at("storageClassName"), class, naming::subdomain(class));
    }
    findings.one_of_if_given(
        path.at("volumeMode"),
        &spec["volumeMode"],
        &["Block", "Filesystem"],
    );
}

pub(super) fn check_priority_class(class: &Value, findings: &mut Findings) {
    let name = text(&class["metadata"]["name"]);
    if name.starts_with("system-") {
        if !matches!(name, "system-node-critical" | "system-cluster-critical") {
            let why = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class"
            );
            findings.forbidden("metadata.name", &why);
        }
    } else if class["value"].as_i64().is_some_and(|value| value > 1_000_000_000) {
        findings.forbidden(
            "value",
            "maximum allowed value of a user defined priority is 1000000000",
        );
    }
    if !class["preemptionPolicy"].is_null() {
        let policies = ["PreemptLowerPriority", "Never"];
        findings.one_of("preemptionPolicy", &class["preemptionPolicy"], &policies);
    }
}

//! Persistent volumes, claims, and classes.

use serde_json::Value;
use windlass_api::naming;

use super::error_list::{ErrorList, list, text};
use crate::{
    field_path::FieldPath,
    schema::{Problem, quantity},
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

pub(super) fn check(kind: &str, value: &Value, errors: &mut ErrorList) {
    let spec = &value["spec"];
    match kind {
        "PersistentVolume" => check_volume(spec, errors),
        "PersistentVolumeClaim" => check_claim(spec, &FieldPath::from_root("spec"), errors),
        "StorageClass" => {
            if text(&value["provisioner"]).is_empty() {
                errors.required("provisioner", "");
            }
            for key in value["parameters"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, _)| key)
            {
                if key.is_empty() {
                    errors.invalid("parameters", "", "field can not be empty.");
                }
            }
            errors.one_of("reclaimPolicy", &value["reclaimPolicy"], &["Delete", "Retain"]);
            let modes = ["Immediate", "WaitForFirstConsumer"];
            errors.one_of("volumeBindingMode", &value["volumeBindingMode"], &modes);
        }
        _ => {}
    }
}

fn check_volume(spec: &Value, errors: &mut ErrorList) {
    if list(&spec["accessModes"]).is_empty() {
        errors.required("spec.accessModes", "");
    }
    check_access_modes(spec, &FieldPath::from_root("spec.accessModes"), errors);
    let capacity = &spec["capacity"];
    if capacity.as_object().is_none_or(serde_json::Map::is_empty) {
        errors.required("spec.capacity", "");
    }
    if capacity.get("storage").is_none() || capacity.as_object().is_some_and(|all| all.len() > 1) {
        let problem = Problem::NotSupported(capacity.clone(), vec!["storage".into()]);
        errors.add("spec.capacity", problem);
    }
    check_storage(capacity, &FieldPath::from_root("spec.capacity[storage]"), errors);
    let fields = spec.as_object().into_iter().flatten();
    if fields
        .into_iter()
        .all(|(key, _)| NOT_SOURCES.contains(&key.as_str()))
    {
        errors.required("spec", "must specify a volume type");
    }
    let policies = ["Delete", "Recycle", "Retain"];
    errors.one_of(
        "spec.persistentVolumeReclaimPolicy",
        &spec["persistentVolumeReclaimPolicy"],
        &policies,
    );
    check_class_and_mode(spec, &FieldPath::from_root("spec"), errors);
}

/// The fields of the volume source.
pub(super) fn volume_source(spec: &Value) -> Vec<(&String, &Value)> {
    let fields = spec.as_object().into_iter().flatten();
    fields
        .filter(|(key, _)| !NOT_SOURCES.contains(&key.as_str()))
        .collect()
}

/// Validates a claim, or a claim template.
pub(super) fn check_claim(spec: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let remark = "at least 1 access mode is required";
    if list(&spec["accessModes"]).is_empty() {
        errors.required(path.child("accessModes"), remark);
    }
    errors.selector(&path.child("selector"), &spec["selector"]);
    check_access_modes(spec, &path.child("accessModes"), errors);
    let requests = &spec["resources"]["requests"];
    let resources = path.child("resources");
    let storage = resources.key("storage");
    if requests.get("storage").is_none() {
        errors.required(storage, "");
    }
    check_storage(requests, &storage, errors);
    check_class_and_mode(spec, path, errors);
}

fn check_access_modes(spec: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let modes = list(&spec["accessModes"]);
    for mode in modes {
        errors.one_of(path, mode, &ACCESS_MODES);
    }
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        let why = "may not use ReadWriteOncePod with other access modes";
        errors.forbidden(path, why);
    }
}

fn check_storage(amounts: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let amount = &amounts["storage"];
    if quantity::nanos(amount).is_some_and(|nanos| nanos <= 0) {
        errors.invalid(path, amount.clone(), "must be greater than zero");
    }
}

fn check_class_and_mode(spec: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let class = text(&spec["storageClassName"]);
    if !class.is_empty() {
        errors.invalid_each(path.child("storageClassName"), class, naming::subdomain(class));
    }
    errors.one_of_if_given(
        path.child("volumeMode"),
        &spec["volumeMode"],
        &["Block", "Filesystem"],
    );
}

pub(super) fn check_priority_class(class: &Value, errors: &mut ErrorList) {
    let name = text(&class["metadata"]["name"]);
    if name.starts_with("system-") {
        if !matches!(name, "system-node-critical" | "system-cluster-critical") {
            let why = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class"
            );
            errors.forbidden("metadata.name", &why);
        }
    } else if class["value"].as_i64().is_some_and(|value| value > 1_000_000_000) {
        errors.forbidden(
            "value",
            "maximum allowed value of a user defined priority is 1000000000",
        );
    }
    if !class["preemptionPolicy"].is_null() {
        let policies = ["PreemptLowerPriority", "Never"];
        errors.one_of("preemptionPolicy", &class["preemptionPolicy"], &policies);
    }
}

//! Immutable fields.

use serde_json::Value;

use super::{
    error_list::{ErrorList, text},
    nodes, pods, storage,
};
use crate::{internal_types, schema::Problem};

const STATEFUL_SET_MESSAGE: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";

/// The fields of a kind that may not change at all; [`check`] has the others.
fn immutable_fields((group, kind): (&str, &str)) -> &'static [&'static str] {
    match (group, kind) {
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet") => &["spec.selector"],
        ("apps", "ControllerRevision") => &["data"],
        ("batch", "Job") => &[
            "spec.selector",
            "spec.template",
            "spec.completionMode",
            "spec.podFailurePolicy",
            "spec.backoffLimitPerIndex",
            "spec.managedBy",
            "spec.successPolicy",
        ],
        ("", "ResourceQuota") => &["spec.scopes"],
        ("", "Secret") => &["type"],
        ("storage.k8s.io", "StorageClass") => {
            &["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"]
        }
        ("discovery.k8s.io", "EndpointSlice") => &["addressType"],
        ("networking.k8s.io", "IngressClass") => &["spec.controller"],
        ("node.k8s.io", "RuntimeClass") => &["handler"],
        _ => &[],
    }
}

pub(super) fn check(kind: (&str, &str), value: &Value, old: &Value, errors: &mut ErrorList) {
    if kind == ("batch", "Job") {
        check_completions(&value["spec"], &old["spec"], errors);
    }
    for path in immutable_fields(kind) {
        let (now, before) = (value_at(value, path), value_at(old, path));
        if now == before || may_change(path, value, old) {
            continue;
        }
        let quoted = match (kind, *path) {
            (("batch", "Job"), "spec.template") if old["spec"]["suspend"] == true => {
                let shown = internal_types::format_as_struct("PodSpec", &now["spec"]);
                errors.add(
                    "spec.template.spec",
                    Problem::InvalidText(shown, "field is immutable".into()),
                );
                continue;
            }
            (("batch", "Job"), "spec.template") => internal_types::format_template(now),
            (("batch", "Job"), "spec.podFailurePolicy") => {
                internal_types::format_as_struct("?PodFailurePolicy", now)
            }
            (("batch", "Job"), "spec.successPolicy") => {
                internal_types::format_as_struct("?SuccessPolicy", now)
            }
            _ => {
                errors.invalid(*path, now.clone(), "field is immutable");
                continue;
            }
        };
        errors.add(*path, Problem::InvalidText(quoted, "field is immutable".into()));
    }
    match kind {
        ("", "Pod") => pods::check_changes(value, old, errors),
        ("", "Node") => nodes::check_changes(value, old, errors),
        ("apps", "StatefulSet") => check_stateful_set(&value["spec"], &old["spec"], errors),
        ("", "ConfigMap" | "Secret") => check_immutable_data(value, old, errors),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding")
            if value["roleRef"] != old["roleRef"] =>
        {
            let shown = internal_types::format_as_struct("RoleRef", &value["roleRef"]);
            errors.add(
                "roleRef",
                Problem::InvalidText(shown, "cannot change roleRef".to_owned()),
            );
        }
        ("", "PersistentVolumeClaim") => check_claim(&value["spec"], &old["spec"], errors),
        ("", "PersistentVolume")
            if storage::volume_source(&value["spec"]) != storage::volume_source(&old["spec"]) =>
        {
            let difference =
                internal_types::difference("PersistentVolumeSource", &old["spec"], &value["spec"]);
            let why = format!("spec.persistentvolumesource is immutable after creation\n{difference}");
            errors.forbidden("spec.persistentvolumesource", &why);
        }
        ("scheduling.k8s.io", "PriorityClass") if value["value"] != old["value"] => {
            errors.forbidden("value", "may not be changed in an update.");
        }
        ("storage.k8s.io", "CSIDriver")
            if value["spec"]["attachRequired"] != old["spec"]["attachRequired"] =>
        {
            // The real server's message misspells the field.
            let now = value["spec"]["attachRequired"].clone();
            errors.invalid("spec.attachedRequired", now, "field is immutable");
        }
        _ => {}
    }
}

fn value_at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |value, part| &value[part])
}

/// An indexed job may be scaled if its parallelism changes in tandem.
fn check_completions(spec: &Value, old: &Value, errors: &mut ErrorList) {
    let (now, before) = (&spec["completions"], &old["completions"]);
    if now == before {
        return;
    }
    if spec["completionMode"] != "Indexed" {
        errors.invalid("spec.completions", now.clone(), "field is immutable");
    } else if now != &spec["parallelism"] {
        let why = "can only be modified in tandem with spec.parallelism";
        errors.invalid("spec.completions", now.clone(), why);
    }
}

/// The scheduling of a suspended job's pods may change.
fn may_change(path: &str, value: &Value, old: &Value) -> bool {
    match path {
        "spec.template" => {
            let never_started = old["spec"]["suspend"] == true && old["status"]["startTime"].is_null();
            let mut same = value["spec"]["template"].clone();
            for key in ["nodeSelector", "affinity", "tolerations", "schedulingGates"] {
                let before = &old["spec"]["template"]["spec"][key];
                match (before, same["spec"].as_object_mut()) {
                    (Value::Null, Some(spec)) => drop(spec.remove(key)),
                    (before, Some(spec)) => drop(spec.insert(key.to_owned(), before.clone())),
                    _ => {}
                }
            }
            never_started && same == old["spec"]["template"]
        }
        _ => false,
    }
}

/// Absent fields and nulls are equal.
pub(super) fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, field)| !field.is_null())
            .map(|(key, field)| (key.clone(), without_nulls(field)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

fn check_stateful_set(spec: &Value, old: &Value, errors: &mut ErrorList) {
    let free = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let fixed = |spec: &Value| {
        let mut spec = spec.clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.retain(|key, _| !free.contains(&key.as_str()));
        }
        spec
    };
    if fixed(spec) != fixed(old) {
        errors.forbidden("spec", STATEFUL_SET_MESSAGE);
    }
}

/// If `immutable` is set, neither the data nor `immutable` itself may change.
fn check_immutable_data(value: &Value, old: &Value, errors: &mut ErrorList) {
    if old["immutable"] != true {
        return;
    }
    let why = "field is immutable when `immutable` is set";
    if value["immutable"] != true {
        errors.forbidden("immutable", why);
    }
    for key in ["data", "binaryData"] {
        if value[key] != old[key] {
            errors.forbidden(key, why);
        }
    }
}

/// A bound claim may request more storage; nothing else may change.
fn check_claim(spec: &Value, old: &Value, errors: &mut ErrorList) {
    let bound = !text(&old["volumeName"]).is_empty();
    let mut same = spec.clone();
    if bound {
        same["resources"]["requests"] = old["resources"]["requests"].clone();
        same["volumeAttributesClassName"] = old["volumeAttributesClassName"].clone();
    } else if text(&old["volumeName"]).is_empty() {
        // The volume binder sets the volume.
        same["volumeName"] = old["volumeName"].clone();
    }
    // A default class may be set on claims that have none.
    if old["storageClassName"].is_null() {
        same["storageClassName"] = Value::Null;
    }
    if without_nulls(&same) != without_nulls(old) {
        let difference = internal_types::difference("PersistentVolumeClaimSpec", old, &same);
        let why = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{difference}"
        );
        errors.forbidden("spec", &why);
    }
}

//! What may not change once an object is there.

use serde_json::Value;

use super::{
    findings::{Findings, text},
    nodes, pods, storage,
};
use crate::{internals, schema::Problem};

const STATEFUL_SETS: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";

/// The fields that a change of this kind may not touch; the rest is for [`check`].
fn fixed((group, kind): (&str, &str)) -> &'static [&'static str] {
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

pub(super) fn check(kind: (&str, &str), value: &Value, old: &Value, findings: &mut Findings) {
    if kind == ("batch", "Job") {
        check_completions(&value["spec"], &old["spec"], findings);
    }
    for path in fixed(kind) {
        let (now, before) = (at(value, path), at(old, path));
        if now == before || may_change(path, value, old) {
            continue;
        }
        let quoted = match (kind, *path) {
            (("batch", "Job"), "spec.template") if old["spec"]["suspend"] == true => {
                let shown = internals::shown("PodSpec", &now["spec"]);
                findings.add(
                    "spec.template.spec",
                    Problem::InvalidText(shown, "field is immutable".into()),
                );
                continue;
            }
            (("batch", "Job"), "spec.template") => internals::shown_template(now),
            (("batch", "Job"), "spec.podFailurePolicy") => internals::shown("?PodFailurePolicy", now),
            (("batch", "Job"), "spec.successPolicy") => internals::shown("?SuccessPolicy", now),
            _ => {
                findings.invalid(*path, now.clone(), "field is immutable");
                continue;
            }
        };
        findings.add(*path, Problem::InvalidText(quoted, "field is immutable".into()));
    }
    match kind {
        ("", "Pod") => pods::check_changes(value, old, findings),
        ("", "Node") => nodes::check_changes(value, old, findings),
        ("apps", "StatefulSet") => check_stateful_set(&value["spec"], &old["spec"], findings),
        ("", "ConfigMap" | "Secret") => check_sealed(value, old, findings),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding")
            if value["roleRef"] != old["roleRef"] =>
        {
            let shown = internals::shown("RoleRef", &value["roleRef"]);
            findings.add(
                "roleRef",
                Problem::InvalidText(shown, "cannot change roleRef".to_owned()),
            );
        }
        ("", "PersistentVolumeClaim") => check_claim(&value["spec"], &old["spec"], findings),
        ("", "PersistentVolume") if storage::source(&value["spec"]) != storage::source(&old["spec"]) => {
            let difference = internals::difference("PersistentVolumeSource", &old["spec"], &value["spec"]);
            let why = format!("spec.persistentvolumesource is immutable after creation\n{difference}");
            findings.forbidden("spec.persistentvolumesource", &why);
        }
        ("scheduling.k8s.io", "PriorityClass") if value["value"] != old["value"] => {
            findings.forbidden("value", "may not be changed in an update.");
        }
        ("storage.k8s.io", "CSIDriver")
            if value["spec"]["attachRequired"] != old["spec"]["attachRequired"] =>
        {
            // The message has a name of its own for it.
            let now = value["spec"]["attachRequired"].clone();
            findings.invalid("spec.attachedRequired", now, "field is immutable");
        }
        _ => {}
    }
}

fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |value, part| &value[part])
}

/// An indexed job may grow and shrink, with as many pods as it has left to do.
fn check_completions(spec: &Value, old: &Value, findings: &mut Findings) {
    let (now, before) = (&spec["completions"], &old["completions"]);
    if now == before {
        return;
    }
    if spec["completionMode"] != "Indexed" {
        findings.invalid("spec.completions", now.clone(), "field is immutable");
    } else if now != &spec["parallelism"] {
        let why = "can only be modified in tandem with spec.parallelism";
        findings.invalid("spec.completions", now.clone(), why);
    }
}

/// The pods of a suspended job may be placed elsewhere.
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

/// Asking a map for a field that is not there must not tell two maps apart.
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

fn check_stateful_set(spec: &Value, old: &Value, findings: &mut Findings) {
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
        findings.forbidden("spec", STATEFUL_SETS);
    }
}

/// `immutable` seals the data and itself.
fn check_sealed(value: &Value, old: &Value, findings: &mut Findings) {
    if old["immutable"] != true {
        return;
    }
    let why = "field is immutable when `immutable` is set";
    if value["immutable"] != true {
        findings.forbidden("immutable", why);
    }
    for key in ["data", "binaryData"] {
        if value[key] != old[key] {
            findings.forbidden(key, why);
        }
    }
}

/// A claim may ask for more once it is bound, and for nothing else.
fn check_claim(spec: &Value, old: &Value, findings: &mut Findings) {
    let bound = !text(&old["volumeName"]).is_empty();
    let mut same = spec.clone();
    if bound {
        same["resources"]["requests"] = old["resources"]["requests"].clone();
        same["volumeAttributesClassName"] = old["volumeAttributesClassName"].clone();
    } else if text(&old["volumeName"]).is_empty() {
        // The binder says which volume it is.
        same["volumeName"] = old["volumeName"].clone();
    }
    // A class that comes later is given to claims that have none.
    if old["storageClassName"].is_null() {
        same["storageClassName"] = Value::Null;
    }
    if without_nulls(&same) != without_nulls(old) {
        let difference = internals::difference("PersistentVolumeClaimSpec", old, &same);
        let why = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{difference}"
        );
        findings.forbidden("spec", &why);
    }
}

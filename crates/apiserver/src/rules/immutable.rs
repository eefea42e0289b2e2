//! What may not change once an object is there.

use serde_json::{Value, json};

use super::{
    findings::{Findings, list, text},
    storage,
};
use crate::schema::Problem;

const PODS: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
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
            "spec.completions",
        ],
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
    for path in fixed(kind) {
        let (now, before) = (at(value, path), at(old, path));
        if now == before || may_change(path, value, old) {
            continue;
        }
        findings.invalid(*path, now.clone(), "field is immutable");
    }
    match kind {
        ("", "Pod") => check_pod(&value["spec"], &old["spec"], findings),
        ("apps", "StatefulSet") => check_stateful_set(&value["spec"], &old["spec"], findings),
        ("", "ConfigMap" | "Secret") => check_sealed(value, old, findings),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding")
            if value["roleRef"] != old["roleRef"] =>
        {
            let role = &value["roleRef"];
            let shown = format!(
                "{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}",
                role["apiGroup"], role["kind"], role["name"]
            );
            findings.add(
                "roleRef",
                Problem::InvalidText(shown, "cannot change roleRef".to_owned()),
            );
        }
        ("", "Service") => check_service(&value["spec"], &old["spec"], findings),
        ("", "PersistentVolumeClaim") => check_claim(&value["spec"], &old["spec"], findings),
        ("", "PersistentVolume") if storage::source(&value["spec"]) != storage::source(&old["spec"]) => {
            let why = "spec.persistentvolumesource is immutable after creation";
            findings.forbidden("spec.persistentvolumesource", why);
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

/// An indexed job may grow and shrink; a suspended one's pods may be placed elsewhere.
fn may_change(path: &str, value: &Value, old: &Value) -> bool {
    match path {
        "spec.completions" => {
            value["spec"]["completionMode"] == "Indexed"
                && value["spec"]["completions"] == value["spec"]["parallelism"]
        }
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

/// A pod may get other images, an earlier deadline and more tolerations.
fn check_pod(spec: &Value, old: &Value, findings: &mut Findings) {
    if spec == old {
        return;
    }
    let mut same = spec.clone();
    for kind in ["containers", "initContainers"] {
        let before = list(&old[kind]);
        if list(&same[kind]).len() != before.len() {
            continue;
        }
        for (container, before) in same[kind].as_array_mut().into_iter().flatten().zip(before) {
            container["image"] = before["image"].clone();
        }
    }
    let mut keep = |key: &str| match (&old[key], same.as_object_mut()) {
        (Value::Null, Some(fields)) => drop(fields.remove(key)),
        (before, Some(fields)) => drop(fields.insert(key.to_owned(), before.clone())),
        _ => {}
    };
    keep("activeDeadlineSeconds");
    let (now, before) = (&spec["tolerations"], &old["tolerations"]);
    if list(before)
        .iter()
        .all(|toleration| list(now).contains(toleration))
    {
        keep("tolerations");
    }
    let grace = (
        &spec["terminationGracePeriodSeconds"],
        &old["terminationGracePeriodSeconds"],
    );
    if *grace.0 == 1 && grace.1.as_i64().is_some_and(|before| before < 0) {
        keep("terminationGracePeriodSeconds");
    }
    for key in ["schedulingGates", "nodeSelector", "affinity"] {
        // A pod that waits at a gate has been promised to no node: where it may go can be narrowed.
        if !list(&old["schedulingGates"]).is_empty() {
            keep(key);
        }
    }
    if without_nulls(&same) != without_nulls(old) {
        findings.forbidden("spec", PODS);
    }
    let deadline = (
        spec["activeDeadlineSeconds"].as_i64(),
        old["activeDeadlineSeconds"].as_i64(),
    );
    match deadline {
        (None, Some(_)) => {
            let why = "must not update from a positive integer to nil value";
            findings.invalid("spec.activeDeadlineSeconds", Value::Null, why);
        }
        (Some(now), Some(before)) if now > before => {
            let why = format!("must be less than or equal to previous value {before}");
            findings.invalid("spec.activeDeadlineSeconds", now, &why);
        }
        _ => {}
    }
}

/// Asking a map for a field that is not there must not tell two maps apart.
fn without_nulls(value: &Value) -> Value {
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

fn check_service(spec: &Value, old: &Value, findings: &mut Findings) {
    let has_address = |spec: &Value| spec["type"] != "ExternalName" && !text(&spec["clusterIP"]).is_empty();
    if has_address(old) && has_address(spec) && spec["clusterIP"] != old["clusterIP"] {
        findings.invalid(
            "spec.clusterIPs[0]",
            json!([spec["clusterIP"]]),
            "may not change once set",
        );
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
    if without_nulls(&same) != without_nulls(old) {
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        findings.forbidden("spec", why);
    }
}

//! What of a pod may change: nearly all annotations, images, a nearer deadline, more tolerations, fewer gates.

use std::collections::HashSet;

use serde_json::Value;

use super::{
    super::{
        findings::{Findings, entries, list, text},
        immutable::without_nulls,
    },
    names,
};
use crate::{internals, trail::Trail};

const FIXED: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(in super::super) fn check(pod: &Value, old: &Value, findings: &mut Findings) {
    check_annotations(pod, old, findings);
    let (spec, old) = (&pod["spec"], &old["spec"]);
    if spec == old {
        return;
    }
    for kind in ["containers", "initContainers"] {
        if list(&spec[kind]).len() != list(&old[kind]).len() {
            // There is nothing to compare any further.
            let why = "pod updates may not add or remove containers";
            findings.forbidden(format_args!("spec.{kind}"), why);
            return;
        }
        check_images(kind, spec, findings);
    }
    if !check_deadline(spec, old, findings) {
        return;
    }
    check_tolerations(spec, old, findings);
    check_gates(spec, old, findings);
    let before = findings.count();
    check_narrowing(spec, old, findings);
    let same = with_free_fields_of(spec, old);
    if findings.count() == before && without_nulls(&same) != without_nulls(old) {
        let difference = internals::difference("PodSpec", old, &same);
        findings.forbidden("spec", &format!("{FIXED}\n{difference}"));
    }
}

/// What a pod is by its annotations it stays: whose mirror, and under which profiles.
pub(in super::super) fn check_annotations(pod: &Value, old: &Value, findings: &mut Findings) {
    let (now, old) = (&pod["metadata"]["annotations"], &old["metadata"]["annotations"]);
    let path = Trail::from_root("metadata.annotations");
    let word = |key: &str| match key {
        names::MIRROR => Some("mirror pod annotation"),
        _ if key.starts_with(names::APP_ARMOR) => Some("AppArmor annotations"),
        _ => None,
    };
    for (key, _) in entries(old).filter(|(key, before)| now.get(key) != Some(before)) {
        if let Some(word) = word(key) {
            findings.forbidden(path.entry(key), &format!("may not remove or update {word}"));
        }
    }
    for (key, _) in entries(now).filter(|(key, _)| old.get(key).is_none()) {
        if let Some(word) = word(key) {
            findings.forbidden(path.entry(key), &format!("may not add {word}"));
        }
    }
    names::check_deletion_cost(pod, findings);
}

fn check_images(kind: &str, spec: &Value, findings: &mut Findings) {
    let path = Trail::from_root("spec");
    let path = path.at(kind);
    for (index, container) in list(&spec[kind]).iter().enumerate() {
        let (image, path) = (text(&container["image"]), path.item(index));
        findings.given(path.at("image"), &container["image"]);
        if image.trim() != image {
            let why = "must not have leading or trailing whitespace";
            findings.invalid(path.at("image"), image, why);
        }
    }
}

/// Says whether there is more to look at.
fn check_deadline(spec: &Value, old: &Value, findings: &mut Findings) -> bool {
    let (field, now) = (
        "spec.activeDeadlineSeconds",
        spec["activeDeadlineSeconds"].as_i64(),
    );
    match (now, old["activeDeadlineSeconds"].as_i64()) {
        (None, Some(_)) => {
            let why = "must not update from a positive integer to nil value";
            findings.invalid(field, Value::Null, why);
            true
        }
        (Some(now), _) if !(0..=i64::from(i32::MAX)).contains(&now) => {
            findings.invalid(field, now, "must be between 0 and 2147483647, inclusive");
            false
        }
        (Some(now), Some(before)) if now > before => {
            findings.invalid(field, now, "must be less than or equal to previous value");
            false
        }
        _ => true,
    }
}

/// More of them, or for another time, and none that is wrong.
fn check_tolerations(spec: &Value, old: &Value, findings: &mut Findings) {
    let (path, now) = (Trail::from_root("spec.tolerations"), &spec["tolerations"]);
    if only_added(now, &old["tolerations"]) {
        super::check_tolerations(now, &path, findings);
    } else {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        findings.forbidden(path, why);
    }
}

/// Gates open, and stay open.
fn check_gates(spec: &Value, old: &Value, findings: &mut Findings) {
    let before: HashSet<_> = list(&old["schedulingGates"]).iter().collect();
    for (index, gate) in list(&spec["schedulingGates"]).iter().enumerate() {
        if !before.contains(gate) {
            let why = format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                text(&gate["name"])
            );
            findings.forbidden(format_args!("spec.schedulingGates[{index}].name"), &why);
        }
    }
}

/// A pod that waits at a gate has been promised to no node: where it may go can be narrowed.
fn check_narrowing(spec: &Value, old: &Value, findings: &mut Findings) {
    if list(&old["schedulingGates"]).is_empty() {
        return;
    }
    let kept = entries(&old["nodeSelector"]).all(|(key, value)| spec["nodeSelector"].get(key) == Some(value));
    if !kept {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        findings.invalid("spec.nodeSelector", spec["nodeSelector"].clone(), why);
    }
}

/// The new specification with the old one's values where a change is allowed.
fn with_free_fields_of(spec: &Value, old: &Value) -> Value {
    let mut same = spec.clone();
    for kind in ["containers", "initContainers"] {
        let containers = same[kind].as_array_mut().into_iter().flatten();
        for (container, before) in containers.zip(list(&old[kind])) {
            container["image"] = before["image"].clone();
        }
    }
    let mut keep = |key: &str| match (&old[key], same.as_object_mut()) {
        (Value::Null, Some(fields)) => drop(fields.remove(key)),
        (before, Some(fields)) => drop(fields.insert(key.to_owned(), before.clone())),
        _ => {}
    };
    keep("activeDeadlineSeconds");
    keep("schedulingGates");
    keep("tolerations");
    let grace = "terminationGracePeriodSeconds";
    if spec[grace] == 1 && old[grace].as_i64().is_some_and(|before| before < 0) {
        keep(grace);
    }
    if !list(&old["schedulingGates"]).is_empty() {
        keep("nodeSelector");
        keep("affinity");
    }
    same
}

/// Whether all old tolerations are still there; for how long they hold does not matter.
fn only_added(now: &Value, before: &Value) -> bool {
    let lasting = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if let Some(fields) = toleration.as_object_mut() {
            fields.remove("tolerationSeconds");
        }
        toleration
    };
    let now: HashSet<_> = list(now).iter().map(lasting).collect();
    list(before)
        .iter()
        .all(|toleration| now.contains(&lasting(toleration)))
}

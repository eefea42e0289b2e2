//! Pod updates: annotations (with exceptions), images, an earlier deadline, more tolerations and fewer scheduling
//! gates.

use std::collections::HashSet;

use serde_json::Value;

use super::{
    super::super::{
        error_list::{ErrorList, entries, list, text},
        immutable::without_nulls,
    },
    names,
};
use crate::{field_path::FieldPath, internal_types};

const UPDATE_MESSAGE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(in crate::kinds) fn check(pod: &Value, old: &Value, errors: &mut ErrorList) {
    check_annotations(pod, old, errors);
    let (spec, old) = (&pod["spec"], &old["spec"]);
    if spec == old {
        return;
    }
    for kind in ["containers", "initContainers"] {
        if list(&spec[kind]).len() != list(&old[kind]).len() {
            // Without a one-to-one match there is nothing to compare.
            let why = "pod updates may not add or remove containers";
            errors.forbidden(format_args!("spec.{kind}"), why);
            return;
        }
        check_images(kind, spec, errors);
    }
    if !check_deadline(spec, old, errors) {
        return;
    }
    check_tolerations(spec, old, errors);
    check_gates(spec, old, errors);
    let before = errors.len();
    check_node_selector_additions(spec, old, errors);
    let same = with_mutable_fields_of(spec, old);
    if errors.len() == before && without_nulls(&same) != without_nulls(old) {
        let difference = internal_types::difference("PodSpec", old, &same);
        errors.forbidden("spec", &format!("{UPDATE_MESSAGE}\n{difference}"));
    }
}

/// The mirror and AppArmor annotations may not change.
pub(in crate::kinds) fn check_annotations(pod: &Value, old: &Value, errors: &mut ErrorList) {
    let (now, old) = (&pod["metadata"]["annotations"], &old["metadata"]["annotations"]);
    let path = FieldPath::from_root("metadata.annotations");
    let word = |key: &str| match key {
        names::MIRROR_ANNOTATION => Some("mirror pod annotation"),
        _ if key.starts_with(names::APP_ARMOR_PREFIX) => Some("AppArmor annotations"),
        _ => None,
    };
    for (key, _) in entries(old).filter(|(key, before)| now.get(key) != Some(before)) {
        if let Some(word) = word(key) {
            errors.forbidden(path.key(key), &format!("may not remove or update {word}"));
        }
    }
    for (key, _) in entries(now).filter(|(key, _)| old.get(key).is_none()) {
        if let Some(word) = word(key) {
            errors.forbidden(path.key(key), &format!("may not add {word}"));
        }
    }
    names::check_deletion_cost(pod, errors);
}

fn check_images(kind: &str, spec: &Value, errors: &mut ErrorList) {
    let path = FieldPath::from_root("spec");
    let path = path.child(kind);
    for (index, container) in list(&spec[kind]).iter().enumerate() {
        let (image, path) = (text(&container["image"]), path.index(index));
        errors.require(path.child("image"), &container["image"]);
        if image.trim() != image {
            let why = "must not have leading or trailing whitespace";
            errors.invalid(path.child("image"), image, why);
        }
    }
}

/// Returns whether to continue with the other checks.
fn check_deadline(spec: &Value, old: &Value, errors: &mut ErrorList) -> bool {
    let (field, now) = (
        "spec.activeDeadlineSeconds",
        spec["activeDeadlineSeconds"].as_i64(),
    );
    match (now, old["activeDeadlineSeconds"].as_i64()) {
        (None, Some(_)) => {
            let why = "must not update from a positive integer to nil value";
            errors.invalid(field, Value::Null, why);
            true
        }
        (Some(now), _) if !(0..=i64::from(i32::MAX)).contains(&now) => {
            errors.invalid(field, now, "must be between 0 and 2147483647, inclusive");
            false
        }
        (Some(now), Some(before)) if now > before => {
            errors.invalid(field, now, "must be less than or equal to previous value");
            false
        }
        _ => true,
    }
}

/// Tolerations may be added, and their seconds changed.
fn check_tolerations(spec: &Value, old: &Value, errors: &mut ErrorList) {
    let (path, now) = (FieldPath::from_root("spec.tolerations"), &spec["tolerations"]);
    if only_added(now, &old["tolerations"]) {
        super::check_tolerations(now, &path, errors);
    } else {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.forbidden(path, why);
    }
}

/// Scheduling gates may only be removed.
fn check_gates(spec: &Value, old: &Value, errors: &mut ErrorList) {
    let before: HashSet<_> = list(&old["schedulingGates"]).iter().collect();
    for (index, gate) in list(&spec["schedulingGates"]).iter().enumerate() {
        if !before.contains(gate) {
            let why = format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                text(&gate["name"])
            );
            errors.forbidden(format_args!("spec.schedulingGates[{index}].name"), &why);
        }
    }
}

/// The node selector of a gated pod may be narrowed, because it is not scheduled yet.
fn check_node_selector_additions(spec: &Value, old: &Value, errors: &mut ErrorList) {
    if list(&old["schedulingGates"]).is_empty() {
        return;
    }
    let kept = entries(&old["nodeSelector"]).all(|(key, value)| spec["nodeSelector"].get(key) == Some(value));
    if !kept {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.invalid("spec.nodeSelector", spec["nodeSelector"].clone(), why);
    }
}

/// The new spec with the old values of all mutable fields.
fn with_mutable_fields_of(spec: &Value, old: &Value) -> Value {
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

/// Whether all old tolerations are still present, ignoring `tolerationSeconds`.
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

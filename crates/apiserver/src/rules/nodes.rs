//! Nodes and runtime classes.

use serde_json::Value;
use windlass_api::naming;

use super::{
    duplicates::Duplicates,
    error_list::{ErrorList, entries, list, text},
    pods,
};
use crate::{
    field_path::FieldPath,
    internal_types, json,
    schema::{Problem, quantity},
};

const PREFER_AVOID_PODS: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";

pub(super) fn check(node: &Value, errors: &mut ErrorList) {
    check_annotations(node, errors);
    check_taints(&node["spec"]["taints"], errors);
    check_resource_lists(&node["status"], errors);
    check_pod_cidrs(&node["spec"], errors);
}

fn check_annotations(node: &Value, errors: &mut ErrorList) {
    let avoid = text(&node["metadata"]["annotations"][PREFER_AVOID_PODS]);
    if !avoid.is_empty()
        && let Err(why) = json::read(avoid.as_bytes())
    {
        errors.invalid("metadata.annotations.AvoidPods", PREFER_AVOID_PODS, &why);
    }
}

fn check_resource_lists(status: &Value, errors: &mut ErrorList) {
    for key in ["capacity", "allocatable"] {
        let path = FieldPath::from_root("status");
        let path = path.child(key);
        for (name, amount) in entries(&status[key]) {
            check_quantity(name, amount, &path.child(name), errors);
        }
    }
}

fn check_quantity(name: &str, amount: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let Some(nanos) = quantity::nanos(amount) else {
        return;
    };
    if nanos < 0 {
        errors.invalid(path, amount.clone(), "must be greater than or equal to 0");
    }
    if (name.contains('/') || name == "pods") && nanos % 1_000_000_000 != 0 {
        errors.invalid(path, amount.clone(), "must be an integer");
    }
}

fn check_taints(taints: &Value, errors: &mut ErrorList) {
    let (taints, path) = (list(taints), FieldPath::from_root("metadata.taints"));
    let repeats = Duplicates::by(taints, |taint| (text(&taint["key"]), text(&taint["effect"])));
    for (index, taint) in taints.iter().enumerate() {
        let path = path.index(index);
        let (key, value) = (text(&taint["key"]), text(&taint["value"]));
        errors.invalid_each(path.child("key"), key, naming::qualified(key));
        errors.invalid_each(path.child("value"), value, naming::label_value(value));
        errors.require(path.child("effect"), &taint["effect"]);
        pods::check_effect(&taint["effect"], path.child("effect"), errors);
        if repeats.contains(index) {
            let shown = format!(
                "{}: taints must be unique by key and effect pair",
                internal_types::format_as_struct("Taint", taint)
            );
            errors.add(path, Problem::DuplicateText(shown));
        }
    }
}

fn check_pod_cidrs(spec: &Value, errors: &mut ErrorList) {
    let path = FieldPath::from_root("spec.podCIDRs");
    let blocks = match list(&spec["podCIDRs"]) {
        [] if spec["podCIDR"].is_string() => std::slice::from_ref(&spec["podCIDR"]),
        blocks => blocks,
    };
    let before = errors.len();
    for (index, block) in blocks.iter().map(text).enumerate() {
        errors.invalid_each(path.index(index), block, naming::cidr(block));
    }
    let v6 = blocks.iter().filter(|block| text(block).contains(':')).count();
    if errors.len() == before && blocks.len() > 1 && !(blocks.len() == 2 && v6 == 1) {
        let why = "may specify no more than one CIDR for each IP family";
        errors.invalid(path, blocks.to_vec(), why);
    }
}

/// Validates a node's status.
pub(super) fn check_status(status: &Value, errors: &mut ErrorList) {
    check_resource_lists(status, errors);
    let addresses = list(&status["addresses"]);
    let repeats = Duplicates::by(addresses, |address| address);
    for (index, address) in addresses.iter().enumerate() {
        if repeats.contains(index) {
            let shown = internal_types::format_as_struct("NodeAddress", address);
            let field = FieldPath::from_root("status.addresses");
            errors.add(field.index(index), Problem::DuplicateText(shown));
        }
    }
}

/// Validates a node update.
pub(super) fn check_changes(node: &Value, old: &Value, errors: &mut ErrorList) {
    let (spec, before) = (&node["spec"], &old["spec"]);
    // The real server checks these twice.
    check_annotations(node, errors);
    check_status(&node["status"], errors);
    if !list(&before["podCIDRs"]).is_empty() && spec["podCIDRs"] != before["podCIDRs"] {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        errors.forbidden("spec.podCIDRs", why);
    }
    if !text(&before["providerID"]).is_empty() && spec["providerID"] != before["providerID"] {
        let why = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden("spec.providerID", why);
    }
    check_taints(&spec["taints"], errors);
}

pub(super) fn check_runtime_class(class: &Value, errors: &mut ErrorList) {
    if errors.require("handler", &class["handler"]) {
        let handler = text(&class["handler"]);
        errors.invalid_each("handler", handler, naming::label(handler));
    }
    let path = FieldPath::from_root("overhead");
    pods::check_overhead(&class["overhead"]["podFixed"], &path.child("limits"), errors);
    let (scheduling, path) = (&class["scheduling"], FieldPath::from_root("scheduling"));
    errors.labels(path.child("nodeSelector"), &scheduling["nodeSelector"]);
    let tolerations = list(&scheduling["tolerations"]);
    pods::check_tolerations(&scheduling["tolerations"], &path.child("tolerations"), errors);
    let repeats = Duplicates::by(tolerations, |toleration| toleration);
    for (index, toleration) in tolerations.iter().enumerate() {
        if repeats.contains(index) {
            let shown = internal_types::format_as_struct("Toleration", toleration);
            let field = path.child("tolerations");
            errors.add(field.index(index), Problem::DuplicateText(shown));
        }
    }
}

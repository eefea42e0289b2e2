//! Nodes, and the classes of runtimes that they have.

use serde_json::Value;

use super::{
    findings::{Findings, entries, list, text},
    pods,
    repeats::Repeats,
};
use crate::{
    internals, json, naming,
    schema::{Problem, quantity},
    trail::Trail,
};

const AVOID: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";

pub(super) fn check(node: &Value, findings: &mut Findings) {
    check_annotations(node, findings);
    check_taints(&node["spec"]["taints"], findings);
    check_amounts(&node["status"], findings);
    check_blocks(&node["spec"], findings);
}

fn check_annotations(node: &Value, findings: &mut Findings) {
    let avoid = text(&node["metadata"]["annotations"][AVOID]);
    if !avoid.is_empty()
        && let Err(why) = json::read(avoid.as_bytes())
    {
        findings.invalid("metadata.annotations.AvoidPods", AVOID, &why);
    }
}

fn check_amounts(status: &Value, findings: &mut Findings) {
    for key in ["capacity", "allocatable"] {
        let path = Trail::from_root("status");
        let path = path.at(key);
        for (name, amount) in entries(&status[key]) {
            check_amount(name, amount, &path.at(name), findings);
        }
    }
}

fn check_amount(name: &str, amount: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let Some(nanos) = quantity::nanos(amount) else {
        return;
    };
    if nanos < 0 {
        findings.invalid(path, amount.clone(), "must be greater than or equal to 0");
    }
    if (name.contains('/') || name == "pods") && nanos % 1_000_000_000 != 0 {
        findings.invalid(path, amount.clone(), "must be an integer");
    }
}

fn check_taints(taints: &Value, findings: &mut Findings) {
    let (taints, path) = (list(taints), Trail::from_root("metadata.taints"));
    let repeats = Repeats::of(taints, |taint| (text(&taint["key"]), text(&taint["effect"])));
    for (index, taint) in taints.iter().enumerate() {
        let path = path.item(index);
        let (key, value) = (text(&taint["key"]), text(&taint["value"]));
        findings.named(path.at("key"), key, naming::qualified(key));
        findings.named(path.at("value"), value, naming::label_value(value));
        findings.given(path.at("effect"), &taint["effect"]);
        pods::check_effect(&taint["effect"], path.at("effect"), findings);
        if repeats.has(index) {
            let shown = format!(
                "{}: taints must be unique by key and effect pair",
                internals::shown("Taint", taint)
            );
            findings.add(path, Problem::DuplicateText(shown));
        }
    }
}

fn check_blocks(spec: &Value, findings: &mut Findings) {
    let path = Trail::from_root("spec.podCIDRs");
    let blocks = match list(&spec["podCIDRs"]) {
        [] if spec["podCIDR"].is_string() => std::slice::from_ref(&spec["podCIDR"]),
        blocks => blocks,
    };
    let before = findings.count();
    for (index, block) in blocks.iter().map(text).enumerate() {
        findings.named(path.item(index), block, naming::address_block(block));
    }
    let v6 = blocks.iter().filter(|block| text(block).contains(':')).count();
    if findings.count() == before && blocks.len() > 1 && !(blocks.len() == 2 && v6 == 1) {
        let why = "may specify no more than one CIDR for each IP family";
        findings.invalid(path, blocks.to_vec(), why);
    }
}

/// What a node says of itself.
pub(super) fn check_status(status: &Value, findings: &mut Findings) {
    check_amounts(status, findings);
    let addresses = list(&status["addresses"]);
    let repeats = Repeats::of(addresses, |address| address);
    for (index, address) in addresses.iter().enumerate() {
        if repeats.has(index) {
            let shown = internals::shown("NodeAddress", address);
            let field = Trail::from_root("status.addresses");
            findings.add(field.item(index), Problem::DuplicateText(shown));
        }
    }
}

/// What a node keeps once it has it.
pub(super) fn check_changes(node: &Value, old: &Value, findings: &mut Findings) {
    let (spec, before) = (&node["spec"], &old["spec"]);
    // It is looked over once more.
    check_annotations(node, findings);
    check_status(&node["status"], findings);
    if !list(&before["podCIDRs"]).is_empty() && spec["podCIDRs"] != before["podCIDRs"] {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        findings.forbidden("spec.podCIDRs", why);
    }
    if !text(&before["providerID"]).is_empty() && spec["providerID"] != before["providerID"] {
        let why = "node updates may not change providerID except from \"\" to valid";
        findings.forbidden("spec.providerID", why);
    }
    check_taints(&spec["taints"], findings);
}

pub(super) fn check_runtime_class(class: &Value, findings: &mut Findings) {
    if findings.given("handler", &class["handler"]) {
        let handler = text(&class["handler"]);
        findings.named("handler", handler, naming::label(handler));
    }
    let path = Trail::from_root("overhead");
    pods::check_overhead(&class["overhead"]["podFixed"], &path.at("limits"), findings);
    let (scheduling, path) = (&class["scheduling"], Trail::from_root("scheduling"));
    findings.labels(path.at("nodeSelector"), &scheduling["nodeSelector"]);
    let tolerations = list(&scheduling["tolerations"]);
    pods::check_tolerations(&scheduling["tolerations"], &path.at("tolerations"), findings);
    let repeats = Repeats::of(tolerations, |toleration| toleration);
    for (index, toleration) in tolerations.iter().enumerate() {
        if repeats.has(index) {
            let shown = internals::shown("Toleration", toleration);
            let field = path.at("tolerations");
            findings.add(field.item(index), Problem::DuplicateText(shown));
        }
    }
}

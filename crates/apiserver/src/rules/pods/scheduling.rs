//! Where a pod may run: affinities, spreading, and the taints that it tolerates.

use std::collections::HashMap;

use serde_json::Value;

use super::super::findings::{Findings, list, text};
use crate::{naming, trail::Trail};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn check_affinity(affinity: &Value, path: &Trail<'_>, findings: &mut Findings) {
    if affinity.is_null() {
        return;
    }
    check_node_affinity(&affinity["nodeAffinity"], &path.at("nodeAffinity"), findings);
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (affinity, path) = (&affinity[kind], path.at(kind));
        for (index, term) in list(&affinity[REQUIRED]).iter().enumerate() {
            check_pod_term(term, &path.at(REQUIRED).item(index), findings);
        }
        for (index, term) in list(&affinity[PREFERRED]).iter().enumerate() {
            let path = path.at(PREFERRED);
            let path = path.item(index);
            check_weight(term, &path, findings);
            check_pod_term(&term["podAffinityTerm"], &path.at("podAffinityTerm"), findings);
        }
    }
}

fn check_weight(term: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let weight = term["weight"].as_i64().unwrap_or(0);
    if !(1..=100).contains(&weight) {
        findings.invalid(path.at("weight"), weight, "must be in the range 1-100");
    }
}

fn check_node_affinity(affinity: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let required = &affinity[REQUIRED];
    if !required.is_null() {
        let (terms, path) = (list(&required["nodeSelectorTerms"]), path.at(REQUIRED));
        let path = path.at("nodeSelectorTerms");
        if terms.is_empty() {
            findings.required(path, "must have at least one node selector term");
        }
        for (index, term) in terms.iter().enumerate() {
            check_node_term(term, true, &path.item(index), findings);
        }
    }
    for (index, term) in list(&affinity[PREFERRED]).iter().enumerate() {
        let path = path.at(PREFERRED);
        let path = path.item(index);
        check_weight(term, &path, findings);
        check_node_term(&term["preference"], false, &path.at("preference"), findings);
    }
}

/// `strict`: what is only preferred may look for values that no label has.
fn check_node_term(term: &Value, strict: bool, path: &Trail<'_>, findings: &mut Findings) {
    for (index, rule) in list(&term["matchExpressions"]).iter().enumerate() {
        let path = path.at("matchExpressions");
        let path = path.item(index);
        let values = list(&rule["values"]);
        match text(&rule["operator"]) {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                findings.required(path.at("values"), why);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                findings.forbidden(path.at("values"), why);
            }
            "Gt" | "Lt" if values.len() != 1 => {
                let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                findings.required(path.at("values"), why);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => findings.invalid(path.at("operator"), other, "not a valid selector operator"),
        }
        let key = text(&rule["key"]);
        findings.named(path.at("key"), key, naming::qualified(key));
        for (index, value) in values.iter().map(text).enumerate().filter(|_| strict) {
            let field = path.at("values");
            findings.named(field.item(index), value, naming::label_value(value));
        }
    }
    for (index, rule) in list(&term["matchFields"]).iter().enumerate() {
        let path = path.at("matchFields");
        let path = path.item(index);
        let values = list(&rule["values"]);
        match text(&rule["operator"]) {
            "In" | "NotIn" if values.len() != 1 => {
                let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                findings.required(path.at("values"), why);
            }
            "In" | "NotIn" => {}
            other => findings.invalid(path.at("operator"), other, "not a valid selector operator"),
        }
        if rule["key"] != "metadata.name" {
            let why = "not a valid field selector key";
            findings.invalid(path.at("key"), text(&rule["key"]), why);
            continue;
        }
        for (index, value) in values.iter().map(text).enumerate() {
            let field = path.at("values");
            findings.named(field.item(index), value, naming::subdomain(value));
        }
    }
}

fn check_pod_term(term: &Value, path: &Trail<'_>, findings: &mut Findings) {
    for key in ["labelSelector", "namespaceSelector"] {
        findings.selector(&path.at(key), &term[key]);
    }
    for name in list(&term["namespaces"]).iter().map(text) {
        findings.named(path.at("namespace"), name, naming::label(name));
    }
    check_label_keys(term, path, findings);
    let key = text(&term["topologyKey"]);
    if key.is_empty() {
        findings.required(path.at("topologyKey"), "can not be empty");
    }
    findings.named(path.at("topologyKey"), key, naming::qualified(key));
}

/// The labels of the pod itself that narrow a selector.
fn check_label_keys(term: &Value, path: &Trail<'_>, findings: &mut Findings) {
    for kind in ["matchLabelKeys", "mismatchLabelKeys"] {
        let (keys, path) = (list(&term[kind]), path.at(kind));
        if !keys.is_empty() && term["labelSelector"].is_null() {
            findings.forbidden(path, "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in keys.iter().map(text).enumerate() {
            findings.named(path.item(index), key, naming::qualified(key));
        }
    }
}

/// Of each kind of constraint there is one.
fn kind(constraint: &Value) -> (&Value, &Value) {
    (&constraint["topologyKey"], &constraint["whenUnsatisfiable"])
}

pub(super) fn check_spread(constraints: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let constraints = list(constraints);
    // How many of a kind are still to come.
    let mut left: HashMap<_, usize> = HashMap::new();
    for constraint in constraints {
        *left.entry(kind(constraint)).or_default() += 1;
    }
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.item(index);
        let skew = constraint["maxSkew"].as_i64().unwrap_or(0);
        if skew <= 0 {
            findings.invalid(path.at("maxSkew"), skew, "must be greater than zero");
        }
        let key = text(&constraint["topologyKey"]);
        if key.is_empty() {
            findings.required(path.at("topologyKey"), "can not be empty");
        }
        let (action, actions) = (
            &constraint["whenUnsatisfiable"],
            ["DoNotSchedule", "ScheduleAnyway"],
        );
        findings.one_of(path.at("whenUnsatisfiable"), action, &actions);
        let left = left.entry(kind(constraint)).or_default();
        *left -= 1;
        if *left > 0 {
            let shown = format!("{{{key}, {}}}", text(action));
            findings.duplicate(path.at("{topologyKey, whenUnsatisfiable}"), shown);
        }
        if let Some(least) = constraint["minDomains"].as_i64() {
            if least <= 0 {
                findings.invalid(path.at("minDomains"), least, "must be greater than zero");
            }
            if *action != "DoNotSchedule" {
                let why = format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                    text(action)
                );
                findings.invalid(path.at("minDomains"), least, &why);
            }
        }
        for key in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            findings.one_of_if_given(path.at(key), &constraint[key], &["Honor", "Ignore"]);
        }
        check_label_keys(constraint, &path, findings);
        findings.selector(&path.at("labelSelector"), &constraint["labelSelector"]);
    }
}

pub(in super::super) fn check_tolerations(tolerations: &Value, path: &Trail<'_>, findings: &mut Findings) {
    for (index, toleration) in list(tolerations).iter().enumerate() {
        check_toleration(toleration, &path.item(index), findings);
    }
}

fn check_toleration(toleration: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let (key, operator) = (text(&toleration["key"]), text(&toleration["operator"]));
    let (value, effect) = (text(&toleration["value"]), text(&toleration["effect"]));
    if !key.is_empty() {
        findings.named(path.at("key"), key, naming::qualified(key));
    } else if operator != "Exists" {
        let why =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        findings.invalid(path.at("operator"), operator, why);
    }
    if !toleration["tolerationSeconds"].is_null() && effect != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        findings.invalid(path.at("effect"), effect, why);
    }
    match operator {
        "Equal" | "" => findings.named(path.at("operator"), value, naming::label_value(value)),
        "Exists" if !value.is_empty() => {
            let why = "value must be empty when `operator` is 'Exists'";
            findings.invalid(path.at("operator"), value, why);
        }
        "Exists" => {}
        // Known, and off.
        "Lt" | "Gt" => {
            let operators = ["Equal", "Exists", "Lt", "Gt"].map(Value::from).into();
            let problem = crate::schema::Problem::NotSupported(operator.into(), operators);
            findings.add(path.at("operator"), problem);
        }
        _ => findings.one_of(path.at("operator"), &toleration["operator"], &["Equal", "Exists"]),
    }
    check_effect(&toleration["effect"], path.at("effect"), findings);
}

pub(in super::super) fn check_effect(effect: &Value, path: Trail<'_>, findings: &mut Findings) {
    if !text(effect).is_empty() {
        findings.one_of(path, effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
    }
}

//! Scheduling: affinity, topology spread and tolerations.

use std::collections::HashMap;

use serde_json::Value;
use windlass_api::naming;

use crate::field_path::FieldPath;
use crate::kinds::error_list::{ErrorList, list, text};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn check_affinity(affinity: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    if affinity.is_null() {
        return;
    }
    check_node_affinity(&affinity["nodeAffinity"], &path.child("nodeAffinity"), errors);
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (affinity, path) = (&affinity[kind], path.child(kind));
        for (index, term) in list(&affinity[REQUIRED]).iter().enumerate() {
            check_pod_term(term, &path.child(REQUIRED).index(index), errors);
        }
        for (index, term) in list(&affinity[PREFERRED]).iter().enumerate() {
            let path = path.child(PREFERRED);
            let path = path.index(index);
            check_weight(term, &path, errors);
            check_pod_term(&term["podAffinityTerm"], &path.child("podAffinityTerm"), errors);
        }
    }
}

fn check_weight(term: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let weight = term["weight"].as_i64().unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.invalid(path.child("weight"), weight, "must be in the range 1-100");
    }
}

fn check_node_affinity(affinity: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let required = &affinity[REQUIRED];
    if !required.is_null() {
        let (terms, path) = (list(&required["nodeSelectorTerms"]), path.child(REQUIRED));
        let path = path.child("nodeSelectorTerms");
        if terms.is_empty() {
            errors.required(path, "must have at least one node selector term");
        }
        for (index, term) in terms.iter().enumerate() {
            check_node_term(term, true, &path.index(index), errors);
        }
    }
    for (index, term) in list(&affinity[PREFERRED]).iter().enumerate() {
        let path = path.child(PREFERRED);
        let path = path.index(index);
        check_weight(term, &path, errors);
        check_node_term(&term["preference"], false, &path.child("preference"), errors);
    }
}

/// `strict`: preferred terms may have values that are not valid label values.
fn check_node_term(term: &Value, strict: bool, path: &FieldPath<'_>, errors: &mut ErrorList) {
    for (index, rule) in list(&term["matchExpressions"]).iter().enumerate() {
        let path = path.child("matchExpressions");
        let path = path.index(index);
        match text(&rule["operator"]) {
            "Gt" | "Lt" if list(&rule["values"]).len() != 1 => {
                let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                errors.required(path.child("values"), why);
            }
            "Gt" | "Lt" => {}
            _ if errors.operator_values(&path, rule) => {}
            other => errors.invalid(path.child("operator"), other, "not a valid selector operator"),
        }
        errors.requirement_key(&path, rule);
        if strict {
            errors.requirement_values(&path, rule);
        }
    }
    for (index, rule) in list(&term["matchFields"]).iter().enumerate() {
        let path = path.child("matchFields");
        let path = path.index(index);
        let values = list(&rule["values"]);
        match text(&rule["operator"]) {
            "In" | "NotIn" if values.len() != 1 => {
                let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.required(path.child("values"), why);
            }
            "In" | "NotIn" => {}
            other => errors.invalid(path.child("operator"), other, "not a valid selector operator"),
        }
        if rule["key"] != "metadata.name" {
            let why = "not a valid field selector key";
            errors.invalid(path.child("key"), text(&rule["key"]), why);
            continue;
        }
        for (index, value) in values.iter().map(text).enumerate() {
            let field = path.child("values");
            errors.invalid_each(field.index(index), value, naming::subdomain(value));
        }
    }
}

fn check_pod_term(term: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    for key in ["labelSelector", "namespaceSelector"] {
        errors.selector(&path.child(key), &term[key]);
    }
    for name in list(&term["namespaces"]).iter().map(text) {
        errors.invalid_each(path.child("namespace"), name, naming::label(name));
    }
    check_label_keys(term, path, errors);
    let key = text(&term["topologyKey"]);
    if key.is_empty() {
        errors.required(path.child("topologyKey"), "can not be empty");
    }
    errors.invalid_each(path.child("topologyKey"), key, naming::qualified(key));
}

/// `matchLabelKeys` and `mismatchLabelKeys`, which refer to the pod's own labels.
fn check_label_keys(term: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    for kind in ["matchLabelKeys", "mismatchLabelKeys"] {
        let (keys, path) = (list(&term[kind]), path.child(kind));
        if !keys.is_empty() && term["labelSelector"].is_null() {
            errors.forbidden(path, "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in keys.iter().map(text).enumerate() {
            errors.invalid_each(path.index(index), key, naming::qualified(key));
        }
    }
}

/// Constraints must be unique by this pair.
fn constraint_key(constraint: &Value) -> (&Value, &Value) {
    (&constraint["topologyKey"], &constraint["whenUnsatisfiable"])
}

pub(super) fn check_spread(constraints: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let constraints = list(constraints);
    // How many equal constraints follow.
    let mut left: HashMap<_, usize> = HashMap::new();
    for constraint in constraints {
        *left.entry(constraint_key(constraint)).or_default() += 1;
    }
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        let skew = constraint["maxSkew"].as_i64().unwrap_or(0);
        if skew <= 0 {
            errors.invalid(path.child("maxSkew"), skew, "must be greater than zero");
        }
        let key = text(&constraint["topologyKey"]);
        if key.is_empty() {
            errors.required(path.child("topologyKey"), "can not be empty");
        }
        let (action, actions) = (
            &constraint["whenUnsatisfiable"],
            ["DoNotSchedule", "ScheduleAnyway"],
        );
        errors.one_of(path.child("whenUnsatisfiable"), action, &actions);
        let left = left.entry(constraint_key(constraint)).or_default();
        *left -= 1;
        if *left > 0 {
            let shown = format!("{{{key}, {}}}", text(action));
            errors.duplicate(path.child("{topologyKey, whenUnsatisfiable}"), shown);
        }
        if let Some(least) = constraint["minDomains"].as_i64() {
            if least <= 0 {
                errors.invalid(path.child("minDomains"), least, "must be greater than zero");
            }
            if *action != "DoNotSchedule" {
                let why = format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                    text(action)
                );
                errors.invalid(path.child("minDomains"), least, &why);
            }
        }
        for key in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            errors.one_of_if_given(path.child(key), &constraint[key], &["Honor", "Ignore"]);
        }
        check_label_keys(constraint, &path, errors);
        errors.selector(&path.child("labelSelector"), &constraint["labelSelector"]);
    }
}

pub(in crate::kinds) fn check_tolerations(tolerations: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    for (index, toleration) in list(tolerations).iter().enumerate() {
        check_toleration(toleration, &path.index(index), errors);
    }
}

fn check_toleration(toleration: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let (key, operator) = (text(&toleration["key"]), text(&toleration["operator"]));
    let (value, effect) = (text(&toleration["value"]), text(&toleration["effect"]));
    if !key.is_empty() {
        errors.invalid_each(path.child("key"), key, naming::qualified(key));
    } else if operator != "Exists" {
        let why =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.invalid(path.child("operator"), operator, why);
    }
    if !toleration["tolerationSeconds"].is_null() && effect != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.invalid(path.child("effect"), effect, why);
    }
    match operator {
        "Equal" | "" => errors.invalid_each(path.child("operator"), value, naming::label_value(value)),
        "Exists" if !value.is_empty() => {
            let why = "value must be empty when `operator` is 'Exists'";
            errors.invalid(path.child("operator"), value, why);
        }
        "Exists" => {}
        // Known, but disabled by feature gate.
        "Lt" | "Gt" => {
            let operators = ["Equal", "Exists", "Lt", "Gt"].map(Value::from).into();
            let problem = crate::schema::Problem::NotSupported(operator.into(), operators);
            errors.add(path.child("operator"), problem);
        }
        _ => errors.one_of(
            path.child("operator"),
            &toleration["operator"],
            &["Equal", "Exists"],
        ),
    }
    check_effect(&toleration["effect"], path.child("effect"), errors);
}

pub(in crate::kinds) fn check_effect(effect: &Value, path: FieldPath<'_>, errors: &mut ErrorList) {
    if !text(effect).is_empty() {
        errors.one_of(path, effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
    }
}

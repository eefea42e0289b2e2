//! What the kinds share that run pods from a template.

use serde_json::{Value, json};

use super::{
    defaulting::set_if_absent,
    error_list::{ErrorList, list, percent, selector_matches},
    pod,
};
use crate::field_path::FieldPath;

/// Defaults the parameters of a rolling update; other strategies have none.
pub(super) fn fill_rollout(strategy: &mut Value, parameters: &[(&str, Value)]) {
    if strategy["type"] != "RollingUpdate" {
        return;
    }
    set_if_absent(strategy, "rollingUpdate", json!({}));
    for (key, value) in parameters {
        set_if_absent(&mut strategy["rollingUpdate"], key, value.clone());
    }
}

/// Checks the selector, the template, and that they match.
pub(super) fn check_selector_and_template(kind: &str, spec: &Value, errors: &mut ErrorList) {
    let (selector, template) = (&spec["selector"], &spec["template"]);
    let before = errors.len();
    if selector.is_null() {
        if kind != "daemonset" {
            errors.required("spec.selector", "");
        }
    } else {
        errors.selector(&FieldPath::from_root("spec.selector"), selector);
    }
    let understood = selector.is_null() || errors.len() == before;
    // Each kind reports an invalid selector differently.
    match kind {
        _ if understood => {}
        "statefulset" => errors.invalid("spec.selector", selector.clone(), ""),
        "daemonset" => {}
        _ => errors.invalid("spec.selector", selector.clone(), "invalid label selector"),
    }
    let empty = selector.is_object() && is_empty(selector);
    if empty {
        let why = format!("empty selector is invalid for {kind}");
        errors.invalid("spec.selector", json!({}), &why);
    }
    if understood && !empty && !selector_matches(selector, &template["metadata"]["labels"]) {
        selector_mismatch(template, errors);
    }
    let path = FieldPath::from_root("spec.template");
    if !understood && kind == "deployment" {
        return;
    }
    if kind == "statefulset" {
        if understood {
            pod::validation::check_stateful_template(template, &spec["volumeClaimTemplates"], &path, errors);
        }
    } else {
        pod::validation::check_template(template, &path, errors);
    }
    let policy = &template["spec"]["restartPolicy"];
    if !policy.is_null() && *policy != "Always" {
        errors.one_of("spec.template.spec.restartPolicy", policy, &["Always"]);
    }
    if !template["spec"]["activeDeadlineSeconds"].is_null() {
        let why = format!("activeDeadlineSeconds in {} is not Supported", kind_name(kind));
        errors.forbidden("spec.template.spec.activeDeadlineSeconds", &why);
    }
}

fn kind_name(kind: &str) -> &str {
    match kind {
        "statefulset" => "StatefulSet",
        "daemonset" => "DaemonSet",
        _ => "ReplicaSet",
    }
}

pub(super) fn selector_mismatch(template: &Value, errors: &mut ErrorList) {
    errors.invalid(
        "spec.template.metadata.labels",
        template["metadata"]["labels"].clone(),
        "`selector` does not match template `labels`",
    );
}

fn is_empty(selector: &Value) -> bool {
    let no_labels = selector["matchLabels"]
        .as_object()
        .is_none_or(serde_json::Map::is_empty);
    no_labels && list(&selector["matchExpressions"]).is_empty()
}

pub(super) fn is_zero(value: &Value) -> bool {
    *value == 0 || percent(value) == Some(0)
}

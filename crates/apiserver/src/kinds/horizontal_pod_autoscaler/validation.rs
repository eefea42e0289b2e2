//! Validation of autoscalers: scale target, metrics and behavior.

use serde_json::Value;
use windlass_api::naming;

use crate::kinds::error_list::{ErrorList, list, text};
use crate::{field_path::FieldPath, object::Object, schema::quantity};

/// Metric source types and their fields.
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

/// Validates the spec of `autoscaling/v2`.
pub(super) fn check(spec: &Value, old: Option<&Object>, errors: &mut ErrorList) {
    check_replicas_and_target(spec, old, errors);
    check_metrics(spec["minReplicas"].as_i64(), &spec["metrics"], errors);
    let path = FieldPath::from_root("spec.behavior");
    for key in ["scaleUp", "scaleDown"] {
        if !spec["behavior"][key].is_null() {
            check_behavior(&spec["behavior"][key], &path.child(key), errors);
        }
    }
}

/// Validates what both versions have.
pub(super) fn check_replicas_and_target(spec: &Value, old: Option<&Object>, errors: &mut ErrorList) {
    let least = spec["minReplicas"].as_i64();
    let most = spec["maxReplicas"].as_i64().unwrap_or(0);
    if let Some(least) = least.filter(|least| *least < 1) {
        errors.invalid("spec.minReplicas", least, "must be greater than or equal to 1");
    }
    match most {
        0 => errors.required("spec.maxReplicas", "must be set and greater than 0"),
        ..0 => errors.invalid("spec.maxReplicas", most, "must be greater than or equal to 1"),
        _ => {}
    }
    if least.is_some_and(|least| most < least) {
        let why = "must be greater than or equal to `minReplicas`";
        errors.invalid("spec.maxReplicas", most, why);
    }
    check_target(&spec["scaleTargetRef"], old, errors);
}

fn check_target(target: &Value, old: Option<&Object>, errors: &mut ErrorList) {
    let path = FieldPath::from_root("spec.scaleTargetRef");
    check_reference(target, &path, errors);
    // An invalid version may stay.
    let before = old.map(|old| &old.tree()["spec"]["scaleTargetRef"]);
    if before.is_some_and(|before| {
        ["apiVersion", "kind"]
            .iter()
            .all(|key| before[*key] == target[*key])
    }) {
        return;
    }
    let version = text(&target["apiVersion"]);
    let why = match version.matches('/').count() {
        // The only kind of the core group that can be scaled.
        0 if target["kind"] == "ReplicationController" => return,
        0 => "apiVersion must specify API group",
        1 => return,
        _ => &format!("unexpected GroupVersion string: {version}"),
    };
    errors.invalid(path.child("apiVersion"), version, why);
}

fn check_reference(reference: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    for key in ["kind", "name"] {
        if errors.require(path.child(key), &reference[key]) {
            let name = text(&reference[key]);
            errors.invalid_each(path.child(key), name, naming::path_segment(name));
        }
    }
}

fn check_metrics(least: Option<i64>, metrics: &Value, errors: &mut ErrorList) {
    let path = FieldPath::from_root("spec.metrics");
    for (index, metric) in list(metrics).iter().enumerate() {
        check_metric(metric, &path.index(index), errors);
    }
    let to_zero = |metric: &Value| matches!(text(&metric["type"]), "Object" | "External");
    if least == Some(0) && !list(metrics).iter().any(to_zero) {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden("spec.metrics", why);
    }
}

fn check_metric(metric: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let kind = text(&metric["type"]);
    let types = SOURCES.map(|(kind, _)| kind);
    if kind.is_empty() {
        errors.required(path.child("type"), "must specify a metric source type");
    }
    let Some((_, own)) = SOURCES.iter().find(|(known, _)| *known == kind) else {
        // The real server reports this twice.
        errors.one_of(path.child("type"), &metric["type"], &types);
        errors.one_of(path.child("type"), &metric["type"], &types);
        return;
    };
    for key in ["object", "external", "pods", "resource", "containerResource"] {
        let (source, path) = (&metric[key], path.child(key));
        if source.is_null() {
            continue;
        }
        if key == *own {
            check_source(key, source, &path, errors);
        } else if !metric[*own].is_null() {
            errors.forbidden(path, "must populate the given metric source only");
        }
    }
    if metric[*own].is_null() {
        let why = "must populate information for the given metric source";
        errors.required(path.child(own), why);
    }
}

fn check_source(kind: &str, source: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let target = &source["target"];
    let field = path.child("target");
    let (value, average) = (!target["value"].is_null(), !target["averageValue"].is_null());
    let utilization = !target["averageUtilization"].is_null();
    if kind == "object" {
        check_reference(&source["describedObject"], &path.child("describedObject"), errors);
    }
    match kind {
        "resource" | "containerResource" => {
            required(
                &source["name"],
                path.child("name"),
                "must specify a resource name",
                errors,
            );
            if kind == "containerResource" {
                required(
                    &source["container"],
                    path.child("container"),
                    "must specify a container",
                    errors,
                );
            }
            check_amounts(target, &field, errors);
            if !utilization && !average {
                let why = "must set either a target raw value or a target utilization";
                errors.required(field.child("averageUtilization"), why);
            }
            if utilization && average {
                let why = "may not set both a target raw value and a target utilization";
                errors.forbidden(field.child("averageValue"), why);
            }
        }
        "pods" => {
            check_identifier(&source["metric"], &path.child("metric"), errors);
            check_amounts(target, &field, errors);
            if !average {
                let why = "must specify a positive target averageValue";
                errors.required(field.child("averageValue"), why);
            }
        }
        _ => {
            check_identifier(&source["metric"], &path.child("metric"), errors);
            check_amounts(target, &field, errors);
            if kind == "external" {
                if !value && !average {
                    let why = "must set either a target value for metric or a per-pod target";
                    errors.required(field.child("averageValue"), why);
                }
                if value && average {
                    let why = "may not set both a target value for metric and a per-pod target";
                    errors.forbidden(field.child("value"), why);
                }
            } else if !value && !average {
                let why = "must set either a target value or averageValue";
                errors.required(field.child("averageValue"), why);
            }
        }
    }
}

fn required(value: &Value, field: FieldPath<'_>, why: &str, errors: &mut ErrorList) {
    if text(value).is_empty() {
        errors.required(field, why);
    }
}

fn check_identifier(metric: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let name = text(&metric["name"]);
    required(
        &metric["name"],
        path.child("name"),
        "must specify a metric name",
        errors,
    );
    errors.invalid_each(path.child("name"), name, naming::path_segment(name));
}

fn check_amounts(target: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let kind = text(&target["type"]);
    required(
        &target["type"],
        path.child("type"),
        "must specify a metric target type",
        errors,
    );
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        let why = "must be either Utilization, Value, or AverageValue";
        errors.invalid(path.child("type"), kind, why);
    }
    for key in ["value", "averageValue"] {
        if quantity::nanos(&target[key]).is_some_and(|nanos| nanos <= 0) {
            errors.invalid(path.child(key), target[key].clone(), "must be positive");
        }
    }
    let part = &target["averageUtilization"];
    if part.as_i64().is_some_and(|part| part < 1) {
        errors.invalid(
            path.child("averageUtilization"),
            part.clone(),
            "must be greater than 0",
        );
    }
}

fn check_behavior(rules: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let (window, field) = (
        &rules["stabilizationWindowSeconds"],
        path.child("stabilizationWindowSeconds"),
    );
    match window.as_i64() {
        Some(..0) => errors.invalid(field, window.clone(), "must be greater than or equal to zero"),
        Some(3601..) => errors.invalid(field, window.clone(), "must be less than or equal to 3600"),
        _ => {}
    }
    errors.one_of_if_given(
        path.child("selectPolicy"),
        &rules["selectPolicy"],
        &["Disabled", "Max", "Min"],
    );
    let (policies, field) = (list(&rules["policies"]), path.child("policies"));
    if policies.is_empty() {
        errors.required(field, "must specify at least one Policy");
    }
    for (index, policy) in policies.iter().enumerate() {
        let field = field.index(index);
        errors.one_of(field.child("type"), &policy["type"], &["Percent", "Pods"]);
        for key in ["value", "periodSeconds"] {
            let number = policy[key].as_i64().unwrap_or(0);
            if number <= 0 {
                errors.invalid(field.child(key), number, "must be greater than zero");
            } else if key == "periodSeconds" && number > 1800 {
                errors.invalid(field.child(key), number, "must be less than or equal to 1800");
            }
        }
    }
    let tolerance = &rules["tolerance"];
    if quantity::nanos(tolerance).is_some_and(|nanos| nanos < 0) {
        let why = "must be greater than or equal to 0";
        errors.invalid(path.child("tolerance"), tolerance.clone(), why);
    }
}

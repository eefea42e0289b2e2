//! Autoscalers: what they scale, by which measures, and how fast.

use serde_json::Value;

use super::findings::{Findings, list, text};
use crate::{naming, schema::quantity, trail::Trail};

/// The types of metrics, and the fields that hold them.
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

pub(super) fn check(version: &str, spec: &Value, findings: &mut Findings) {
    let least = spec["minReplicas"].as_i64();
    let most = spec["maxReplicas"].as_i64().unwrap_or(0);
    if let Some(least) = least.filter(|least| *least < 1) {
        findings.invalid("spec.minReplicas", least, "must be greater than or equal to 1");
    }
    match most {
        0 => findings.required("spec.maxReplicas", "must be set and greater than 0"),
        ..0 => findings.invalid("spec.maxReplicas", most, "must be greater than or equal to 1"),
        _ => {}
    }
    if least.is_some_and(|least| most < least) {
        let why = "must be greater than or equal to `minReplicas`";
        findings.invalid("spec.maxReplicas", most, why);
    }
    check_target(&spec["scaleTargetRef"], findings);
    if version == "v1" {
        return;
    }
    check_metrics(least, &spec["metrics"], findings);
    let path = Trail::from_root("spec.behavior");
    for key in ["scaleUp", "scaleDown"] {
        if !spec["behavior"][key].is_null() {
            check_behavior(&spec["behavior"][key], &path.at(key), findings);
        }
    }
}

fn check_target(target: &Value, findings: &mut Findings) {
    let path = Trail::from_root("spec.scaleTargetRef");
    check_reference(target, &path, findings);
    let version = text(&target["apiVersion"]);
    let why = match version.matches('/').count() {
        0 => "apiVersion must specify API group",
        1 => return,
        _ => &format!("unexpected GroupVersion string: {version}"),
    };
    findings.invalid(path.at("apiVersion"), version, why);
}

fn check_reference(reference: &Value, path: &Trail<'_>, findings: &mut Findings) {
    for key in ["kind", "name"] {
        if findings.given(path.at(key), &reference[key]) {
            let name = text(&reference[key]);
            findings.named(path.at(key), name, naming::path_segment(name));
        }
    }
}

fn check_metrics(least: Option<i64>, metrics: &Value, findings: &mut Findings) {
    let path = Trail::from_root("spec.metrics");
    for (index, metric) in list(metrics).iter().enumerate() {
        check_metric(metric, &path.item(index), findings);
    }
    let to_zero = |metric: &Value| matches!(text(&metric["type"]), "Object" | "External");
    if least == Some(0) && !list(metrics).iter().any(to_zero) {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        findings.forbidden("spec.metrics", why);
    }
}

fn check_metric(metric: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let kind = text(&metric["type"]);
    let types = SOURCES.map(|(kind, _)| kind);
    if kind.is_empty() {
        findings.required(path.at("type"), "must specify a metric source type");
    }
    let Some((_, own)) = SOURCES.iter().find(|(known, _)| *known == kind) else {
        // Two of the real server's checks look at it.
        findings.one_of(path.at("type"), &metric["type"], &types);
        findings.one_of(path.at("type"), &metric["type"], &types);
        return;
    };
    for key in ["object", "external", "pods", "resource", "containerResource"] {
        let (source, path) = (&metric[key], path.at(key));
        if source.is_null() {
            continue;
        }
        if key == *own {
            check_source(key, source, &path, findings);
        } else if !metric[*own].is_null() {
            findings.forbidden(path, "must populate the given metric source only");
        }
    }
    if metric[*own].is_null() {
        let why = "must populate information for the given metric source";
        findings.required(path.at(own), why);
    }
}

fn check_source(kind: &str, source: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let target = &source["target"];
    let field = path.at("target");
    let (value, average) = (!target["value"].is_null(), !target["averageValue"].is_null());
    let utilization = !target["averageUtilization"].is_null();
    if kind == "object" {
        check_reference(&source["describedObject"], &path.at("describedObject"), findings);
    }
    match kind {
        "resource" | "containerResource" => {
            required(
                &source["name"],
                path.at("name"),
                "must specify a resource name",
                findings,
            );
            if kind == "containerResource" {
                required(
                    &source["container"],
                    path.at("container"),
                    "must specify a container",
                    findings,
                );
            }
            check_amounts(target, &field, findings);
            if !utilization && !average {
                let why = "must set either a target raw value or a target utilization";
                findings.required(field.at("averageUtilization"), why);
            }
            if utilization && average {
                let why = "may not set both a target raw value and a target utilization";
                findings.forbidden(field.at("averageValue"), why);
            }
        }
        "pods" => {
            check_identifier(&source["metric"], &path.at("metric"), findings);
            check_amounts(target, &field, findings);
            if !average {
                let why = "must specify a positive target averageValue";
                findings.required(field.at("averageValue"), why);
            }
        }
        _ => {
            check_identifier(&source["metric"], &path.at("metric"), findings);
            check_amounts(target, &field, findings);
            if kind == "external" {
                if !value && !average {
                    let why = "must set either a target value for metric or a per-pod target";
                    findings.required(field.at("averageValue"), why);
                }
                if value && average {
                    let why = "may not set both a target value for metric and a per-pod target";
                    findings.forbidden(field.at("value"), why);
                }
            } else if !value && !average {
                let why = "must set either a target value or averageValue";
                findings.required(field.at("averageValue"), why);
            }
        }
    }
}

fn required(value: &Value, field: Trail<'_>, why: &str, findings: &mut Findings) {
    if text(value).is_empty() {
        findings.required(field, why);
    }
}

fn check_identifier(metric: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let name = text(&metric["name"]);
    required(
        &metric["name"],
        path.at("name"),
        "must specify a metric name",
        findings,
    );
    findings.named(path.at("name"), name, naming::path_segment(name));
}

fn check_amounts(target: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let kind = text(&target["type"]);
    required(
        &target["type"],
        path.at("type"),
        "must specify a metric target type",
        findings,
    );
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        let why = "must be either Utilization, Value, or AverageValue";
        findings.invalid(path.at("type"), kind, why);
    }
    for key in ["value", "averageValue"] {
        if quantity::nanos(&target[key]).is_some_and(|nanos| nanos <= 0) {
            findings.invalid(path.at(key), target[key].clone(), "must be positive");
        }
    }
    let part = &target["averageUtilization"];
    if part.as_i64().is_some_and(|part| part < 1) {
        findings.invalid(
            path.at("averageUtilization"),
            part.clone(),
            "must be greater than 0",
        );
    }
}

fn check_behavior(rules: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let (window, field) = (
        &rules["stabilizationWindowSeconds"],
        path.at("stabilizationWindowSeconds"),
    );
    match window.as_i64() {
        Some(..0) => findings.invalid(field, window.clone(), "must be greater than or equal to zero"),
        Some(3601..) => findings.invalid(field, window.clone(), "must be less than or equal to 3600"),
        _ => {}
    }
    findings.one_of_if_given(
        path.at("selectPolicy"),
        &rules["selectPolicy"],
        &["Disabled", "Max", "Min"],
    );
    let (policies, field) = (list(&rules["policies"]), path.at("policies"));
    if policies.is_empty() {
        findings.required(field, "must specify at least one Policy");
    }
    for (index, policy) in policies.iter().enumerate() {
        let field = field.item(index);
        findings.one_of(field.at("type"), &policy["type"], &["Percent", "Pods"]);
        for key in ["value", "periodSeconds"] {
            let number = policy[key].as_i64().unwrap_or(0);
            if number <= 0 {
                findings.invalid(field.at(key), number, "must be greater than zero");
            } else if key == "periodSeconds" && number > 1800 {
                findings.invalid(field.at(key), number, "must be less than or equal to 1800");
            }
        }
    }
    let tolerance = &rules["tolerance"];
    if quantity::nanos(tolerance).is_some_and(|nanos| nanos < 0) {
        let why = "must be greater than or equal to 0";
        findings.invalid(path.at("tolerance"), tolerance.clone(), why);
    }
}

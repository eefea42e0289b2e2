//! Deployments and their kin, disruption budgets and autoscalers.

use std::fmt::Display;

use serde_json::{Value, json};

use super::{
    findings::{Findings, list, selects, text},
    pod,
};
use crate::schema::Problem;

pub(super) fn check(kind: &str, app: &Value, findings: &mut Findings) {
    let spec = &app["spec"];
    match kind {
        "Deployment" => {
            check_selected("deployment", spec, true, findings);
            check_strategy(&spec["strategy"], findings);
            findings.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
            findings.not_negative("spec.revisionHistoryLimit", &spec["revisionHistoryLimit"]);
            findings.not_negative("spec.progressDeadlineSeconds", &spec["progressDeadlineSeconds"]);
            let deadline = spec["progressDeadlineSeconds"].as_i64();
            let ready = spec["minReadySeconds"].as_i64().unwrap_or(0);
            if let Some(deadline) = deadline.filter(|deadline| *deadline <= ready) {
                findings.invalid(
                    "spec.progressDeadlineSeconds",
                    deadline,
                    "must be greater than minReadySeconds",
                );
            }
        }
        "ReplicaSet" => {
            // It says "deployment" of itself.
            check_selected("deployment", spec, true, findings);
            findings.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
        }
        "StatefulSet" => {
            let policies = ["OrderedReady", "Parallel"];
            findings.one_of(
                "spec.podManagementPolicy",
                &spec["podManagementPolicy"],
                &policies,
            );
            findings.one_of(
                "spec.updateStrategy",
                &spec["updateStrategy"]["type"],
                &["RollingUpdate", "OnDelete"],
            );
            check_selected("statefulset", spec, true, findings);
            findings.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
        }
        "DaemonSet" => {
            check_selected("daemonset", spec, false, findings);
            let strategies = ["RollingUpdate", "OnDelete"];
            findings.one_of(
                "spec.updateStrategy.type",
                &spec["updateStrategy"]["type"],
                &strategies,
            );
            findings.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
            findings.not_negative("spec.revisionHistoryLimit", &spec["revisionHistoryLimit"]);
        }
        "ControllerRevision" => {
            if app["data"].is_null() {
                findings.required("data", "data is mandatory");
            }
            findings.not_negative("revision", &app["revision"]);
        }
        _ => {}
    }
}

/// Replicas, selector and template, and that they go together.
fn check_selected(kind: &str, spec: &Value, selector_required: bool, findings: &mut Findings) {
    findings.not_negative("spec.replicas", &spec["replicas"]);
    let (selector, template) = (&spec["selector"], &spec["template"]);
    let before = findings.count();
    if selector.is_null() {
        if selector_required {
            findings.required("spec.selector", "");
        }
    } else {
        findings.selector("spec.selector", selector);
        if findings.count() > before {
            findings.invalid("spec.selector", selector.clone(), "invalid label selector");
        }
    }
    let empty = selector.is_object() && is_empty(selector);
    if empty {
        let why = format!("empty selector is invalid for {kind}");
        findings.invalid("spec.selector", json!({}), &why);
    }
    let understood = selector.is_null() || findings.count() == before || empty;
    if understood && !empty && !selects(selector, &template["metadata"]["labels"]) {
        mismatch(template, findings);
    }
    pod::check_template(template, &"spec.template", findings);
    let policy = &template["spec"]["restartPolicy"];
    if !policy.is_null() && *policy != "Always" {
        findings.one_of("spec.template.spec.restartPolicy", policy, &["Always"]);
    }
    if !template["spec"]["activeDeadlineSeconds"].is_null() {
        let why = format!("activeDeadlineSeconds in {} is not Supported", kind_name(kind));
        findings.forbidden("spec.template.spec.activeDeadlineSeconds", &why);
    }
}

fn kind_name(kind: &str) -> &str {
    match kind {
        "statefulset" => "StatefulSet",
        "daemonset" => "DaemonSet",
        _ => "ReplicaSet",
    }
}

pub(super) fn mismatch(template: &Value, findings: &mut Findings) {
    let labels = template["metadata"]["labels"].clone();
    findings.invalid(
        "spec.template.metadata.labels",
        labels,
        "`selector` does not match template `labels`",
    );
}

fn is_empty(selector: &Value) -> bool {
    let no_labels = selector["matchLabels"]
        .as_object()
        .is_none_or(serde_json::Map::is_empty);
    no_labels && list(&selector["matchExpressions"]).is_empty()
}

fn check_strategy(strategy: &Value, findings: &mut Findings) {
    let rolling = &strategy["rollingUpdate"];
    match text(&strategy["type"]) {
        "Recreate" => {
            if !rolling.is_null() {
                let why = "may not be specified when strategy `type` is 'Recreate'";
                findings.forbidden("spec.strategy.rollingUpdate", why);
            }
        }
        "RollingUpdate" => {
            let field = |name: &str| format!("spec.strategy.rollingUpdate.{name}");
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            findings.amount_or_percent(field("maxUnavailable"), unavailable);
            findings.amount_or_percent(field("maxSurge"), surge);
            if is_zero(unavailable) && is_zero(surge) {
                let why = "may not be 0 when `maxSurge` is 0";
                findings.invalid(field("maxUnavailable"), unavailable.clone(), why);
            }
            at_most_all(&field("maxUnavailable"), unavailable, findings);
        }
        other => {
            let shown = json!({"Type": other, "RollingUpdate": rolling});
            // Go's field order, which a map does not keep.
            let problem = Problem::NotSupportedText(
                format!(
                    "{{\"Type\":{},\"RollingUpdate\":{}}}",
                    shown["Type"], shown["RollingUpdate"]
                ),
                vec!["Recreate".into(), "RollingUpdate".into()],
            );
            findings.add("spec.strategy", problem);
        }
    }
}

fn is_zero(value: &Value) -> bool {
    *value == 0
        || text(value)
            .strip_suffix('%')
            .is_some_and(|digits| digits.parse() == Ok(0))
}

fn at_most_all(field: &dyn Display, value: &Value, findings: &mut Findings) {
    let part = text(value)
        .strip_suffix('%')
        .and_then(|digits| digits.parse::<i64>().ok());
    if part.is_some_and(|part| part > 100) {
        findings.invalid(field, value.clone(), "must not be greater than 100%");
    }
}

pub(super) fn check_replication_controller(spec: &Value, findings: &mut Findings) {
    findings.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
    let selector = &spec["selector"];
    if selector.as_object().is_none_or(serde_json::Map::is_empty) {
        findings.required("spec.selector", "");
    }
    findings.not_negative("spec.replicas", &spec["replicas"]);
    let template = &spec["template"];
    if template.is_null() {
        findings.required("spec.template", "");
        return;
    }
    if !selects(&json!({"matchLabels": selector}), &template["metadata"]["labels"]) {
        mismatch(template, findings);
    }
    pod::check_template(template, &"spec.template", findings);
    if template["spec"]["restartPolicy"] != "Always" {
        findings.one_of(
            "spec.template.spec.restartPolicy",
            &template["spec"]["restartPolicy"],
            &["Always"],
        );
    }
}

pub(super) fn check_disruption_budget(spec: &Value, findings: &mut Findings) {
    let (available, unavailable) = (&spec["minAvailable"], &spec["maxUnavailable"]);
    if !available.is_null() && !unavailable.is_null() {
        let shown = format!(
            "{{\"MinAvailable\":{available},\"Selector\":{},\"MaxUnavailable\":{unavailable},\"UnhealthyPodEvictionPolicy\":{}}}",
            spec["selector"], spec["unhealthyPodEvictionPolicy"]
        );
        let why = "minAvailable and maxUnavailable cannot be both set".to_owned();
        findings.add("spec", Problem::InvalidText(shown, why));
    }
    for (name, value) in [("minAvailable", available), ("maxUnavailable", unavailable)] {
        if !value.is_null() {
            let field = format_args!("spec.{name}");
            findings.amount_or_percent(field, value);
            at_most_all(&field, value, findings);
        }
    }
    findings.selector("spec.selector", &spec["selector"]);
    let policy = &spec["unhealthyPodEvictionPolicy"];
    if !policy.is_null() {
        findings.one_of(
            "spec.unhealthyPodEvictionPolicy",
            policy,
            &["AlwaysAllow", "IfHealthyBudget"],
        );
    }
}

pub(super) fn check_autoscaler(version: &str, spec: &Value, findings: &mut Findings) {
    let least = spec["minReplicas"].as_i64();
    let most = spec["maxReplicas"].as_i64().unwrap_or(0);
    if let Some(least) = least.filter(|least| *least < 1) {
        findings.invalid("spec.minReplicas", least, "must be greater than or equal to 1");
    }
    if most < 1 {
        findings.required("spec.maxReplicas", "must be set and greater than 0");
    }
    if least.is_some_and(|least| most < least) {
        findings.invalid(
            "spec.maxReplicas",
            most,
            "must be greater than or equal to `minReplicas`",
        );
    }
    let target = &spec["scaleTargetRef"];
    for key in ["kind", "name"] {
        if text(&target[key]).is_empty() {
            findings.required(format_args!("spec.scaleTargetRef.{key}"), "");
        }
    }
    if !text(&target["apiVersion"]).contains('/') {
        let why = "apiVersion must specify API group";
        findings.invalid("spec.scaleTargetRef.apiVersion", text(&target["apiVersion"]), why);
    }
    if version == "v1" {
        return;
    }
    for (index, metric) in list(&spec["metrics"]).iter().enumerate() {
        let field = format_args!("spec.metrics[{index}]");
        let sources = ["ContainerResource", "External", "Object", "Pods", "Resource"];
        let kind = text(&metric["type"]);
        if !sources.contains(&kind) {
            // Two of the real server's checks look at it.
            findings.one_of(format_args!("{field}.type"), &metric["type"], &sources);
            findings.one_of(format_args!("{field}.type"), &metric["type"], &sources);
            continue;
        }
        let source = format!("{}{}", kind[..1].to_lowercase(), &kind[1..]);
        if metric[&source].is_null() {
            let why = "must populate information for the given metric source";
            findings.required(format_args!("{field}.{source}"), why);
        }
    }
    let to_zero = |metric: &Value| matches!(text(&metric["type"]), "Object" | "External");
    if least == Some(0) && !list(&spec["metrics"]).iter().any(to_zero) {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        findings.forbidden("spec.metrics", why);
    }
}

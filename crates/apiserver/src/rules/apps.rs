//! Deployments and their kin, and disruption budgets.

use serde_json::{Value, json};

use super::{
    findings::{Findings, list, percent, selects, text},
    pods, storage,
};
use crate::{internals, naming, schema::Problem, trail::Trail};

pub(super) fn check(kind: &str, app: &Value, is_new: bool, findings: &mut Findings) {
    let spec = &app["spec"];
    match kind {
        "Deployment" => check_deployment(spec, findings),
        "ReplicaSet" => {
            findings.not_negative("spec.replicas", &spec["replicas"]);
            findings.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
            // It says "deployment" of itself.
            check_selected("deployment", spec, findings);
        }
        "StatefulSet" => check_stateful_set(spec, is_new, findings),
        "DaemonSet" => {
            check_selected("daemonset", spec, findings);
            findings.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
            check_daemon_updates(&spec["updateStrategy"], findings);
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

fn check_deployment(spec: &Value, findings: &mut Findings) {
    findings.not_negative("spec.replicas", &spec["replicas"]);
    check_selected("deployment", spec, findings);
    check_strategy(&spec["strategy"], findings);
    findings.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
    findings.not_negative("spec.revisionHistoryLimit", &spec["revisionHistoryLimit"]);
    findings.not_negative("spec.progressDeadlineSeconds", &spec["progressDeadlineSeconds"]);
    let deadline = spec["progressDeadlineSeconds"].as_i64();
    let ready = spec["minReadySeconds"].as_i64().unwrap_or(0);
    if let Some(deadline) = deadline.filter(|deadline| *deadline <= ready) {
        let why = "must be greater than minReadySeconds";
        findings.invalid("spec.progressDeadlineSeconds", deadline, why);
    }
}

/// Selector and template, and that they go together.
fn check_selected(kind: &str, spec: &Value, findings: &mut Findings) {
    let (selector, template) = (&spec["selector"], &spec["template"]);
    let before = findings.count();
    if selector.is_null() {
        if kind != "daemonset" {
            findings.required("spec.selector", "");
        }
    } else {
        findings.selector(&Trail::from_root("spec.selector"), selector);
    }
    let understood = selector.is_null() || findings.count() == before;
    // What is no selector is told so by each kind in its way.
    match kind {
        _ if understood => {}
        "statefulset" => findings.invalid("spec.selector", selector.clone(), ""),
        "daemonset" => {}
        _ => findings.invalid("spec.selector", selector.clone(), "invalid label selector"),
    }
    let empty = selector.is_object() && is_empty(selector);
    if empty {
        let why = format!("empty selector is invalid for {kind}");
        findings.invalid("spec.selector", json!({}), &why);
    }
    if understood && !empty && !selects(selector, &template["metadata"]["labels"]) {
        mismatch(template, findings);
    }
    let path = Trail::from_root("spec.template");
    if !understood && kind == "deployment" {
        return;
    }
    if kind == "statefulset" {
        if understood {
            pods::check_stateful_template(template, &spec["volumeClaimTemplates"], &path, findings);
        }
    } else {
        pods::check_template(template, &path, findings);
    }
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
    findings.invalid(
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
            let path = Trail::from_root("spec.strategy.rollingUpdate");
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            findings.amount_or_percent(path.at("maxUnavailable"), unavailable);
            findings.amount_or_percent(path.at("maxSurge"), surge);
            if is_zero(unavailable) && is_zero(surge) {
                let why = "may not be 0 when `maxSurge` is 0";
                findings.invalid(path.at("maxUnavailable"), unavailable.clone(), why);
            }
            findings.not_over_all(path.at("maxUnavailable"), unavailable);
        }
        _ => {
            let choices = vec!["Recreate".into(), "RollingUpdate".into()];
            let problem =
                Problem::NotSupportedText(internals::shown("DeploymentStrategy", strategy), choices);
            findings.add("spec.strategy", problem);
        }
    }
}

fn is_zero(value: &Value) -> bool {
    *value == 0 || percent(value) == Some(0)
}

fn check_stateful_set(spec: &Value, is_new: bool, findings: &mut Findings) {
    let policy = text(&spec["podManagementPolicy"]);
    if !matches!(policy, "OrderedReady" | "Parallel") {
        let why = "must be 'OrderedReady' or 'Parallel'";
        findings.invalid("spec.podManagementPolicy", policy, why);
    }
    let strategy = &spec["updateStrategy"];
    let (rolling, path) = (
        &strategy["rollingUpdate"],
        Trail::from_root("spec.updateStrategy.rollingUpdate"),
    );
    match text(&strategy["type"]) {
        "OnDelete" => {
            if !rolling.is_null() {
                let shown = internals::shown("RollingUpdateStatefulSetStrategy", rolling);
                let why = "only allowed for updateStrategy 'RollingUpdate'".to_owned();
                findings.add(path, Problem::InvalidText(shown, why));
            }
        }
        "RollingUpdate" => {
            findings.not_negative(path.at("partition"), &rolling["partition"]);
        }
        _ => {
            let why = "must be 'RollingUpdate' or 'OnDelete'".to_owned();
            let problem = Problem::InvalidText(internals::shown("StatefulSetUpdateStrategy", strategy), why);
            findings.add("spec.updateStrategy", problem);
        }
    }
    let retention = &spec["persistentVolumeClaimRetentionPolicy"];
    for key in ["whenDeleted", "whenScaled"] {
        let field = Trail::from_root("spec.persistentVolumeClaimRetentionPolicy");
        findings.one_of_if_given(field.at(key), &retention[key], &["Retain", "Delete"]);
    }
    let path = Trail::from_root("spec.volumeClaimTemplates");
    // They cannot change any more, so that what is there is let be.
    for (index, claim) in list(&spec["volumeClaimTemplates"]).iter().enumerate() {
        if is_new {
            storage::check_claim(&claim["spec"], &path.item(index).at("spec"), findings);
        }
    }
    findings.not_negative("spec.replicas", &spec["replicas"]);
    findings.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
    findings.not_negative("spec.ordinals.start", &spec["ordinals"]["start"]);
    let service = text(&spec["serviceName"]);
    if is_new && !service.is_empty() {
        findings.named("spec.serviceName", service, naming::label(service));
    }
    check_selected("statefulset", spec, findings);
}

fn check_daemon_updates(strategy: &Value, findings: &mut Findings) {
    let path = Trail::from_root("spec.updateStrategy.rollingUpdate");
    match text(&strategy["type"]) {
        "OnDelete" => {}
        "RollingUpdate" => {
            let rolling = &strategy["rollingUpdate"];
            if rolling.is_null() {
                findings.required(path, "");
                return;
            }
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            let (first, second) = (path.at("maxUnavailable"), path.at("maxSurge"));
            findings.amount_or_percent(first, unavailable);
            findings.not_over_all(first, unavailable);
            findings.amount_or_percent(second, surge);
            findings.not_over_all(second, surge);
            // What is no number counts as none, but not as said to be none.
            let any = |value: &Value| percent(value).or(value.as_i64()).is_some_and(|part| part != 0);
            if any(unavailable) && any(surge) {
                let why = "may not be set when maxUnavailable is non-zero";
                findings.invalid(second, surge.clone(), why);
            } else if !any(unavailable) && (surge.is_null() || is_zero(surge)) {
                findings.required(first, "cannot be 0 when maxSurge is 0");
            }
        }
        _ => {
            let choices = vec!["RollingUpdate".into(), "OnDelete".into()];
            let problem =
                Problem::NotSupportedText(internals::shown("DaemonSetUpdateStrategy", strategy), choices);
            findings.add("spec.updateStrategy", problem);
        }
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
    pods::check_template(template, &Trail::from_root("spec.template"), findings);
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
        let shown = internals::shown("PodDisruptionBudgetSpec", spec);
        let why = "minAvailable and maxUnavailable cannot be both set".to_owned();
        findings.add("spec", Problem::InvalidText(shown, why));
    }
    let path = Trail::from_root("spec");
    for (name, value) in [("minAvailable", available), ("maxUnavailable", unavailable)] {
        if !value.is_null() {
            findings.amount_or_percent(path.at(name), value);
            findings.not_over_all(path.at(name), value);
        }
    }
    findings.selector(&path.at("selector"), &spec["selector"]);
    findings.one_of_if_given(
        "spec.unhealthyPodEvictionPolicy",
        &spec["unhealthyPodEvictionPolicy"],
        &["AlwaysAllow", "IfHealthyBudget"],
    );
}

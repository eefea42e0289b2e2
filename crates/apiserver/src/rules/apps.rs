//! Deployments, ReplicaSets, StatefulSets, DaemonSets, and disruption budgets.

use serde_json::{Value, json};
use windlass_api::naming;

use super::{
    error_list::{ErrorList, list, percent, selector_matches, text},
    pods, storage,
};
use crate::{field_path::FieldPath, internal_types, schema::Problem};

pub(super) fn check(kind: &str, app: &Value, is_new: bool, errors: &mut ErrorList) {
    let spec = &app["spec"];
    match kind {
        "Deployment" => check_deployment(spec, errors),
        "ReplicaSet" => {
            errors.not_negative("spec.replicas", &spec["replicas"]);
            errors.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
            // The real server's message says "deployment".
            check_selector_and_template("deployment", spec, errors);
        }
        "StatefulSet" => check_stateful_set(spec, is_new, errors),
        "DaemonSet" => {
            check_selector_and_template("daemonset", spec, errors);
            errors.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
            check_daemon_set_strategy(&spec["updateStrategy"], errors);
            errors.not_negative("spec.revisionHistoryLimit", &spec["revisionHistoryLimit"]);
        }
        "ControllerRevision" => {
            if app["data"].is_null() {
                errors.required("data", "data is mandatory");
            }
            errors.not_negative("revision", &app["revision"]);
        }
        _ => {}
    }
}

fn check_deployment(spec: &Value, errors: &mut ErrorList) {
    errors.not_negative("spec.replicas", &spec["replicas"]);
    check_selector_and_template("deployment", spec, errors);
    check_strategy(&spec["strategy"], errors);
    errors.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
    errors.not_negative("spec.revisionHistoryLimit", &spec["revisionHistoryLimit"]);
    errors.not_negative("spec.progressDeadlineSeconds", &spec["progressDeadlineSeconds"]);
    let deadline = spec["progressDeadlineSeconds"].as_i64();
    let ready = spec["minReadySeconds"].as_i64().unwrap_or(0);
    if let Some(deadline) = deadline.filter(|deadline| *deadline <= ready) {
        let why = "must be greater than minReadySeconds";
        errors.invalid("spec.progressDeadlineSeconds", deadline, why);
    }
}

/// Checks the selector, the template, and that they match.
fn check_selector_and_template(kind: &str, spec: &Value, errors: &mut ErrorList) {
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
            pods::check_stateful_template(template, &spec["volumeClaimTemplates"], &path, errors);
        }
    } else {
        pods::check_template(template, &path, errors);
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

fn check_strategy(strategy: &Value, errors: &mut ErrorList) {
    let rolling = &strategy["rollingUpdate"];
    match text(&strategy["type"]) {
        "Recreate" => {
            if !rolling.is_null() {
                let why = "may not be specified when strategy `type` is 'Recreate'";
                errors.forbidden("spec.strategy.rollingUpdate", why);
            }
        }
        "RollingUpdate" => {
            let path = FieldPath::from_root("spec.strategy.rollingUpdate");
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            errors.count_or_percent(path.child("maxUnavailable"), unavailable);
            errors.count_or_percent(path.child("maxSurge"), surge);
            if is_zero(unavailable) && is_zero(surge) {
                let why = "may not be 0 when `maxSurge` is 0";
                errors.invalid(path.child("maxUnavailable"), unavailable.clone(), why);
            }
            errors.at_most_100_percent(path.child("maxUnavailable"), unavailable);
        }
        _ => {
            let choices = vec!["Recreate".into(), "RollingUpdate".into()];
            let problem = Problem::NotSupportedText(
                internal_types::format_as_struct("DeploymentStrategy", strategy),
                choices,
            );
            errors.add("spec.strategy", problem);
        }
    }
}

fn is_zero(value: &Value) -> bool {
    *value == 0 || percent(value) == Some(0)
}

fn check_stateful_set(spec: &Value, is_new: bool, errors: &mut ErrorList) {
    let policy = text(&spec["podManagementPolicy"]);
    if !matches!(policy, "OrderedReady" | "Parallel") {
        let why = "must be 'OrderedReady' or 'Parallel'";
        errors.invalid("spec.podManagementPolicy", policy, why);
    }
    let strategy = &spec["updateStrategy"];
    let (rolling, path) = (
        &strategy["rollingUpdate"],
        FieldPath::from_root("spec.updateStrategy.rollingUpdate"),
    );
    match text(&strategy["type"]) {
        "OnDelete" => {
            if !rolling.is_null() {
                let shown = internal_types::format_as_struct("RollingUpdateStatefulSetStrategy", rolling);
                let why = "only allowed for updateStrategy 'RollingUpdate'".to_owned();
                errors.add(path, Problem::InvalidText(shown, why));
            }
        }
        "RollingUpdate" => {
            errors.not_negative(path.child("partition"), &rolling["partition"]);
        }
        _ => {
            let why = "must be 'RollingUpdate' or 'OnDelete'".to_owned();
            let problem = Problem::InvalidText(
                internal_types::format_as_struct("StatefulSetUpdateStrategy", strategy),
                why,
            );
            errors.add("spec.updateStrategy", problem);
        }
    }
    let retention = &spec["persistentVolumeClaimRetentionPolicy"];
    for key in ["whenDeleted", "whenScaled"] {
        let field = FieldPath::from_root("spec.persistentVolumeClaimRetentionPolicy");
        errors.one_of_if_given(field.child(key), &retention[key], &["Retain", "Delete"]);
    }
    let path = FieldPath::from_root("spec.volumeClaimTemplates");
    // The templates are immutable, so existing ones are not checked again.
    for (index, claim) in list(&spec["volumeClaimTemplates"]).iter().enumerate() {
        if is_new {
            storage::check_claim(&claim["spec"], &path.index(index).child("spec"), errors);
        }
    }
    errors.not_negative("spec.replicas", &spec["replicas"]);
    errors.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
    errors.not_negative("spec.ordinals.start", &spec["ordinals"]["start"]);
    let service = text(&spec["serviceName"]);
    if is_new && !service.is_empty() {
        errors.invalid_each("spec.serviceName", service, naming::label(service));
    }
    check_selector_and_template("statefulset", spec, errors);
}

fn check_daemon_set_strategy(strategy: &Value, errors: &mut ErrorList) {
    let path = FieldPath::from_root("spec.updateStrategy.rollingUpdate");
    match text(&strategy["type"]) {
        "OnDelete" => {}
        "RollingUpdate" => {
            let rolling = &strategy["rollingUpdate"];
            if rolling.is_null() {
                errors.required(path, "");
                return;
            }
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            let (first, second) = (path.child("maxUnavailable"), path.child("maxSurge"));
            errors.count_or_percent(first, unavailable);
            errors.at_most_100_percent(first, unavailable);
            errors.count_or_percent(second, surge);
            errors.at_most_100_percent(second, surge);
            // A value that is not a number counts as zero, but not as explicitly zero.
            let any = |value: &Value| percent(value).or(value.as_i64()).is_some_and(|part| part != 0);
            if any(unavailable) && any(surge) {
                let why = "may not be set when maxUnavailable is non-zero";
                errors.invalid(second, surge.clone(), why);
            } else if !any(unavailable) && (surge.is_null() || is_zero(surge)) {
                errors.required(first, "cannot be 0 when maxSurge is 0");
            }
        }
        _ => {
            let choices = vec!["RollingUpdate".into(), "OnDelete".into()];
            let problem = Problem::NotSupportedText(
                internal_types::format_as_struct("DaemonSetUpdateStrategy", strategy),
                choices,
            );
            errors.add("spec.updateStrategy", problem);
        }
    }
}

pub(super) fn check_replication_controller(spec: &Value, errors: &mut ErrorList) {
    errors.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
    let selector = &spec["selector"];
    if selector.as_object().is_none_or(serde_json::Map::is_empty) {
        errors.required("spec.selector", "");
    }
    errors.not_negative("spec.replicas", &spec["replicas"]);
    let template = &spec["template"];
    if template.is_null() {
        errors.required("spec.template", "");
        return;
    }
    if !selector_matches(&json!({"matchLabels": selector}), &template["metadata"]["labels"]) {
        selector_mismatch(template, errors);
    }
    pods::check_template(template, &FieldPath::from_root("spec.template"), errors);
    if template["spec"]["restartPolicy"] != "Always" {
        errors.one_of(
            "spec.template.spec.restartPolicy",
            &template["spec"]["restartPolicy"],
            &["Always"],
        );
    }
}

pub(super) fn check_disruption_budget(spec: &Value, errors: &mut ErrorList) {
    let (available, unavailable) = (&spec["minAvailable"], &spec["maxUnavailable"]);
    if !available.is_null() && !unavailable.is_null() {
        let shown = internal_types::format_as_struct("PodDisruptionBudgetSpec", spec);
        let why = "minAvailable and maxUnavailable cannot be both set".to_owned();
        errors.add("spec", Problem::InvalidText(shown, why));
    }
    let path = FieldPath::from_root("spec");
    for (name, value) in [("minAvailable", available), ("maxUnavailable", unavailable)] {
        if !value.is_null() {
            errors.count_or_percent(path.child(name), value);
            errors.at_most_100_percent(path.child(name), value);
        }
    }
    errors.selector(&path.child("selector"), &spec["selector"]);
    errors.one_of_if_given(
        "spec.unhealthyPodEvictionPolicy",
        &spec["unhealthyPodEvictionPolicy"],
        &["AlwaysAllow", "IfHealthyBudget"],
    );
}

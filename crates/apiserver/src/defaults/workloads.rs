//! The kinds that keep pods: replicas, rollouts, jobs, and what scales them.

use serde_json::{Value, json};

use super::{pod, set};

pub(super) fn fill_app(kind: &str, app: &mut Value) {
    if kind == "ControllerRevision" {
        return;
    }
    let spec = &mut app["spec"];
    match kind {
        "Deployment" => fill_rollout(
            &mut spec["strategy"],
            &[("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))],
        ),
        "StatefulSet" => fill_rollout(&mut spec["updateStrategy"], &[("partition", json!(0))]),
        "DaemonSet" => fill_rollout(
            &mut spec["updateStrategy"],
            &[("maxUnavailable", json!(1)), ("maxSurge", json!(0))],
        ),
        _ => {}
    }
    pod::fill_template(&mut spec["template"]);
}

/// The parameters that a rolling update has, and no other strategy.
fn fill_rollout(strategy: &mut Value, parameters: &[(&str, Value)]) {
    if strategy["type"] != "RollingUpdate" {
        return;
    }
    set(strategy, "rollingUpdate", json!({}));
    for (key, value) in parameters {
        set(&mut strategy["rollingUpdate"], key, value.clone());
    }
}

/// A replication controller selects the pods it makes, and looks like them.
pub(super) fn fill_replication_controller(controller: &mut Value) {
    let labels = controller["spec"]["template"]["metadata"].get("labels").cloned();
    if let Some(labels) = labels {
        set(&mut controller["spec"], "selector", labels.clone());
        set(&mut controller["metadata"], "labels", labels);
    }
    if let Some(template) = controller["spec"].get_mut("template") {
        pod::fill_template(template);
    }
}

pub(super) fn fill_job(job: &mut Value) {
    let spec = &mut job["spec"];
    // A job that says neither how many pods nor how many at a time wants one.
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        set(spec, "completions", 1);
    }
    set(spec, "parallelism", 1);
    let retries = if spec.get("backoffLimitPerIndex").is_some() {
        i64::from(i32::MAX)
    } else {
        6
    };
    set(spec, "backoffLimit", retries);
    let replaced = if spec.get("podFailurePolicy").is_some() {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    set(spec, "podReplacementPolicy", replaced);
    pod::fill_template(&mut spec["template"]);
    let labels = spec["template"]["metadata"].get("labels").cloned();
    if let Some(labels) = labels {
        set(&mut job["metadata"], "labels", labels);
    }
}

pub(super) fn fill_autoscaler(version: &str, scaler: &mut Value) {
    let spec = &mut scaler["spec"];
    set(spec, "minReplicas", 1);
    if version == "v1" {
        set(spec, "targetCPUUtilizationPercentage", 80);
        return;
    }
    let by_cpu = json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80},
    }});
    set(spec, "metrics", vec![by_cpu]);
    let Some(behavior) = spec.get_mut("behavior") else {
        return;
    };
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    set(behavior, "scaleUp", json!({}));
    set(behavior, "scaleDown", json!({}));
    let up = &mut behavior["scaleUp"];
    set(up, "stabilizationWindowSeconds", 0);
    set(up, "policies", vec![pods, percent.clone()]);
    set(up, "selectPolicy", "Max");
    let down = &mut behavior["scaleDown"];
    set(down, "policies", vec![percent]);
    set(down, "selectPolicy", "Max");
}

//! Workloads and autoscalers.

use serde_json::{Value, json};

use super::{pod, set_if_absent};

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

/// Defaults the parameters of a rolling update; other strategies have none.
fn fill_rollout(strategy: &mut Value, parameters: &[(&str, Value)]) {
    if strategy["type"] != "RollingUpdate" {
        return;
    }
    set_if_absent(strategy, "rollingUpdate", json!({}));
    for (key, value) in parameters {
        set_if_absent(&mut strategy["rollingUpdate"], key, value.clone());
    }
}

/// The template's labels become the default selector and labels.
pub(super) fn fill_replication_controller(controller: &mut Value) {
    let labels = controller["spec"]["template"]["metadata"].get("labels").cloned();
    if let Some(labels) = labels {
        set_if_absent(&mut controller["spec"], "selector", labels.clone());
        set_if_absent(&mut controller["metadata"], "labels", labels);
    }
    if let Some(template) = controller["spec"].get_mut("template") {
        pod::fill_template(template);
    }
}

pub(super) fn fill_job(job: &mut Value) {
    let spec = &mut job["spec"];
    // Without completions and parallelism, a job runs one pod.
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        set_if_absent(spec, "completions", 1);
    }
    set_if_absent(spec, "parallelism", 1);
    let retries = if spec.get("backoffLimitPerIndex").is_some() {
        i64::from(i32::MAX)
    } else {
        6
    };
    set_if_absent(spec, "backoffLimit", retries);
    let replaced = if spec.get("podFailurePolicy").is_some() {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    set_if_absent(spec, "podReplacementPolicy", replaced);
    pod::fill_template(&mut spec["template"]);
    let labels = spec["template"]["metadata"].get("labels").cloned();
    if let Some(labels) = labels {
        set_if_absent(&mut job["metadata"], "labels", labels);
    }
}

pub(super) fn fill_autoscaler(version: &str, scaler: &mut Value) {
    let spec = &mut scaler["spec"];
    set_if_absent(spec, "minReplicas", 1);
    if version == "v1" {
        set_if_absent(spec, "targetCPUUtilizationPercentage", 80);
        return;
    }
    let by_cpu = json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80},
    }});
    set_if_absent(spec, "metrics", vec![by_cpu]);
    let Some(behavior) = spec.get_mut("behavior") else {
        return;
    };
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    set_if_absent(behavior, "scaleUp", json!({}));
    set_if_absent(behavior, "scaleDown", json!({}));
    let up = &mut behavior["scaleUp"];
    set_if_absent(up, "stabilizationWindowSeconds", 0);
    set_if_absent(up, "policies", vec![pods, percent.clone()]);
    set_if_absent(up, "selectPolicy", "Max");
    let down = &mut behavior["scaleDown"];
    set_if_absent(down, "policies", vec![percent]);
    set_if_absent(down, "selectPolicy", "Max");
}

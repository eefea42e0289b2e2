//! Conversion between `autoscaling/v1` and the storage version `autoscaling/v2`.

use serde_json::{Map, Value, json};

use crate::object::Object;

/// Annotations in which `autoscaling/v1` keeps fields that it lacks.
const AUTOSCALER_ANNOTATIONS: [(&str, &str); 2] = [
    ("metrics", "autoscaling.alpha.kubernetes.io/metrics"),
    ("behavior", "autoscaling.alpha.kubernetes.io/behavior"),
];

fn is_cpu_utilization(metric: &Value) -> bool {
    metric["type"] == "Resource"
        && metric["resource"]["name"] == "cpu"
        && metric["resource"]["target"]["type"] == "Utilization"
}

pub(super) fn convert_for_read(scaler: &mut Object) {
    let mut notes = Map::new();
    if let Some(spec) = scaler.fields_mut().get_mut("spec").and_then(Value::as_object_mut) {
        let metrics = match spec.remove("metrics") {
            Some(Value::Array(metrics)) => metrics,
            _ => Vec::new(),
        };
        let (cpu, others): (Vec<_>, Vec<_>) = metrics.into_iter().partition(is_cpu_utilization);
        if let Some(cpu) = cpu.first() {
            let share = cpu["resource"]["target"]["averageUtilization"].clone();
            spec.insert("targetCPUUtilizationPercentage".into(), share);
        }
        let behavior = spec.remove("behavior").unwrap_or_default();
        let others = if others.is_empty() {
            Value::Null
        } else {
            others.into()
        };
        for ((_, annotation), kept) in AUTOSCALER_ANNOTATIONS.iter().zip([others, behavior]) {
            if !kept.is_null() {
                notes.insert((*annotation).to_owned(), kept.to_string().into());
            }
        }
    }
    let status = scaler
        .fields_mut()
        .get_mut("status")
        .and_then(Value::as_object_mut);
    if let Some(status) = status {
        let current = status.remove("currentMetrics").unwrap_or_default();
        let cpu = current.as_array().into_iter().flatten();
        let share = cpu
            .filter(|metric| metric["type"] == "Resource" && metric["resource"]["name"] == "cpu")
            .map(|metric| metric["resource"]["current"]["averageUtilization"].clone())
            .next();
        if let Some(share) = share.filter(|share| !share.is_null()) {
            status.insert("currentCPUUtilizationPercentage".into(), share);
        }
        status.remove("conditions");
    }
    if !notes.is_empty() {
        let annotations = scaler
            .metadata_mut()
            .entry("annotations")
            .or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.extend(notes);
        }
    }
}

pub(super) fn convert_to_stored(scaler: &mut Object) {
    let mut kept = AUTOSCALER_ANNOTATIONS.map(|_| Value::Null);
    if let Some(annotations) = scaler
        .metadata_mut()
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    {
        for ((_, annotation), kept) in AUTOSCALER_ANNOTATIONS.iter().zip(&mut kept) {
            let text = annotations.remove(*annotation);
            let text = text.as_ref().and_then(Value::as_str).unwrap_or_default();
            *kept = serde_json::from_str(text).unwrap_or_default();
        }
        if annotations.is_empty() {
            scaler.metadata_mut().remove("annotations");
        }
    }
    let [others, behavior] = kept;
    if let Some(spec) = scaler.fields_mut().get_mut("spec").and_then(Value::as_object_mut) {
        let mut metrics = match others {
            Value::Array(others) => others,
            _ => Vec::new(),
        };
        if let Some(share) = spec.remove("targetCPUUtilizationPercentage") {
            metrics.push(json!({"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": share},
            }}));
        }
        if !metrics.is_empty() {
            spec.insert("metrics".into(), metrics.into());
        }
        if !behavior.is_null() {
            spec.insert("behavior".into(), behavior);
        }
    }
    let status = scaler
        .fields_mut()
        .get_mut("status")
        .and_then(Value::as_object_mut);
    if let Some(status) = status {
        let share = status.remove("currentCPUUtilizationPercentage");
        let current = share.map_or(Value::Null, |share| {
            json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": share}}}])
        });
        status.insert("currentMetrics".into(), current);
        // `autoscaling/v2` omits zero.
        if status
            .get("currentReplicas")
            .is_some_and(|replicas| *replicas == 0)
        {
            status.remove("currentReplicas");
        }
    }
}

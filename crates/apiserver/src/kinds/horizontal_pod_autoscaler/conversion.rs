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

/// The sources of metrics that have a field of their own in a metric.
const SOURCES: [&str; 5] = ["object", "pods", "resource", "containerResource", "external"];

/// A metric of `autoscaling/v2` as the annotation has it: in the form of `autoscaling/v1`, with the fields in Go's order.
fn v1_metric(metric: &Value) -> String {
    let mut fields = vec![("type", metric["type"].to_string())];
    for name in SOURCES {
        let source = &metric[name];
        if source.is_null() {
            continue;
        }
        let (target, subject) = (&source["target"], &source["metric"]);
        let zero = json!("0");
        let value = &target["value"];
        let form = match name {
            "object" => {
                let described = &source["describedObject"];
                let described = object_in_order(&[
                    ("kind", described["kind"].to_string()),
                    ("name", described["name"].to_string()),
                    ("apiVersion", described["apiVersion"].to_string()),
                ]);
                let value = if value.is_null() { &zero } else { value };
                vec![
                    ("target", described),
                    ("metricName", subject["name"].to_string()),
                    ("targetValue", value.to_string()),
                    ("selector", subject["selector"].to_string()),
                    ("averageValue", target["averageValue"].to_string()),
                ]
            }
            "pods" => {
                let average = &target["averageValue"];
                let average = if average.is_null() { &zero } else { average };
                vec![
                    ("metricName", subject["name"].to_string()),
                    ("targetAverageValue", average.to_string()),
                    ("selector", subject["selector"].to_string()),
                ]
            }
            "external" => vec![
                ("metricName", subject["name"].to_string()),
                ("metricSelector", subject["selector"].to_string()),
                ("targetValue", value.to_string()),
                ("targetAverageValue", target["averageValue"].to_string()),
            ],
            _ => vec![
                ("name", source["name"].to_string()),
                (
                    "targetAverageUtilization",
                    target["averageUtilization"].to_string(),
                ),
                ("targetAverageValue", target["averageValue"].to_string()),
                ("container", source["container"].to_string()),
            ],
        };
        fields.push((name, object_in_order(&form)));
    }
    object_in_order(&fields)
}

/// A JSON object of these fields, without those that are null.
fn object_in_order(fields: &[(&str, String)]) -> String {
    let fields = fields.iter().filter(|(_, json)| json != "null");
    let fields: Vec<_> = fields.map(|(key, json)| format!("\"{key}\":{json}")).collect();
    format!("{{{}}}", fields.join(","))
}

/// A metric of the annotation, in the form of `autoscaling/v2`.
fn stored_metric(metric: &Value) -> Value {
    let mut stored = Map::new();
    stored.insert("type".to_owned(), metric["type"].clone());
    for name in SOURCES {
        let source = &metric[name];
        if source.is_null() {
            continue;
        }
        let (value, average) = (&source["targetValue"], &source["targetAverageValue"]);
        let subject =
            |selector: &str| present([("name", &source["metricName"]), ("selector", &source[selector])]);
        let utilization = &source["targetAverageUtilization"];
        let target = |kind: &str, average: &Value| {
            let kind = Value::from(kind);
            let fields = [
                ("type", &kind),
                ("value", value),
                ("averageValue", average),
                ("averageUtilization", utilization),
            ];
            present(fields)
        };
        let converted = match name {
            "object" => {
                let average = &source["averageValue"];
                let kind = if average.is_null() {
                    "Value"
                } else {
                    "AverageValue"
                };
                present([
                    ("describedObject", &source["target"]),
                    ("target", &target(kind, average)),
                    ("metric", &subject("selector")),
                ])
            }
            "pods" => present([
                ("metric", &subject("selector")),
                ("target", &target("AverageValue", average)),
            ]),
            "external" => {
                let kind = if value.is_null() { "AverageValue" } else { "Value" };
                present([
                    ("metric", &subject("metricSelector")),
                    ("target", &target(kind, average)),
                ])
            }
            _ => {
                let kind = if utilization.is_null() {
                    "AverageValue"
                } else {
                    "Utilization"
                };
                present([
                    ("name", &source["name"]),
                    ("target", &target(kind, average)),
                    ("container", &source["container"]),
                ])
            }
        };
        stored.insert(name.to_owned(), converted);
    }
    Value::Object(stored)
}

/// An object of these fields, without those that are null.
fn present<const N: usize>(fields: [(&str, &Value); N]) -> Value {
    let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
    fields
        .map(|(key, value)| (key.to_owned(), value.clone()))
        .collect()
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
            match kept {
                Value::Null => {}
                Value::Array(metrics) => {
                    let metrics: Vec<_> = metrics.iter().map(v1_metric).collect();
                    let text = format!("[{}]", metrics.join(","));
                    notes.insert((*annotation).to_owned(), text.into());
                }
                other => drop(notes.insert((*annotation).to_owned(), other.to_string().into())),
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
            Value::Array(others) => others.iter().map(stored_metric).collect(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_every_source_survive_the_annotation_of_v1() {
        let selector = json!({"matchLabels": {"a": "b"}});
        let object = json!({"apiVersion": "v1", "kind": "Service", "name": "s"});
        let metrics = json!([
            {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 70}}},
            {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
            {"type": "ContainerResource", "containerResource": {
                "name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 70},
            }},
            {"type": "Pods", "pods": {"metric": {"name": "m", "selector": selector}, "target": {"type": "AverageValue", "averageValue": "5"}}},
            {"type": "Object", "object": {"describedObject": object, "metric": {"name": "m"}, "target": {"type": "Value", "value": "5"}}},
            {"type": "External", "external": {"metric": {"name": "m", "selector": selector}, "target": {"type": "Value", "value": "5"}}},
            {"type": "External", "external": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "5"}}},
        ]);
        let scaler = json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "metrics": metrics}});
        let mut scaler = Object::new(scaler).expect("an object");
        convert_for_read(&mut scaler);
        let annotations = &scaler.tree()["metadata"]["annotations"];
        let text = annotations["autoscaling.alpha.kubernetes.io/metrics"]
            .as_str()
            .expect("a text");
        assert!(
            text.starts_with(
                r#"[{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":70}},{"type":"Resource","resource":{"name":"memory","targetAverageValue":"1Gi"}},{"type":"ContainerResource","containerResource":{"name":"cpu","targetAverageUtilization":70,"container":"c"}},{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"5","selector":{"matchLabels":{"a":"b"}}}},{"type":"Object","object":{"target":{"kind":"Service","name":"s","apiVersion":"v1"},"metricName":"m","targetValue":"5"}}"#
            ),
            "{text}"
        );
        convert_to_stored(&mut scaler);
        assert_eq!(scaler.tree()["spec"]["metrics"], metrics);
    }
}

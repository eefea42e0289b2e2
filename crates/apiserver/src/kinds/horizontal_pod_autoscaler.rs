//! Horizontal pod autoscalers, in two versions.

mod conversion;
mod validation;

use serde_json::{Value, json};

use super::{
    defaulting::set_if_absent,
    error_list::ErrorList,
    row::{Row, items, text},
    strategy::{Facts, MetadataChecks, Strategy, Write},
};
use crate::object::Object;

/// `autoscaling/v2`, the storage version.
pub(super) struct HorizontalPodAutoscaler;

/// `autoscaling/v1`.
pub(super) struct HorizontalPodAutoscalerV1;

impl Strategy for HorizontalPodAutoscaler {
    fn facts(&self) -> Facts {
        Facts {
            metadata_checks: MetadataChecks::THREE,
            counters: &["currentReplicas", "desiredReplicas"],
            columns: Some("Name Reference Targets MinPods MaxPods Replicas Age"),
            ..Facts::DEFAULT
        }
    }

    fn set_defaults(&self, scaler: &mut Object) {
        fill(&mut scaler.tree_mut()["spec"]);
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        validation::check(write.spec(), write.old, errors);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        cells(row)
    }
}

impl Strategy for HorizontalPodAutoscalerV1 {
    fn facts(&self) -> Facts {
        Facts {
            stored_version: Some("autoscaling/v2"),
            ..HorizontalPodAutoscaler.facts()
        }
    }

    fn set_defaults(&self, scaler: &mut Object) {
        let spec = &mut scaler.tree_mut()["spec"];
        set_if_absent(spec, "minReplicas", 1);
        set_if_absent(spec, "targetCPUUtilizationPercentage", 80);
    }

    fn convert_for_read(&self, scaler: &mut Object) {
        conversion::convert_for_read(scaler);
    }

    fn convert_to_stored(&self, scaler: &mut Object) {
        conversion::convert_to_stored(scaler);
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        validation::check_replicas_and_target(write.spec(), write.old, errors);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        cells(row)
    }
}

fn fill(spec: &mut Value) {
    set_if_absent(spec, "minReplicas", 1);
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

fn cells(row: &Row<'_>) -> Vec<Value> {
    let metrics: Vec<_> = items(row.object, "/spec/metrics").collect();
    let shown: Vec<_> = metrics
        .iter()
        .enumerate()
        .map(|(index, metric)| metric_text(row, index, metric))
        .collect();
    let targets = match shown.len() {
        0 => "<none>".to_owned(),
        3.. => format!("{} + {} more...", shown[..2].join(", "), shown.len() - 2),
        _ => shown.join(", "),
    };
    vec![
        row.name(),
        format!(
            "{}/{}",
            row.text("/spec/scaleTargetRef/kind"),
            row.text("/spec/scaleTargetRef/name")
        )
        .into(),
        targets.into(),
        row.text_or("/spec/minReplicas", "<unset>"),
        row.number("/spec/maxReplicas").into(),
        row.number("/status/currentReplicas").into(),
        row.age(),
    ]
}

fn metric_text(row: &Row<'_>, index: usize, metric: &Value) -> String {
    let kind = text(metric, "/type");
    let mut field = kind.to_owned();
    if let Some(first) = field.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    let source = &metric[&*field];
    let current = row
        .object
        .pointer(&format!("/status/currentMetrics/{index}/{field}/current"));
    let now = |key: &str| current.and_then(|c| c.get(key)).map(quantity_text);
    let target = &source["target"];
    let named = if matches!(kind, "Resource" | "ContainerResource") {
        format!("{}: ", text(source, "/name"))
    } else {
        String::new()
    };
    let unknown = || "<unknown>".to_owned();
    if let Some(wanted) = target.get("averageValue") {
        let average = if matches!(kind, "External" | "Object") {
            " (avg)"
        } else {
            ""
        };
        let current = now("averageValue").unwrap_or_else(unknown);
        return format!("{named}{current}/{}{average}", quantity_text(wanted));
    }
    if matches!(kind, "Resource" | "ContainerResource") {
        let percent = |value: Option<&Value>| value.and_then(Value::as_i64).map(|p| format!("{p}%"));
        let current = percent(current.and_then(|c| c.get("averageUtilization"))).unwrap_or_else(unknown);
        let wanted = percent(target.get("averageUtilization")).unwrap_or_else(|| "<auto>".to_owned());
        return format!("{named}{current}/{wanted}");
    }
    let current = now("value").unwrap_or_else(unknown);
    format!(
        "{current}/{}",
        target.get("value").map(quantity_text).unwrap_or_default()
    )
}

fn quantity_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

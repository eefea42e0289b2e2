//! The cells of jobs and autoscalers.

use jiff::Timestamp;
use serde_json::Value;
use windlass_api::conditions;

use super::{Row, age, items, text};

impl Row<'_> {
    pub(super) fn job_status(&self) -> Value {
        let holds = |kind: &str| conditions::is_true(self.object, kind);
        let deleting = !self.text("/metadata/deletionTimestamp").is_empty();
        [
            (holds("Complete"), "Complete"),
            (holds("Failed"), "Failed"),
            (deleting, "Terminating"),
            (holds("Suspended"), "Suspended"),
            (holds("FailureTarget"), "FailureTarget"),
            (holds("SuccessCriteriaMet"), "SuccessCriteriaMet"),
        ]
        .into_iter()
        .find(|(holds, _)| *holds)
        .map_or("Running", |(_, status)| status)
        .into()
    }

    pub(super) fn job_completions(&self) -> Value {
        let succeeded = self.number("/status/succeeded");
        let parallelism = self.number("/spec/parallelism");
        match self.object.pointer("/spec/completions").and_then(Value::as_i64) {
            Some(wanted) => format!("{succeeded}/{wanted}"),
            None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
            None => format!("{succeeded}/1"),
        }
        .into()
    }

    pub(super) fn job_duration(&self) -> Value {
        let time = |pointer: &str| self.text(pointer).parse::<Timestamp>().ok();
        let Some(start) = time("/status/startTime") else {
            return "".into();
        };
        let end = time("/status/completionTime").unwrap_or(self.now);
        age::human_duration(end.as_second() - start.as_second()).into()
    }

    pub(super) fn autoscaler(&self) -> Vec<Value> {
        let metrics: Vec<_> = items(self.object, "/spec/metrics").collect();
        let shown: Vec<_> = metrics
            .iter()
            .enumerate()
            .map(|(index, metric)| self.metric(index, metric))
            .collect();
        let targets = match shown.len() {
            0 => "<none>".to_owned(),
            3.. => format!("{} + {} more...", shown[..2].join(", "), shown.len() - 2),
            _ => shown.join(", "),
        };
        vec![
            self.text("/metadata/name").into(),
            format!(
                "{}/{}",
                self.text("/spec/scaleTargetRef/kind"),
                self.text("/spec/scaleTargetRef/name")
            )
            .into(),
            targets.into(),
            self.text_or("/spec/minReplicas", "<unset>"),
            self.number("/spec/maxReplicas").into(),
            self.number("/status/currentReplicas").into(),
            self.age(),
        ]
    }

    fn metric(&self, index: usize, metric: &Value) -> String {
        let kind = text(metric, "/type");
        let mut field = kind.to_owned();
        if let Some(first) = field.get_mut(..1) {
            first.make_ascii_lowercase();
        }
        let source = &metric[&*field];
        let current = self
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
}

fn quantity_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

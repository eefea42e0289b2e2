//! Priority classes.

use serde_json::Value;

use super::{
    defaulting::DefaultValue::Text,
    error_list::{ErrorList, text},
    row::Row,
    strategy::{Facts, Strategy, Write},
};

pub(super) struct PriorityClass;

impl Strategy for PriorityClass {
    fn facts(&self) -> Facts {
        Facts {
            has_generation: true,
            defaults: &[("preemptionPolicy", Text("PreemptLowerPriority"))],
            columns: Some("Name Value:integer Global-Default:boolean Age PreemptionPolicy"),
            ..Facts::DEFAULT
        }
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check(write.value(), errors);
    }

    fn validate_changes(&self, write: &Write<'_>, old: &Value, errors: &mut ErrorList) {
        if write.value()["value"] != old["value"] {
            errors.forbidden("value", "may not be changed in an update.");
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![
            row.name(),
            row.number("/value").into(),
            (row.object.pointer("/globalDefault") == Some(&Value::Bool(true))).into(),
            row.age(),
            row.text_or("/preemptionPolicy", "PreemptLowerPriority"),
        ]
    }
}

fn check(class: &Value, errors: &mut ErrorList) {
    let name = text(&class["metadata"]["name"]);
    if name.starts_with("system-") {
        if !matches!(name, "system-node-critical" | "system-cluster-critical") {
            let why = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class"
            );
            errors.forbidden("metadata.name", &why);
        }
    } else if class["value"].as_i64().is_some_and(|value| value > 1_000_000_000) {
        errors.forbidden(
            "value",
            "maximum allowed value of a user defined priority is 1000000000",
        );
    }
    if !class["preemptionPolicy"].is_null() {
        let policies = ["PreemptLowerPriority", "Never"];
        errors.one_of("preemptionPolicy", &class["preemptionPolicy"], &policies);
    }
}

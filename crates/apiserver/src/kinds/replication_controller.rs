//! Replication controllers, the predecessors of ReplicaSets.

use serde_json::{Value, json};

use super::{
    defaulting::{DefaultValue::Number, set_if_absent},
    error_list::{ErrorList, selector_matches},
    pod::{defaults::fill_template, validation::check_template},
    replica_set::{COLUMNS, COUNTERS, REPLICA_COUNTERS, cells},
    row::{Row, labels},
    selectable::SelectableField,
    strategy::{Facts, Strategy, Write},
    workload::selector_mismatch,
};
use crate::{field_path::FieldPath, object::Object};

pub(super) struct ReplicationController;

impl Strategy for ReplicationController {
    fn facts(&self) -> Facts {
        Facts {
            has_generation: true,
            orphan_by_default: true,
            defaults: &[("spec.replicas", Number(1))],
            selectable_fields: const { &[SelectableField::number("status.replicas")] },
            counters: &COUNTERS,
            replica_counters: &REPLICA_COUNTERS,
            columns: Some(COLUMNS),
            ..Facts::DEFAULT
        }
    }

    fn set_defaults(&self, controller: &mut Object) {
        let controller = controller.tree_mut();
        // The template's labels become the default selector and labels.
        let labels = controller["spec"]["template"]["metadata"].get("labels").cloned();
        if let Some(labels) = labels {
            set_if_absent(&mut controller["spec"], "selector", labels.clone());
            set_if_absent(&mut controller["metadata"], "labels", labels);
        }
        if let Some(template) = controller["spec"].get_mut("template") {
            fill_template(template);
        }
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check(write.spec(), errors);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        cells(row, labels(row.object.pointer("/spec/selector")))
    }
}

fn check(spec: &Value, errors: &mut ErrorList) {
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
    check_template(template, &FieldPath::from_root("spec.template"), errors);
    if template["spec"]["restartPolicy"] != "Always" {
        errors.one_of(
            "spec.template.spec.restartPolicy",
            &template["spec"]["restartPolicy"],
            &["Always"],
        );
    }
}

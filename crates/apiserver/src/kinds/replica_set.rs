//! ReplicaSets.

use serde_json::Value;

use super::{
    defaulting::DefaultValue::Number,
    error_list::ErrorList,
    pod::{defaults::fill_template, warnings::warn_spec},
    row::{Row, label_selector},
    strategy::{Facts, MetadataChecks, Strategy, Write},
    workload::check_selector_and_template,
};
use crate::object::Object;

pub(super) struct ReplicaSet;

impl Strategy for ReplicaSet {
    fn facts(&self) -> Facts {
        Facts {
            has_generation: true,
            metadata_checks: MetadataChecks::THREE,
            defaults: &[("spec.replicas", Number(1))],
            immutable_fields: &["spec.selector"],
            counters: &COUNTERS,
            replica_counters: &REPLICA_COUNTERS,
            columns: Some(COLUMNS),
            ..Facts::DEFAULT
        }
    }

    fn set_defaults(&self, set: &mut Object) {
        fill_template(&mut set.tree_mut()["spec"]["template"]);
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        let spec = write.spec();
        errors.not_negative("spec.replicas", &spec["replicas"]);
        errors.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
        // The real server's message says "deployment".
        check_selector_and_template("deployment", spec, errors);
    }

    fn warn(&self, write: &Write<'_>, warnings: &mut Vec<String>) {
        warn_spec(&write.spec()["template"]["spec"], &"spec.template.spec", warnings);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        cells(row, label_selector(row.object.pointer("/spec/selector")))
    }
}

/// The counters of the status, also of a replication controller's.
pub(super) const COUNTERS: [&str; 6] = [
    "replicas",
    "fullyLabeledReplicas",
    "readyReplicas",
    "availableReplicas",
    "terminatingReplicas",
    "observedGeneration",
];
pub(super) const REPLICA_COUNTERS: [&str; 3] = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
pub(super) const COLUMNS: &str =
    "Name Desired:integer Current:integer Ready:integer Age +Containers +Images +Selector";

pub(super) fn cells(row: &Row<'_>, selector: String) -> Vec<Value> {
    let [containers, images] = row.containers("/spec/template/spec");
    vec![
        row.name(),
        row.number("/spec/replicas").into(),
        row.number("/status/replicas").into(),
        row.number("/status/readyReplicas").into(),
        row.age(),
        containers,
        images,
        selector.into(),
    ]
}

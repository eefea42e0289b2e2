//! Deployments.

use serde_json::{Value, json};

use super::{
    defaulting::DefaultValue::{Number, Text},
    error_list::{ErrorList, text},
    pod::{defaults::fill_template, warnings::warn_spec},
    row::{Row, label_selector},
    strategy::{Facts, MetadataChecks, SPEC, Strategy, Write},
    workload::{check_selector_and_template, fill_rollout, is_zero},
};
use crate::{field_path::FieldPath, internal_types, object::Object, schema::Problem};

pub(super) struct Deployment;

impl Strategy for Deployment {
    fn facts(&self) -> Facts {
        Facts {
            has_generation: true,
            metadata_checks: MetadataChecks::THREE,
            defaults: &[
                ("spec.replicas", Number(1)),
                ("spec.strategy.type", Text("RollingUpdate")),
                ("spec.revisionHistoryLimit", Number(10)),
                ("spec.progressDeadlineSeconds", Number(600)),
            ],
            immutable_fields: &["spec.selector"],
            subresource_reset_fields: &[("status", &[SPEC, &["metadata", "labels"]])],
            counters: &[
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "terminatingReplicas",
                "collisionCount",
            ],
            replica_counters: &["updatedReplicas", "readyReplicas", "availableReplicas"],
            columns: Some("Name Ready Up-to-date Available Age +Containers +Images +Selector"),
            ..Facts::DEFAULT
        }
    }

    fn set_defaults(&self, deployment: &mut Object) {
        let spec = &mut deployment.tree_mut()["spec"];
        let parameters = [("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))];
        fill_rollout(&mut spec["strategy"], &parameters);
        fill_template(&mut spec["template"]);
    }

    fn keep_metadata_on_status_update(&self, deployment: &mut Object, old: &Object) {
        deployment.keep_meta("labels", old);
    }

    fn metadata_increments_generation(&self, deployment: &Object, old: &Object) -> bool {
        deployment.metadata().get("annotations") != old.metadata().get("annotations")
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check(write.spec(), errors);
    }

    fn warn(&self, write: &Write<'_>, warnings: &mut Vec<String>) {
        warn_spec(&write.spec()["template"]["spec"], &"spec.template.spec", warnings);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let [containers, images] = row.containers("/spec/template/spec");
        let selector = label_selector(row.object.pointer("/spec/selector"));
        vec![
            row.name(),
            row.ratio("/status/readyReplicas", "/spec/replicas"),
            row.number("/status/updatedReplicas").into(),
            row.number("/status/availableReplicas").into(),
            row.age(),
            containers,
            images,
            // An empty selector is shown as empty.
            if selector == "<none>" {
                "".into()
            } else {
                selector.into()
            },
        ]
    }
}

fn check(spec: &Value, errors: &mut ErrorList) {
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

//! DaemonSets.

use serde_json::{Value, json};

use super::{
    defaulting::DefaultValue::{Number, Text},
    error_list::{ErrorList, percent, text},
    pod::{defaults::fill_template, warnings::warn_spec},
    row::{Row, label_selector, labels},
    strategy::{Facts, MetadataChecks, Strategy, Write},
    workload::{check_selector_and_template, fill_rollout, is_zero},
};
use crate::{field_path::FieldPath, internal_types, object::Object, schema::Problem};

/// The annotation with the number of template changes of a daemon set, which replaces a removed field.
const TEMPLATE_GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";

pub(super) struct DaemonSet;

impl Strategy for DaemonSet {
    fn facts(&self) -> Facts {
        Facts {
            has_generation: true,
            metadata_checks: MetadataChecks::THREE,
            defaults: &[
                ("spec.updateStrategy.type", Text("RollingUpdate")),
                ("spec.revisionHistoryLimit", Number(10)),
            ],
            immutable_fields: &["spec.selector"],
            counters: &[
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ],
            columns: Some(
                "Name Desired:integer Current:integer Ready:integer Up-to-date:integer Available:integer \
                 Node_Selector Age +Containers +Images +Selector",
            ),
            ..Facts::DEFAULT
        }
    }

    fn set_defaults(&self, set: &mut Object) {
        let spec = &mut set.tree_mut()["spec"];
        let parameters = [("maxUnavailable", json!(1)), ("maxSurge", json!(0))];
        fill_rollout(&mut spec["updateStrategy"], &parameters);
        fill_template(&mut spec["template"]);
        default_template_generation(set);
    }

    fn prepare_create(&self, set: &mut Object) {
        update_template_generation(set, None);
    }

    fn prepare_update(&self, set: &mut Object, old: &Object) {
        update_template_generation(set, Some(old));
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        let spec = write.spec();
        check_selector_and_template("daemonset", spec, errors);
        errors.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
        check_strategy(&spec["updateStrategy"], errors);
        errors.not_negative("spec.revisionHistoryLimit", &spec["revisionHistoryLimit"]);
    }

    fn warn(&self, write: &Write<'_>, warnings: &mut Vec<String>) {
        warn_spec(&write.spec()["template"]["spec"], &"spec.template.spec", warnings);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let [containers, images] = row.containers("/spec/template/spec");
        vec![
            row.name(),
            row.number("/status/desiredNumberScheduled").into(),
            row.number("/status/currentNumberScheduled").into(),
            row.number("/status/numberReady").into(),
            row.number("/status/updatedNumberScheduled").into(),
            row.number("/status/numberAvailable").into(),
            labels(row.object.pointer("/spec/template/spec/nodeSelector")).into(),
            row.age(),
            containers,
            images,
            label_selector(row.object.pointer("/spec/selector")).into(),
        ]
    }

    fn hide_metadata(&self, metadata: &mut Value) {
        hide_template_generation(metadata);
    }
}

/// Sets the template generation of a daemon set to 0 where it is absent.
fn default_template_generation(set: &mut Object) {
    let annotations = set
        .metadata_mut()
        .entry("annotations")
        .or_insert_with(|| json!({}));
    if annotations
        .get(TEMPLATE_GENERATION_ANNOTATION)
        .is_none_or(|count| !count.is_string())
    {
        annotations[TEMPLATE_GENERATION_ANNOTATION] = "0".into();
    }
}

/// Updates the template generation of a daemon set.
fn update_template_generation(set: &mut Object, old: Option<&Object>) {
    let template = |set: &Object| set.fields().get("spec").map(|spec| spec["template"].clone());
    let count = match old {
        None => 1,
        Some(old) => {
            let annotation = old
                .metadata()
                .get("annotations")
                .map(|all| &all[TEMPLATE_GENERATION_ANNOTATION]);
            let before = annotation
                .and_then(Value::as_str)
                .and_then(|text| text.parse::<i64>().ok());
            before.unwrap_or(1) + i64::from(template(old) != template(set))
        }
    };
    let annotations = set
        .metadata_mut()
        .entry("annotations")
        .or_insert_with(|| json!({}));
    annotations[TEMPLATE_GENERATION_ANNOTATION] = count.to_string().into();
}

/// Removes the template generation from a daemon set's metadata in views.
fn hide_template_generation(metadata: &mut Value) {
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else {
        return;
    };
    annotations.remove(TEMPLATE_GENERATION_ANNOTATION);
    if annotations.is_empty()
        && let Some(metadata) = metadata.as_object_mut()
    {
        metadata.remove("annotations");
    }
}

fn check_strategy(strategy: &Value, errors: &mut ErrorList) {
    let path = FieldPath::from_root("spec.updateStrategy.rollingUpdate");
    match text(&strategy["type"]) {
        "OnDelete" => {}
        "RollingUpdate" => {
            let rolling = &strategy["rollingUpdate"];
            if rolling.is_null() {
                errors.required(path, "");
                return;
            }
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            let (first, second) = (path.child("maxUnavailable"), path.child("maxSurge"));
            errors.count_or_percent(first, unavailable);
            errors.at_most_100_percent(first, unavailable);
            errors.count_or_percent(second, surge);
            errors.at_most_100_percent(second, surge);
            // A value that is not a number counts as zero, but not as explicitly zero.
            let any = |value: &Value| percent(value).or(value.as_i64()).is_some_and(|part| part != 0);
            if any(unavailable) && any(surge) {
                let why = "may not be set when maxUnavailable is non-zero";
                errors.invalid(second, surge.clone(), why);
            } else if !any(unavailable) && (surge.is_null() || is_zero(surge)) {
                errors.required(first, "cannot be 0 when maxSurge is 0");
            }
        }
        _ => {
            let choices = vec!["RollingUpdate".into(), "OnDelete".into()];
            let problem = Problem::NotSupportedText(
                internal_types::format_as_struct("DaemonSetUpdateStrategy", strategy),
                choices,
            );
            errors.add("spec.updateStrategy", problem);
        }
    }
}

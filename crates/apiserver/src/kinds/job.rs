//! Jobs.

mod policies;
mod template;
pub(super) mod validation;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use windlass_api::conditions;

use super::{
    age,
    defaulting::{
        DefaultValue::{Flag, Text},
        set_if_absent,
    },
    error_list::ErrorList,
    immutable::value_at,
    pod::{defaults::fill_template, warnings::warn_spec},
    row::{Row, label_selector},
    selectable::SelectableField,
    strategy::{CheckOrder, Facts, MetadataChecks, Strategy, Write},
    warnings::warn_pod_names,
};
use crate::{
    field_path::FieldPath, internal_types, object::Object, registry::Resource, schema::Problem,
    status::Status,
};

/// The fields that may not change, except as [`template`] says.
const IMMUTABLE_FIELDS: [&str; 7] = [
    "spec.selector",
    "spec.template",
    "spec.completionMode",
    "spec.podFailurePolicy",
    "spec.backoffLimitPerIndex",
    "spec.managedBy",
    "spec.successPolicy",
];

pub(super) struct Job;

impl Strategy for Job {
    fn facts(&self) -> Facts {
        Facts {
            has_generation: true,
            orphan_by_default: true,
            deletion_warning: Some(
                "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
            ),
            metadata_checks: MetadataChecks {
                order: CheckOrder::MetadataBetween,
                ..Facts::DEFAULT.metadata_checks
            },
            defaults: &[
                ("spec.completionMode", Text("NonIndexed")),
                ("spec.suspend", Flag(false)),
                ("spec.manualSelector", Flag(false)),
                (
                    "spec.podFailurePolicy.rules[].onPodConditions[].status",
                    Text("True"),
                ),
            ],
            selectable_fields: const { &[SelectableField::number("status.successful").at(&["status.succeeded"])] },
            counters: &["active", "succeeded", "failed", "ready", "terminating"],
            columns: Some("Name Status Completions Duration Age +Containers +Images +Selector"),
            ..Facts::DEFAULT
        }
    }

    fn set_defaults(&self, job: &mut Object) {
        let job = job.tree_mut();
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
        fill_template(&mut spec["template"]);
        let labels = spec["template"]["metadata"].get("labels").cloned();
        if let Some(labels) = labels {
            set_if_absent(&mut job["metadata"], "labels", labels);
        }
    }

    fn unknown_field(&self, _resource: &Resource, field: &str) -> String {
        format!("field label {field:?} not supported for Job")
    }

    fn prepare_create(&self, job: &mut Object) {
        generate_selector(job);
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        validation::check(write.value(), errors);
    }

    fn validate_changes(&self, write: &Write<'_>, old: &Value, errors: &mut ErrorList) {
        // The real server validates an updated job twice.
        self.validate(write, errors);
        check_changes(write.value(), old, errors);
    }

    fn validate_subresource(&self, _subresource: &str, job: &Value, _old: &Value, errors: &mut ErrorList) {
        let status = &job["status"];
        let number = |key: &str| status[key].as_i64().unwrap_or(0);
        if !status["ready"].is_null() && number("ready") > number("active") {
            let why = "cannot set more ready pods than active";
            errors.invalid(FieldPath::from_root("status.ready"), number("ready"), why);
        }
    }

    fn warn(&self, write: &Write<'_>, warnings: &mut Vec<String>) {
        if write.is_new() {
            warn_pod_names(write.object.name(), warnings);
        }
        let spec = write.spec();
        warn_large(spec, warnings);
        warn_spec(&spec["template"]["spec"], &"spec.template.spec", warnings);
    }

    fn after_validation(&self, _resource: &Resource, job: &mut Object) -> Result<(), Status> {
        copy_template_labels(job);
        Ok(())
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let [containers, images] = row.containers("/spec/template/spec");
        vec![
            row.name(),
            status(row),
            completions(row),
            duration(row),
            row.age(),
            containers,
            images,
            label_selector(row.object.pointer("/spec/selector")).into(),
        ]
    }
}

/// Generates a job's selector from its uid, unless `manualSelector` is set.
fn generate_selector(job: &mut Object) {
    let (uid, name) = (job.meta("uid").to_owned(), job.name().to_owned());
    let Some(spec) = job.fields_mut().get_mut("spec").filter(|spec| spec.is_object()) else {
        return;
    };
    if spec["manualSelector"] == true {
        return;
    }
    let template = &mut spec["template"]["metadata"];
    if !template["labels"].is_object() {
        template["labels"] = Value::Object(Map::new());
    }
    for (key, value) in [
        ("controller-uid", &uid),
        ("batch.kubernetes.io/controller-uid", &uid),
        ("job-name", &name),
        ("batch.kubernetes.io/job-name", &name),
    ] {
        // Validation rejects other values.
        if template["labels"][key].is_null() {
            template["labels"][key] = value.as_str().into();
        }
    }
    if !spec["selector"].is_object() {
        spec["selector"] = json!({});
    }
    if !spec["selector"]["matchLabels"].is_object() {
        spec["selector"]["matchLabels"] = json!({});
    }
    spec["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] = uid.into();
}

/// Copies the template's labels to a job without labels of its own; those that equal the template's may be defaults.
fn copy_template_labels(job: &mut Object) {
    let spec = job.fields().get("spec");
    let Some(labels) = spec
        .and_then(|spec| spec["template"]["metadata"].get("labels"))
        .cloned()
    else {
        return;
    };
    let own = job.metadata().get("labels").and_then(Value::as_object);
    if own.is_none_or(|own| own.iter().all(|(key, value)| labels.get(key) == Some(value))) {
        job.set_meta("labels", labels);
    }
}

fn check_changes(job: &Value, old: &Value, errors: &mut ErrorList) {
    check_completions(&job["spec"], &old["spec"], errors);
    for path in IMMUTABLE_FIELDS {
        let (now, before) = (value_at(job, path), value_at(old, path));
        if now == before {
            continue;
        }
        let (path, quoted) = match path {
            "spec.template" if template::may_change(old) => {
                if template::changes_only_what_may(&now["spec"], &before["spec"]) {
                    continue;
                }
                let quoted = internal_types::format_as_struct("PodSpec", &now["spec"]);
                ("spec.template.spec", quoted)
            }
            "spec.template" => (path, internal_types::format_template(now)),
            "spec.podFailurePolicy" => (path, internal_types::format_as_struct("?PodFailurePolicy", now)),
            "spec.successPolicy" => (path, internal_types::format_as_struct("?SuccessPolicy", now)),
            _ => {
                errors.invalid(path, now.clone(), "field is immutable");
                continue;
            }
        };
        errors.add(path, Problem::InvalidText(quoted, "field is immutable".into()));
    }
}

/// An indexed job may be scaled if its parallelism changes in tandem.
fn check_completions(spec: &Value, old: &Value, errors: &mut ErrorList) {
    let (now, before) = (&spec["completions"], &old["completions"]);
    if now == before {
        return;
    }
    if spec["completionMode"] != "Indexed" {
        errors.invalid("spec.completions", now.clone(), "field is immutable");
    } else if now != &spec["parallelism"] {
        let why = "can only be modified in tandem with spec.parallelism";
        errors.invalid("spec.completions", now.clone(), why);
    }
}

/// Warns about indexed jobs too large to track.
fn warn_large(spec: &Value, warnings: &mut Vec<String>) {
    let above = |key: &str, most: i64| spec[key].as_i64().is_some_and(|number| number > most);
    if spec["completionMode"] == "Indexed" && above("completions", 100_000) && above("parallelism", 10_000) {
        warnings.push(
            "spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
                .to_owned(),
        );
    }
}

fn status(row: &Row<'_>) -> Value {
    let holds = |kind: &str| conditions::is_true(row.object, kind);
    let deleting = !row.text("/metadata/deletionTimestamp").is_empty();
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

fn completions(row: &Row<'_>) -> Value {
    let succeeded = row.number("/status/succeeded");
    let parallelism = row.number("/spec/parallelism");
    match row.object.pointer("/spec/completions").and_then(Value::as_i64) {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    }
    .into()
}

fn duration(row: &Row<'_>) -> Value {
    let time = |pointer: &str| row.text(pointer).parse::<Timestamp>().ok();
    let Some(start) = time("/status/startTime") else {
        return "".into();
    };
    let end = time("/status/completionTime").unwrap_or(row.now);
    age::human_duration(end.as_second() - start.as_second()).into()
}

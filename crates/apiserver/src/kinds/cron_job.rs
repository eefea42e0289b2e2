//! Cron jobs.

mod schedule;

use serde_json::Value;

use super::{
    age,
    defaulting::DefaultValue::{Flag, Number, Text},
    error_list::{ErrorList, text},
    job,
    pod::{defaults::fill_template, warnings::warn_spec},
    row::{Row, label_selector},
    strategy::{Facts, MetadataChecks, Strategy, Write},
    warnings::warn_pod_names,
};
use crate::{field_path::FieldPath, object::Object, schema::Problem};

pub(super) struct CronJob;

impl Strategy for CronJob {
    fn facts(&self) -> Facts {
        Facts {
            has_generation: true,
            metadata_checks: MetadataChecks::THREE,
            defaults: &[
                ("spec.concurrencyPolicy", Text("Allow")),
                ("spec.suspend", Flag(false)),
                ("spec.successfulJobsHistoryLimit", Number(3)),
                ("spec.failedJobsHistoryLimit", Number(1)),
            ],
            columns: Some(
                "Name Schedule Timezone Suspend:boolean Active:integer Last_Schedule Age +Containers +Images +Selector",
            ),
            ..Facts::DEFAULT
        }
    }

    fn set_defaults(&self, job: &mut Object) {
        fill_template(&mut job.tree_mut()["spec"]["jobTemplate"]["spec"]["template"]);
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check(write, errors);
    }

    fn warn(&self, write: &Write<'_>, warnings: &mut Vec<String>) {
        if write.is_new() {
            warn_pod_names(write.object.name(), warnings);
        }
        let pod = &write.spec()["jobTemplate"]["spec"]["template"]["spec"];
        warn_spec(pod, &"spec.jobTemplate.spec.template.spec", warnings);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let [containers, images] = row.containers("/spec/jobTemplate/spec/template/spec");
        let last = match row.text("/status/lastScheduleTime") {
            "" => "<none>".to_owned(),
            last => age::since(last, row.now),
        };
        vec![
            row.name(),
            row.text("/spec/schedule").into(),
            row.text_or("/spec/timeZone", "<none>"),
            match row.object.pointer("/spec/suspend") {
                Some(Value::Bool(true)) => "True".into(),
                Some(Value::Bool(false)) => "False".into(),
                _ => "<unset>".into(),
            },
            row.count("/status/active").into(),
            last.into(),
            row.age(),
            containers,
            images,
            label_selector(row.object.pointer("/spec/jobTemplate/spec/selector")).into(),
        ]
    }
}

fn check(write: &Write<'_>, errors: &mut ErrorList) {
    let (name, spec) = (write.object.name(), write.spec());
    // The names of its jobs are eleven characters longer.
    if write.is_new() && name.len() > 52 {
        errors.invalid("metadata.name", name, "must be no more than 52 characters");
    }
    let schedule = text(&spec["schedule"]);
    if errors.require("spec.schedule", &spec["schedule"]) {
        if let Err(why) = schedule::check(schedule) {
            errors.invalid("spec.schedule", schedule, &why);
        }
        if schedule.contains("TZ") {
            let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            errors.invalid("spec.schedule", schedule, why);
        }
    }
    if let Some(zone) = spec["timeZone"].as_str() {
        schedule::check_zone(zone, errors);
    }
    errors.not_negative("spec.startingDeadlineSeconds", &spec["startingDeadlineSeconds"]);
    errors.one_of(
        "spec.concurrencyPolicy",
        &spec["concurrencyPolicy"],
        &["Allow", "Forbid", "Replace"],
    );
    let (job, path) = (
        &spec["jobTemplate"]["spec"],
        FieldPath::from_root("spec.jobTemplate.spec"),
    );
    job::validation::check_spec(job, &path, errors);
    // The selector of the jobs is generated.
    if !job["selector"].is_null() {
        let why = "`selector` will be auto-generated";
        errors.invalid(path.child("selector"), job["selector"].clone(), why);
    }
    if job["manualSelector"] == true {
        let choices = vec!["nil".into(), "false".into()];
        errors.add(
            path.child("manualSelector"),
            Problem::NotSupported(true.into(), choices),
        );
    }
    let path = FieldPath::from_root("spec");
    for key in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        errors.not_negative(path.child(key), &spec[key]);
    }
}

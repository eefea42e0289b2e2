//! Jobs and cron jobs.

use std::fmt::Display;

use serde_json::Value;

use super::{
    apps,
    findings::{Findings, selects, text},
    pod,
};
use crate::{naming, object::Object};

pub(super) fn check_job(job: &Value, findings: &mut Findings) {
    let (spec, template) = (&job["spec"], &job["spec"]["template"]);
    if spec["selector"].is_null() {
        findings.required("spec.selector", "");
    } else {
        findings.selector("spec.selector", &spec["selector"]);
    }
    let uid = text(&job["metadata"]["uid"]);
    if spec["manualSelector"] != true && !spec["selector"].is_null() {
        let own = &spec["selector"]["matchLabels"];
        let generated = own.as_object().is_some_and(|labels| {
            labels.len() == 1
                && labels
                    .iter()
                    .all(|(key, value)| key.ends_with("controller-uid") && *value == uid)
        });
        if !generated {
            findings.invalid(
                "spec.selector",
                spec["selector"].clone(),
                "`selector` not auto-generated",
            );
        }
    }
    check_job_spec(spec, &"spec", findings);
    if !selects(&spec["selector"], &template["metadata"]["labels"]) {
        apps::mismatch(template, findings);
    }
}

fn check_job_spec(spec: &Value, path: &dyn Display, findings: &mut Findings) {
    for key in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        findings.not_negative(format_args!("{path}.{key}"), &spec[key]);
    }
    let mode = &spec["completionMode"];
    if !mode.is_null() {
        findings.one_of(
            format_args!("{path}.completionMode"),
            mode,
            &["NonIndexed", "Indexed"],
        );
    }
    if *mode == "Indexed" && spec["completions"].is_null() {
        let why = "when completion mode is Indexed";
        findings.required(format_args!("{path}.completions"), why);
    }
    if *mode != "Indexed" && !spec["backoffLimitPerIndex"].is_null() {
        let value = spec["backoffLimitPerIndex"].clone();
        findings.invalid(
            format_args!("{path}.backoffLimitPerIndex"),
            value,
            "requires indexed completion mode",
        );
    }
    let replacement = &spec["podReplacementPolicy"];
    if !replacement.is_null() {
        let policies = ["Failed", "TerminatingOrFailed"];
        findings.one_of(
            format_args!("{path}.podReplacementPolicy"),
            replacement,
            &policies,
        );
    }
    let template = &spec["template"];
    let labels = template["metadata"]["labels"].as_object();
    for value in labels
        .into_iter()
        .flatten()
        .filter_map(|(_, value)| value.as_str())
    {
        findings.named(
            format_args!("{path}.template.labels"),
            value,
            naming::label_value(value),
        );
    }
    pod::check_template_without_labels(template, &format_args!("{path}.template"), findings);
    if !matches!(text(&template["spec"]["restartPolicy"]), "OnFailure" | "Never") {
        let why = "valid values: \"OnFailure\", \"Never\"";
        findings.required(format_args!("{path}.template.spec.restartPolicy"), why);
    }
}

pub(super) fn check_cron_job(object: &Object, spec: &Value, is_new: bool, findings: &mut Findings) {
    // Its jobs' names have eleven characters more.
    if is_new && object.name().len() > 52 {
        findings.invalid(
            "metadata.name",
            object.name(),
            "must be no more than 52 characters",
        );
    }
    let schedule = text(&spec["schedule"]);
    if schedule.is_empty() {
        findings.required("spec.schedule", "");
    } else if let Err(why) = check_schedule(schedule) {
        findings.invalid("spec.schedule", schedule, &why);
    }
    if let Some(zone) = spec["timeZone"].as_str() {
        if zone.is_empty() {
            findings.invalid("spec.timeZone", zone, "timeZone must be nil or non-empty string");
        } else if !is_time_zone(zone) {
            findings.invalid("spec.timeZone", zone, &format!("unknown time zone {zone}"));
        }
    }
    findings.not_negative("spec.startingDeadlineSeconds", &spec["startingDeadlineSeconds"]);
    findings.one_of(
        "spec.concurrencyPolicy",
        &spec["concurrencyPolicy"],
        &["Allow", "Forbid", "Replace"],
    );
    for key in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        findings.not_negative(format_args!("spec.{key}"), &spec[key]);
    }
    check_job_spec(&spec["jobTemplate"]["spec"], &"spec.jobTemplate.spec", findings);
}

/// Whether a time zone is known; where the machine knows none, what has the form of one.
fn is_time_zone(zone: &str) -> bool {
    let zones = jiff::tz::db();
    let machine_knows_none = zones.get("Europe/London").is_err();
    zones.get(zone).is_ok() || (machine_knows_none && zone.contains('/'))
}

/// A schedule has five fields, or is one of the words that stand for such.
fn check_schedule(schedule: &str) -> Result<(), String> {
    if let Some(word) = schedule.strip_prefix('@') {
        let known = [
            "yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly",
        ];
        if known.contains(&word) || word.starts_with("every ") {
            return Ok(());
        }
        return Err(format!("unrecognized descriptor: {schedule}"));
    }
    if schedule.contains("TZ") {
        return Err("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
    }
    let fields: Vec<_> = schedule.split_whitespace().collect();
    if fields.len() != 5 {
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            fields.len(),
            fields.join(" ")
        ));
    }
    Ok(())
}

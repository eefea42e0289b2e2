//! Jobs and cron jobs.

mod policies;
mod schedule;

use serde_json::Value;

use super::{
    apps,
    findings::{Findings, selects, text},
    pods,
};
use crate::{naming, object::Object, schema::Problem, trail::Trail};

/// An indexed job runs this many pods at a time, at most.
const PARALLEL: i64 = 100_000;
/// From so many completions on, a job must keep its failures few.
const MANY_COMPLETIONS: i64 = 100_000;
const FEW: i64 = 10_000;

pub(super) fn check_job(job: &Value, findings: &mut Findings) {
    let (spec, template) = (&job["spec"], &job["spec"]["template"]);
    let selector = &spec["selector"];
    if spec["manualSelector"] != true && !selector.is_null() {
        check_generated(job, findings);
    }
    check_job_spec(spec, &Trail::from_root("spec"), findings);
    if selector.is_null() {
        findings.required("spec.selector", "");
    } else {
        findings.selector(&Trail::from_root("spec.selector"), selector);
    }
    if !selects(selector, &template["metadata"]["labels"]) {
        apps::mismatch(template, findings);
    }
    if spec["completionMode"] == "Indexed"
        && let Some(last) = spec["completions"].as_i64().filter(|count| *count > 0)
    {
        check_hostname(text(&job["metadata"]["name"]), last - 1, findings);
    }
}

/// The pods of an indexed job are called after it and their index.
fn check_hostname(job: &str, last: i64, findings: &mut Findings) {
    let digits = usize::try_from(last.checked_ilog10().unwrap_or(0)).unwrap_or(0) + 1;
    // A number changes nothing about a name but its length.
    if job.len() + 1 + digits > 63 || !naming::label(job).is_empty() {
        let why = format!("will not able to create pod with invalid DNS label: {job}-{last}");
        findings.invalid("metadata.name", job, &why);
    }
}

/// The labels that the server has put on the template are there, and select the job's own pods.
fn check_generated(job: &Value, findings: &mut Findings) {
    let (selector, labels) = (
        &job["spec"]["selector"],
        &job["spec"]["template"]["metadata"]["labels"],
    );
    let (uid, name) = (text(&job["metadata"]["uid"]), text(&job["metadata"]["name"]));
    let expected = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    let path = Trail::from_root("spec.template.metadata.labels");
    for (key, value) in expected {
        match labels.get(key).and_then(Value::as_str) {
            None => findings.required(path.entry(key), &format!("must be '{value}'")),
            Some(found) if found != value => {
                findings.invalid(path.entry(key), labels.clone(), &format!("must be '{value}'"));
            }
            Some(_) => {}
        }
    }
    let generated = selector["matchExpressions"].is_null()
        && selector["matchLabels"].as_object().is_none_or(|labels| {
            labels
                .iter()
                .all(|(key, value)| expected.iter().any(|(known, text)| key == known && value == text))
        });
    if !generated {
        findings.invalid("spec.selector", selector.clone(), "`selector` not auto-generated");
    }
}

fn check_job_spec(spec: &Value, path: &Trail<'_>, findings: &mut Findings) {
    for key in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        findings.not_negative(path.at(key), &spec[key]);
    }
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        let why = "when maxFailedIndexes is specified";
        findings.required(path.at("backoffLimitPerIndex"), why);
    }
    if let Some(manager) = spec["managedBy"].as_str() {
        naming::domain_path(manager, |value, why| {
            findings.invalid(path.at("managedBy"), value, why);
        });
        if manager.len() > 63 {
            findings.add(path.at("managedBy"), Problem::TooLong(63));
        }
    }
    let mode = &spec["completionMode"];
    findings.one_of_if_given(path.at("completionMode"), mode, &["NonIndexed", "Indexed"]);
    match text(mode) {
        "Indexed" => check_indexed(spec, path, findings),
        "" | "NonIndexed" => {
            for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if !spec[key].is_null() {
                    findings.invalid(
                        path.at(key),
                        spec[key].clone(),
                        "requires indexed completion mode",
                    );
                }
            }
        }
        _ => {}
    }
    policies::check(spec, path, findings);
    let template = &spec["template"];
    let labels = template["metadata"]["labels"].as_object();
    for value in labels
        .into_iter()
        .flatten()
        .filter_map(|(_, value)| value.as_str())
    {
        findings.named(path.at("template.labels"), value, naming::label_value(value));
    }
    pods::check_template_without_labels(template, &path.at("template"), findings);
    let (policy, field) = (
        &template["spec"]["restartPolicy"],
        path.at("template.spec.restartPolicy"),
    );
    match text(policy) {
        "" | "Always" => findings.required(field, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if !spec["podFailurePolicy"].is_null() => {
            let why = "only \"Never\" is supported when podFailurePolicy is specified";
            findings.invalid(field, "OnFailure", why);
        }
        _ => findings.one_of(field, policy, &["OnFailure", "Never"]),
    }
}

fn check_indexed(spec: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let number = |key: &str| spec[key].as_i64();
    let (completions, parallelism) = (number("completions"), number("parallelism"));
    let (failed, parallel) = (path.at("maxFailedIndexes"), path.at("parallelism"));
    if completions.is_none() {
        findings.required(path.at("completions"), "when completion mode is Indexed");
    }
    if let Some(parallelism) = parallelism.filter(|number| *number > PARALLEL) {
        let why = format!("must be less than or equal to {PARALLEL} when completion mode is Indexed");
        findings.invalid(parallel, parallelism, &why);
    }
    let most = number("maxFailedIndexes");
    if let (Some(most), Some(completions)) = (most, completions)
        && most > completions
    {
        findings.invalid(failed, most, "must be less than or equal to completions");
    }
    if let Some(most) = most.filter(|most| *most > MANY_COMPLETIONS) {
        let why = format!("must be less than or equal to {MANY_COMPLETIONS}");
        findings.invalid(failed, most, &why);
    }
    let is_large = completions.is_some_and(|completions| completions > MANY_COMPLETIONS);
    if !is_large || spec["backoffLimitPerIndex"].is_null() {
        return;
    }
    let why = |limit: i64| {
        format!(
            "must be less than or equal to {limit} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
        )
    };
    if most.is_none() {
        let why = format!("must be specified when completions is above {MANY_COMPLETIONS}");
        findings.required(failed, &why);
    }
    if let Some(parallelism) = parallelism.filter(|number| *number > FEW) {
        findings.invalid(parallel, parallelism, &why(FEW));
    }
    if let Some(most) = most.filter(|most| *most > FEW) {
        findings.invalid(failed, most, &why(FEW));
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
    if findings.given("spec.schedule", &spec["schedule"]) {
        if let Err(why) = schedule::check(schedule) {
            findings.invalid("spec.schedule", schedule, &why);
        }
        if schedule.contains("TZ") {
            let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            findings.invalid("spec.schedule", schedule, why);
        }
    }
    if let Some(zone) = spec["timeZone"].as_str() {
        schedule::check_zone(zone, findings);
    }
    findings.not_negative("spec.startingDeadlineSeconds", &spec["startingDeadlineSeconds"]);
    findings.one_of(
        "spec.concurrencyPolicy",
        &spec["concurrencyPolicy"],
        &["Allow", "Forbid", "Replace"],
    );
    let (job, path) = (
        &spec["jobTemplate"]["spec"],
        Trail::from_root("spec.jobTemplate.spec"),
    );
    check_job_spec(job, &path, findings);
    // The jobs choose their own.
    if !job["selector"].is_null() {
        let why = "`selector` will be auto-generated";
        findings.invalid(path.at("selector"), job["selector"].clone(), why);
    }
    if job["manualSelector"] == true {
        let choices = vec!["nil".into(), "false".into()];
        findings.add(
            path.at("manualSelector"),
            Problem::NotSupported(true.into(), choices),
        );
    }
    let path = Trail::from_root("spec");
    for key in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        findings.not_negative(path.at(key), &spec[key]);
    }
}

//! Validation of jobs.

use serde_json::Value;
use windlass_api::naming;

use super::policies;
use crate::{
    field_path::FieldPath,
    kinds::{
        error_list::{ErrorList, selector_matches, text},
        pod::validation::check_template_without_labels,
        workload::selector_mismatch,
    },
    schema::Problem,
};

/// Maximum parallelism of an indexed job.
const MAX_INDEXED_PARALLELISM: i64 = 100_000;
/// Above this number of completions, parallelism and failed indexes are limited further.
const MANY_COMPLETIONS: i64 = 100_000;
const MAX_WITH_MANY_COMPLETIONS: i64 = 10_000;

pub(super) fn check(job: &Value, errors: &mut ErrorList) {
    let (spec, template) = (&job["spec"], &job["spec"]["template"]);
    let selector = &spec["selector"];
    if spec["manualSelector"] != true && !selector.is_null() {
        check_generated_labels(job, errors);
    }
    check_spec(spec, &FieldPath::from_root("spec"), errors);
    if selector.is_null() {
        errors.required("spec.selector", "");
    } else {
        errors.selector(&FieldPath::from_root("spec.selector"), selector);
    }
    if !selector_matches(selector, &template["metadata"]["labels"]) {
        selector_mismatch(template, errors);
    }
    if spec["completionMode"] == "Indexed"
        && let Some(last) = spec["completions"].as_i64().filter(|count| *count > 0)
    {
        check_hostname(text(&job["metadata"]["name"]), last - 1, errors);
    }
}

/// The hostnames of an indexed job's pods consist of its name and the index.
fn check_hostname(job: &str, last: i64, errors: &mut ErrorList) {
    let digits = usize::try_from(last.checked_ilog10().unwrap_or(0)).unwrap_or(0) + 1;
    // Appending a number affects only the length.
    if job.len() + 1 + digits > 63 || !naming::is_dns_label(job) {
        let why = format!("will not able to create pod with invalid DNS label: {job}-{last}");
        errors.invalid("metadata.name", job, &why);
    }
}

/// Checks the labels and the selector that the server generates.
fn check_generated_labels(job: &Value, errors: &mut ErrorList) {
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
    let path = FieldPath::from_root("spec.template.metadata.labels");
    for (key, value) in expected {
        match labels.get(key).and_then(Value::as_str) {
            None => errors.required(path.key(key), &format!("must be '{value}'")),
            Some(found) if found != value => {
                errors.invalid(path.key(key), labels.clone(), &format!("must be '{value}'"));
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
        errors.invalid("spec.selector", selector.clone(), "`selector` not auto-generated");
    }
}

/// Validates the spec of a job, or of a cron job's jobs.
pub(in crate::kinds) fn check_spec(spec: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    for key in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.not_negative(path.child(key), &spec[key]);
    }
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        let why = "when maxFailedIndexes is specified";
        errors.required(path.child("backoffLimitPerIndex"), why);
    }
    if let Some(manager) = spec["managedBy"].as_str() {
        naming::domain_path(manager, |value, why| {
            errors.invalid(path.child("managedBy"), value, why);
        });
        if manager.len() > 63 {
            errors.add(path.child("managedBy"), Problem::TooLong(63));
        }
    }
    let mode = &spec["completionMode"];
    errors.one_of_if_given(path.child("completionMode"), mode, &["NonIndexed", "Indexed"]);
    match text(mode) {
        "Indexed" => check_indexed(spec, path, errors),
        "" | "NonIndexed" => {
            for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if !spec[key].is_null() {
                    errors.invalid(
                        path.child(key),
                        spec[key].clone(),
                        "requires indexed completion mode",
                    );
                }
            }
        }
        _ => {}
    }
    policies::check(spec, path, errors);
    let template = &spec["template"];
    let labels = template["metadata"]["labels"].as_object();
    for value in labels
        .into_iter()
        .flatten()
        .filter_map(|(_, value)| value.as_str())
    {
        errors.invalid_each(path.child("template.labels"), value, naming::label_value(value));
    }
    check_template_without_labels(template, &path.child("template"), errors);
    let (policy, field) = (
        &template["spec"]["restartPolicy"],
        path.child("template.spec.restartPolicy"),
    );
    match text(policy) {
        "" | "Always" => errors.required(field, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if !spec["podFailurePolicy"].is_null() => {
            let why = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.invalid(field, "OnFailure", why);
        }
        _ => errors.one_of(field, policy, &["OnFailure", "Never"]),
    }
}

fn check_indexed(spec: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let number = |key: &str| spec[key].as_i64();
    let (completions, parallelism) = (number("completions"), number("parallelism"));
    let (failed, parallel) = (path.child("maxFailedIndexes"), path.child("parallelism"));
    if completions.is_none() {
        errors.required(path.child("completions"), "when completion mode is Indexed");
    }
    if let Some(parallelism) = parallelism.filter(|number| *number > MAX_INDEXED_PARALLELISM) {
        let why = format!(
            "must be less than or equal to {MAX_INDEXED_PARALLELISM} when completion mode is Indexed"
        );
        errors.invalid(parallel, parallelism, &why);
    }
    let most = number("maxFailedIndexes");
    if let (Some(most), Some(completions)) = (most, completions)
        && most > completions
    {
        errors.invalid(failed, most, "must be less than or equal to completions");
    }
    if let Some(most) = most.filter(|most| *most > MANY_COMPLETIONS) {
        let why = format!("must be less than or equal to {MANY_COMPLETIONS}");
        errors.invalid(failed, most, &why);
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
        errors.required(failed, &why);
    }
    if let Some(parallelism) = parallelism.filter(|number| *number > MAX_WITH_MANY_COMPLETIONS) {
        errors.invalid(parallel, parallelism, &why(MAX_WITH_MANY_COMPLETIONS));
    }
    if let Some(most) = most.filter(|most| *most > MAX_WITH_MANY_COMPLETIONS) {
        errors.invalid(failed, most, &why(MAX_WITH_MANY_COMPLETIONS));
    }
}

//! Webhook configurations.

use std::collections::HashSet;

use serde_json::Value;
use windlass_api::naming;

use super::{
    admission_policy::{check_match_conditions, check_rule},
    defaulting::{
        DefaultRule,
        DefaultValue::{Empty, Number, Text},
    },
    error_list::{ErrorList, list, text},
    row::Row,
    strategy::{Facts, METADATA, SPEC, Strategy, Write},
};
use crate::{
    admission::expressions::{Features, environment},
    field_path::FieldPath,
    storage::Entry,
    verbs::WriteVerbs,
    webhook::client_config_problems,
};

/// What the kinds of the group have in common.
const FACTS: Facts = Facts {
    has_generation: true,
    unconditional_update: false,
    compiles: true,
    exempt_from_webhooks: true,
    subresource_reset_fields: &[("status", &[METADATA, SPEC])],
    ..Facts::DEFAULT
};

/// A webhook configuration, with the defaults of its webhooks.
pub(super) struct WebhookConfiguration(pub(super) &'static [DefaultRule]);

pub(super) const MUTATING: WebhookConfiguration = WebhookConfiguration(&[
    ("webhooks[].failurePolicy", Text("Fail")),
    ("webhooks[].matchPolicy", Text("Equivalent")),
    ("webhooks[].namespaceSelector", Empty),
    ("webhooks[].objectSelector", Empty),
    ("webhooks[].timeoutSeconds", Number(10)),
    ("webhooks[].reinvocationPolicy", Text("Never")),
    ("webhooks[].rules[].scope", Text("*")),
    ("webhooks[].clientConfig.service.port", Number(443)),
]);

pub(super) const VALIDATING: WebhookConfiguration = WebhookConfiguration(&[
    ("webhooks[].failurePolicy", Text("Fail")),
    ("webhooks[].matchPolicy", Text("Equivalent")),
    ("webhooks[].namespaceSelector", Empty),
    ("webhooks[].objectSelector", Empty),
    ("webhooks[].timeoutSeconds", Number(10)),
    ("webhooks[].rules[].scope", Text("*")),
    ("webhooks[].clientConfig.service.port", Number(443)),
]);

impl Strategy for WebhookConfiguration {
    fn after_write(&self, writes: &WriteVerbs, _entry: &Entry) {
        writes.admission.catch_up();
    }

    fn facts(&self) -> Facts {
        Facts {
            defaults: self.0,
            columns: Some("Name Webhooks:integer Age"),
            ..FACTS
        }
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        let path = FieldPath::from_root("webhooks");
        let mut names = HashSet::new();
        for (index, webhook) in list(&write.value()["webhooks"]).iter().enumerate() {
            let path = path.index(index);
            check_webhook(webhook, &path, errors);
            let versions = list(&webhook["admissionReviewVersions"]);
            check_review_versions(versions, &path.child("admissionReviewVersions"), errors);
            let name = text(&webhook["name"]);
            if !name.is_empty() && !names.insert(name) {
                errors.duplicate(path.child("name"), name);
            }
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.count("/webhooks").into(), row.age()]
    }
}

fn check_webhook(webhook: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    check_name(text(&webhook["name"]), &path.child("name"), errors);
    for (index, rule) in list(&webhook["rules"]).iter().enumerate() {
        check_rule(rule, &path.child("rules").index(index), errors);
    }
    for (key, choices) in [
        ("failurePolicy", ["Fail", "Ignore"]),
        ("matchPolicy", ["Equivalent", "Exact"]),
    ] {
        errors.one_of_if_given(path.child(key), &webhook[key], &choices);
    }
    let side_effects = path.child("sideEffects");
    if webhook["sideEffects"].is_null() {
        errors.required(side_effects, "must specify one of None, NoneOnDryRun");
    } else {
        errors.one_of(side_effects, &webhook["sideEffects"], &["None", "NoneOnDryRun"]);
    }
    if let Some(seconds) = webhook["timeoutSeconds"]
        .as_i64()
        .filter(|seconds| !(1..=30).contains(seconds))
    {
        let why = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(path.child("timeoutSeconds"), seconds, why);
    }
    for key in ["namespaceSelector", "objectSelector"] {
        errors.selector(&path.child(key), &webhook[key]);
    }
    for (place, problem) in client_config_problems(&webhook["clientConfig"]) {
        errors.add(format!("{}{place}", path.child("clientConfig")), problem);
    }
    let conditions = environment(Features {
        authorizer: true,
        ..Features::default()
    });
    check_match_conditions(
        &webhook["matchConditions"],
        &conditions,
        &path.child("matchConditions"),
        errors,
    );
    errors.one_of_if_given(
        path.child("reinvocationPolicy"),
        &webhook["reinvocationPolicy"],
        &["IfNeeded", "Never"],
    );
}

/// A name in three parts.
fn check_name(name: &str, path: &FieldPath<'_>, errors: &mut ErrorList) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    let problems = naming::subdomain(name);
    if !problems.is_empty() {
        errors.invalid(path, name, &problems.join(","));
    } else if name.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        errors.invalid(path, name, why);
    }
}

fn check_review_versions(versions: &[Value], path: &FieldPath<'_>, errors: &mut ErrorList) {
    if versions.is_empty() {
        errors.required(path, "must specify one of v1, v1beta1");
        return;
    }
    let mut seen = HashSet::new();
    for (index, version) in versions.iter().map(text).enumerate() {
        if !seen.insert(version) {
            errors.invalid(path.index(index), version, "duplicate version");
            continue;
        }
        for why in naming::label_1035(version) {
            errors.invalid(path.index(index), version, &why);
        }
    }
    if !seen.contains("v1") && !seen.contains("v1beta1") {
        errors.invalid_list(path, versions, "must include at least one of v1, v1beta1");
    }
}

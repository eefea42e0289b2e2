//! Webhook configurations.

use serde_json::Value;
use windlass_api::naming;

use super::{
    defaulting::{
        DefaultRule,
        DefaultValue::{Empty, Number, Text},
    },
    error_list::{ErrorList, list, text},
    row::Row,
    strategy::{Facts, METADATA, SPEC, Strategy, Write},
};
use crate::field_path::FieldPath;

/// What the kinds of the group have in common.
const FACTS: Facts = Facts {
    has_generation: true,
    unconditional_update: false,
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
    fn facts(&self) -> Facts {
        Facts {
            defaults: self.0,
            columns: Some("Name Webhooks:integer Age"),
            ..FACTS
        }
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        let path = FieldPath::from_root("webhooks");
        for (index, webhook) in list(&write.value()["webhooks"]).iter().enumerate() {
            check_webhook(webhook, &path.index(index), errors);
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.count("/webhooks").into(), row.age()]
    }
}

fn check_webhook(webhook: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let name = text(&webhook["name"]);
    let problems = naming::subdomain(name);
    if problems.is_empty() && name.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        errors.invalid(path.child("name"), name, why);
    }
    errors.invalid_each(path.child("name"), name, problems);
    for (index, rule) in list(&webhook["rules"]).iter().enumerate() {
        for key in ["operations", "apiGroups", "apiVersions", "resources"] {
            if list(&rule[key]).is_empty() {
                errors.required(path.child("rules").index(index).child(key), "");
            }
        }
    }
    let optional = |key: &str, choices: &[&str], errors: &mut ErrorList| {
        if !webhook[key].is_null() {
            errors.one_of(path.child(key), &webhook[key], choices);
        }
    };
    optional("failurePolicy", &["Fail", "Ignore"], errors);
    optional("matchPolicy", &["Equivalent", "Exact"], errors);
    if webhook["sideEffects"].is_null() {
        errors.required(
            path.child("sideEffects"),
            "must specify one of None, NoneOnDryRun",
        );
    } else {
        errors.one_of(
            path.child("sideEffects"),
            &webhook["sideEffects"],
            &["None", "NoneOnDryRun"],
        );
    }
    if let Some(seconds) = webhook["timeoutSeconds"]
        .as_i64()
        .filter(|seconds| !(1..=30).contains(seconds))
    {
        let why = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(path.child("timeoutSeconds"), seconds, why);
    }
    if list(&webhook["admissionReviewVersions"]).is_empty() {
        errors.required(
            path.child("admissionReviewVersions"),
            "must specify one of v1, v1beta1",
        );
    }
    check_client(&webhook["clientConfig"], &path.child("clientConfig"), errors);
}

fn check_client(client: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    match (client["url"].as_str(), client["service"].is_object()) {
        (None, false) | (Some(_), true) => {
            errors.required(path, "exactly one of url or service is required");
        }
        (Some(url), false) => {
            let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
            if scheme != "https" {
                let why = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
                errors.invalid(path.child("url"), scheme, why);
            }
        }
        (None, true) => {
            for key in ["name", "namespace"] {
                if text(&client["service"][key]).is_empty() {
                    errors.required(path.child("service").child(key), "");
                }
            }
        }
    }
}

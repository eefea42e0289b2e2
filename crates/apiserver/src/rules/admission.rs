//! Webhook configurations.

use serde_json::Value;

use super::findings::{Findings, list, text};
use crate::{naming, trail::Trail};

pub(super) fn check(configuration: &Value, findings: &mut Findings) {
    for (index, webhook) in list(&configuration["webhooks"]).iter().enumerate() {
        check_webhook(webhook, &Trail::from_root("webhooks").item(index), findings);
    }
}

fn check_webhook(webhook: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let name = text(&webhook["name"]);
    let problems = naming::subdomain(name);
    if problems.is_empty() && name.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        findings.invalid(path.at("name"), name, why);
    }
    findings.named(path.at("name"), name, problems);
    for (index, rule) in list(&webhook["rules"]).iter().enumerate() {
        for key in ["operations", "apiGroups", "apiVersions", "resources"] {
            if list(&rule[key]).is_empty() {
                findings.required(path.at("rules").item(index).at(key), "");
            }
        }
    }
    let optional = |key: &str, choices: &[&str], findings: &mut Findings| {
        if !webhook[key].is_null() {
            findings.one_of(path.at(key), &webhook[key], choices);
        }
    };
    optional("failurePolicy", &["Fail", "Ignore"], findings);
    optional("matchPolicy", &["Equivalent", "Exact"], findings);
    if webhook["sideEffects"].is_null() {
        findings.required(path.at("sideEffects"), "must specify one of None, NoneOnDryRun");
    } else {
        findings.one_of(
            path.at("sideEffects"),
            &webhook["sideEffects"],
            &["None", "NoneOnDryRun"],
        );
    }
    if let Some(seconds) = webhook["timeoutSeconds"]
        .as_i64()
        .filter(|seconds| !(1..=30).contains(seconds))
    {
        let why = "the timeout value must be between 1 and 30 seconds";
        findings.invalid(path.at("timeoutSeconds"), seconds, why);
    }
    if list(&webhook["admissionReviewVersions"]).is_empty() {
        findings.required(
            path.at("admissionReviewVersions"),
            "must specify one of v1, v1beta1",
        );
    }
    check_client(&webhook["clientConfig"], &path.at("clientConfig"), findings);
}

fn check_client(client: &Value, path: &Trail<'_>, findings: &mut Findings) {
    match (client["url"].as_str(), client["service"].is_object()) {
        (None, false) | (Some(_), true) => {
            findings.required(path, "exactly one of url or service is required");
        }
        (Some(url), false) => {
            let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
            if scheme != "https" {
                let why = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
                findings.invalid(path.at("url"), scheme, why);
            }
        }
        (None, true) => {
            for key in ["name", "namespace"] {
                if text(&client["service"][key]).is_empty() {
                    findings.required(path.at("service").at(key), "");
                }
            }
        }
    }
}

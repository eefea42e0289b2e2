//! Roles and their bindings.

use std::fmt::Display;

use serde_json::Value;

use super::findings::{Findings, list, text};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn check(kind: &str, value: &Value, findings: &mut Findings) {
    match kind {
        "Role" | "ClusterRole" => {
            for (index, rule) in list(&value["rules"]).iter().enumerate() {
                check_rule(rule, kind == "Role", &format_args!("rules[{index}]"), findings);
            }
        }
        _ => check_binding(value, kind == "RoleBinding", findings),
    }
}

fn check_rule(rule: &Value, namespaced: bool, path: &dyn Display, findings: &mut Findings) {
    let given = |key: &str| !list(&rule[key]).is_empty();
    if !given("verbs") {
        findings.required(
            format_args!("{path}.verbs"),
            "verbs must contain at least one value",
        );
    }
    if given("nonResourceURLs") {
        let field = format_args!("{path}.nonResourceURLs");
        let urls = rule["nonResourceURLs"].clone();
        if namespaced {
            let why = "namespaced rules cannot apply to non-resource URLs";
            findings.invalid(field, urls.clone(), why);
        }
        if given("apiGroups") || given("resources") || given("resourceNames") {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            findings.invalid(field, urls, why);
        }
        return;
    }
    if !given("apiGroups") {
        findings.required(
            format_args!("{path}.apiGroups"),
            "resource rules must supply at least one api group",
        );
    }
    if !given("resources") {
        findings.required(
            format_args!("{path}.resources"),
            "resource rules must supply at least one resource",
        );
    }
}

fn check_binding(binding: &Value, namespaced: bool, findings: &mut Findings) {
    let role = &binding["roleRef"];
    findings.one_of("roleRef.apiGroup", &role["apiGroup"], &[GROUP]);
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    findings.one_of("roleRef.kind", &role["kind"], kinds);
    if text(&role["name"]).is_empty() {
        findings.required("roleRef.name", "");
    }
    for (index, subject) in list(&binding["subjects"]).iter().enumerate() {
        let path = format_args!("subjects[{index}]");
        if text(&subject["name"]).is_empty() {
            findings.required(format_args!("{path}.name"), "");
        }
        match text(&subject["kind"]) {
            "ServiceAccount" => {
                if !text(&subject["apiGroup"]).is_empty() {
                    findings.one_of(format_args!("{path}.apiGroup"), &subject["apiGroup"], &[""]);
                }
                // A binding in a namespace means its own.
                if !namespaced && text(&subject["namespace"]).is_empty() {
                    findings.required(format_args!("{path}.namespace"), "");
                }
            }
            "User" | "Group" => {
                findings.one_of(format_args!("{path}.apiGroup"), &subject["apiGroup"], &[GROUP]);
            }
            _ => findings.one_of(
                format_args!("{path}.kind"),
                &subject["kind"],
                &["ServiceAccount", "User", "Group"],
            ),
        }
    }
}

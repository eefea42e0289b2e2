//! Roles and their bindings.

use serde_json::Value;

use super::findings::{Findings, list, text};
use crate::naming;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn check(kind: &str, value: &Value, findings: &mut Findings) {
    match kind {
        "Role" | "ClusterRole" => {
            for (index, rule) in list(&value["rules"]).iter().enumerate() {
                check_rule(rule, kind == "Role", &format!("rules[{index}]"), findings);
            }
            if value["aggregationRule"].is_object() {
                check_aggregation(&value["aggregationRule"]["clusterRoleSelectors"], findings);
            }
        }
        _ => check_binding(value, kind == "RoleBinding", findings),
    }
}

fn check_aggregation(selectors: &Value, findings: &mut Findings) {
    let field = "aggregationRule.clusterRoleSelectors";
    if list(selectors).is_empty() {
        let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        findings.required(field, why);
    }
    for (index, selector) in list(selectors).iter().enumerate() {
        let (field, before) = (format!("{field}[{index}]"), findings.count());
        findings.selector(&field, selector);
        // What has a problem is no selector, and that is a problem of its own.
        if findings.count() > before {
            findings.invalid(field, Value::Null, "invalid label selector.");
        }
    }
}

fn check_rule(rule: &Value, namespaced: bool, path: &str, findings: &mut Findings) {
    let given = |key: &str| !list(&rule[key]).is_empty();
    if !given("verbs") {
        findings.required(format!("{path}.verbs"), "verbs must contain at least one value");
    }
    if given("nonResourceURLs") {
        let field = format!("{path}.nonResourceURLs");
        let urls = rule["nonResourceURLs"].clone();
        if namespaced {
            let why = "namespaced rules cannot apply to non-resource URLs";
            findings.invalid(field.as_str(), urls.clone(), why);
        }
        if given("apiGroups") || given("resources") || given("resourceNames") {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            findings.invalid(field, urls, why);
        }
        return;
    }
    if !given("apiGroups") {
        findings.required(
            format!("{path}.apiGroups"),
            "resource rules must supply at least one api group",
        );
    }
    if !given("resources") {
        findings.required(
            format!("{path}.resources"),
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
    } else {
        findings.named(
            "roleRef.name",
            role["name"].clone(),
            naming::path_segment(text(&role["name"])),
        );
    }
    for (index, subject) in list(&binding["subjects"]).iter().enumerate() {
        let path = format!("subjects[{index}]");
        if text(&subject["name"]).is_empty() {
            findings.required(format!("{path}.name"), "");
        }
        match text(&subject["kind"]) {
            "ServiceAccount" => {
                let name = text(&subject["name"]);
                if !name.is_empty() {
                    findings.named(&format!("{path}.name"), name, naming::subdomain(name));
                }
                if !text(&subject["apiGroup"]).is_empty() {
                    findings.one_of(format!("{path}.apiGroup"), &subject["apiGroup"], &[""]);
                }
                // A binding in a namespace means its own.
                if !namespaced && text(&subject["namespace"]).is_empty() {
                    findings.required(format!("{path}.namespace"), "");
                }
            }
            "User" | "Group" => findings.one_of(format!("{path}.apiGroup"), &subject["apiGroup"], &[GROUP]),
            _ => findings.one_of(
                format!("{path}.kind"),
                &subject["kind"],
                &["ServiceAccount", "User", "Group"],
            ),
        }
    }
}

//! Roles and their bindings.

use serde_json::Value;

use super::findings::{Findings, list, text};
use crate::{naming, trail::Trail};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn check(kind: &str, value: &Value, findings: &mut Findings) {
    if !matches!(kind, "Role" | "ClusterRole") {
        check_binding(value, kind == "RoleBinding", findings);
        return;
    }
    let path = Trail::from_root("rules");
    for (index, rule) in list(&value["rules"]).iter().enumerate() {
        check_rule(rule, kind == "Role", &path.item(index), findings);
    }
    let aggregation = &value["aggregationRule"];
    if aggregation.is_null() || kind == "Role" {
        return;
    }
    let (selectors, path) = (
        list(&aggregation["clusterRoleSelectors"]),
        Trail::from_root("aggregationRule.clusterRoleSelectors"),
    );
    if selectors.is_empty() {
        let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        findings.required(path, why);
    }
    for (index, selector) in selectors.iter().enumerate() {
        let before = findings.count();
        findings.selector(&path.item(index), selector);
        if findings.count() > before {
            // It shows what it could not make of it.
            findings.invalid(path.item(index), Value::Null, "invalid label selector.");
        }
    }
}

fn check_rule(rule: &Value, namespaced: bool, path: &Trail<'_>, findings: &mut Findings) {
    let given = |key: &str| !list(&rule[key]).is_empty();
    if !given("verbs") {
        findings.required(path.at("verbs"), "verbs must contain at least one value");
    }
    if given("nonResourceURLs") {
        let (field, urls) = (path.at("nonResourceURLs"), &rule["nonResourceURLs"]);
        if namespaced {
            let why = "namespaced rules cannot apply to non-resource URLs";
            findings.invalid(field, urls.clone(), why);
        }
        if given("apiGroups") || given("resources") || given("resourceNames") {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            findings.invalid(field, urls.clone(), why);
        }
        return;
    }
    if !given("apiGroups") {
        let why = "resource rules must supply at least one api group";
        findings.required(path.at("apiGroups"), why);
    }
    if !given("resources") {
        let why = "resource rules must supply at least one resource";
        findings.required(path.at("resources"), why);
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
    if findings.given("roleRef.name", &role["name"]) {
        let name = text(&role["name"]);
        findings.named("roleRef.name", name, naming::path_segment(name));
    }
    let path = Trail::from_root("subjects");
    for (index, subject) in list(&binding["subjects"]).iter().enumerate() {
        check_subject(subject, namespaced, &path.item(index), findings);
    }
}

fn check_subject(subject: &Value, namespaced: bool, path: &Trail<'_>, findings: &mut Findings) {
    let name = text(&subject["name"]);
    findings.given(path.at("name"), &subject["name"]);
    match text(&subject["kind"]) {
        "ServiceAccount" => {
            if !name.is_empty() {
                findings.named(path.at("name"), name, naming::subdomain(name));
            }
            findings.one_of(path.at("apiGroup"), &subject["apiGroup"], &[""]);
            // A binding in a namespace means its own.
            if !namespaced {
                findings.given(path.at("namespace"), &subject["namespace"]);
            }
        }
        "User" | "Group" => findings.one_of(path.at("apiGroup"), &subject["apiGroup"], &[GROUP]),
        _ => findings.one_of(
            path.at("kind"),
            &subject["kind"],
            &["ServiceAccount", "User", "Group"],
        ),
    }
}

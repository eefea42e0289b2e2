//! Roles and their bindings.

use serde_json::Value;
use windlass_api::naming;

use super::error_list::{ErrorList, list, text};
use crate::field_path::FieldPath;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn check(kind: &str, value: &Value, errors: &mut ErrorList) {
    if !matches!(kind, "Role" | "ClusterRole") {
        check_binding(value, kind == "RoleBinding", errors);
        return;
    }
    let path = FieldPath::from_root("rules");
    for (index, rule) in list(&value["rules"]).iter().enumerate() {
        check_rule(rule, kind == "Role", &path.index(index), errors);
    }
    let aggregation = &value["aggregationRule"];
    if aggregation.is_null() || kind == "Role" {
        return;
    }
    let (selectors, path) = (
        list(&aggregation["clusterRoleSelectors"]),
        FieldPath::from_root("aggregationRule.clusterRoleSelectors"),
    );
    if selectors.is_empty() {
        let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.required(path, why);
    }
    for (index, selector) in selectors.iter().enumerate() {
        let before = errors.len();
        errors.selector(&path.index(index), selector);
        if errors.len() > before {
            // The real server quotes the selector as it failed to parse it.
            errors.invalid(path.index(index), Value::Null, "invalid label selector.");
        }
    }
}

fn check_rule(rule: &Value, namespaced: bool, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let given = |key: &str| !list(&rule[key]).is_empty();
    if !given("verbs") {
        errors.required(path.child("verbs"), "verbs must contain at least one value");
    }
    if given("nonResourceURLs") {
        let (field, urls) = (path.child("nonResourceURLs"), &rule["nonResourceURLs"]);
        if namespaced {
            let why = "namespaced rules cannot apply to non-resource URLs";
            errors.invalid(field, urls.clone(), why);
        }
        if given("apiGroups") || given("resources") || given("resourceNames") {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            errors.invalid(field, urls.clone(), why);
        }
        return;
    }
    if !given("apiGroups") {
        let why = "resource rules must supply at least one api group";
        errors.required(path.child("apiGroups"), why);
    }
    if !given("resources") {
        let why = "resource rules must supply at least one resource";
        errors.required(path.child("resources"), why);
    }
}

fn check_binding(binding: &Value, namespaced: bool, errors: &mut ErrorList) {
    let role = &binding["roleRef"];
    errors.one_of("roleRef.apiGroup", &role["apiGroup"], &[GROUP]);
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    errors.one_of("roleRef.kind", &role["kind"], kinds);
    if errors.require("roleRef.name", &role["name"]) {
        let name = text(&role["name"]);
        errors.invalid_each("roleRef.name", name, naming::path_segment(name));
    }
    let path = FieldPath::from_root("subjects");
    for (index, subject) in list(&binding["subjects"]).iter().enumerate() {
        check_subject(subject, namespaced, &path.index(index), errors);
    }
}

fn check_subject(subject: &Value, namespaced: bool, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let name = text(&subject["name"]);
    errors.require(path.child("name"), &subject["name"]);
    match text(&subject["kind"]) {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.invalid_each(path.child("name"), name, naming::subdomain(name));
            }
            errors.one_of(path.child("apiGroup"), &subject["apiGroup"], &[""]);
            // In a namespaced binding it defaults to the binding's namespace.
            if !namespaced {
                errors.require(path.child("namespace"), &subject["namespace"]);
            }
        }
        "User" | "Group" => errors.one_of(path.child("apiGroup"), &subject["apiGroup"], &[GROUP]),
        _ => errors.one_of(
            path.child("kind"),
            &subject["kind"],
            &["ServiceAccount", "User", "Group"],
        ),
    }
}

//! Roles and their bindings.

use serde_json::Value;
use windlass_api::naming;

use super::{
    defaulting::{items as items_mut, set_if_absent},
    error_list::{ErrorList, list, text},
    row::{self, Row},
    strategy::{CheckOrder, Facts, MetadataChecks, NameRule, Strategy, Write},
};
use crate::{
    auth::{AccessControl, Caller},
    field_path::FieldPath,
    internal_types,
    object::Object,
    schema::Problem,
    status::Status,
    storage::Entry,
    verbs::WriteVerbs,
};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Names are path segments (`system:node`), and a PUT creates.
const FACTS: Facts = Facts {
    create_on_update: true,
    grants_rights: true,
    name_rule: NameRule::PathSegment,
    metadata_checks: MetadataChecks {
        order: CheckOrder::MetadataBetween,
        ..Facts::DEFAULT.metadata_checks
    },
    ..Facts::DEFAULT
};

/// A `Role`, or a `ClusterRole`.
pub(super) enum Role {
    Namespaced,
    ClusterScoped,
}

impl Strategy for Role {
    fn facts(&self) -> Facts {
        FACTS
    }

    fn check_escalation(
        &self,
        access: &AccessControl,
        caller: Option<&Caller>,
        write: &Write<'_>,
    ) -> Result<(), Status> {
        access.check_role(caller, write)
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        let is_namespaced = matches!(self, Self::Namespaced);
        check_rules(write.value(), is_namespaced, errors);
        if !is_namespaced {
            check_aggregation(write.value(), errors);
        }
    }

    fn after_write(&self, writes: &WriteVerbs, _entry: &Entry) {
        if matches!(self, Self::ClusterScoped) {
            writes.access.update_aggregated_roles();
        }
        writes.access.catch_up();
    }
}

/// A `RoleBinding`, or a `ClusterRoleBinding`.
pub(super) enum Binding {
    Namespaced,
    ClusterScoped,
}

impl Strategy for Binding {
    fn after_write(&self, writes: &WriteVerbs, _entry: &Entry) {
        writes.access.catch_up();
    }

    fn facts(&self) -> Facts {
        Facts {
            columns: Some("Name Role Age +Users +Groups +ServiceAccounts"),
            ..FACTS
        }
    }

    fn set_defaults(&self, binding: &mut Object) {
        fill_api_groups(binding.tree_mut());
    }

    fn check_escalation(
        &self,
        access: &AccessControl,
        caller: Option<&Caller>,
        write: &Write<'_>,
    ) -> Result<(), Status> {
        access.check_binding(caller, write)
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check_binding(write.value(), matches!(self, Self::Namespaced), errors);
    }

    fn validate_changes(&self, write: &Write<'_>, old: &Value, errors: &mut ErrorList) {
        let role = &write.value()["roleRef"];
        if *role != old["roleRef"] {
            let shown = internal_types::format_as_struct("RoleRef", role);
            let problem = Problem::InvalidText(shown, "cannot change roleRef".to_owned());
            errors.add("roleRef", problem);
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        cells(row)
    }
}

fn fill_api_groups(binding: &mut Value) {
    if let Some(role) = binding.get_mut("roleRef")
        && role["apiGroup"].as_str().is_none_or(str::is_empty)
    {
        role["apiGroup"] = GROUP.into();
    }
    for subject in items_mut(binding, "subjects") {
        if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
            set_if_absent(subject, "apiGroup", GROUP);
        }
    }
}

fn check_rules(role: &Value, namespaced: bool, errors: &mut ErrorList) {
    let path = FieldPath::from_root("rules");
    for (index, rule) in list(&role["rules"]).iter().enumerate() {
        check_rule(rule, namespaced, &path.index(index), errors);
    }
}

fn check_aggregation(role: &Value, errors: &mut ErrorList) {
    let aggregation = &role["aggregationRule"];
    if aggregation.is_null() {
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

fn cells(row: &Row<'_>) -> Vec<Value> {
    let of = |kind: &str| {
        let subjects = row::items(row.object, "/subjects").filter(|s| s["kind"] == kind);
        let names = subjects.map(|s| match row::text(s, "/namespace") {
            namespace if kind == "ServiceAccount" => format!("{namespace}/{}", row::text(s, "/name")),
            _ => row::text(s, "/name").to_owned(),
        });
        Value::from(names.collect::<Vec<_>>().join(", "))
    };
    vec![
        row.name(),
        format!("{}/{}", row.text("/roleRef/kind"), row.text("/roleRef/name")).into(),
        row.age(),
        of("User"),
        of("Group"),
        of("ServiceAccount"),
    ]
}

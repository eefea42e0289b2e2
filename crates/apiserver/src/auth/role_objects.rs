//! Roles and bindings parsed for the policy.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;
use serde_json::Value;
use windlass_api::labels;
use windlass_rights::Rule;

use super::policy::{Binding, Subject};
use crate::storage::Entry;

/// A parsed role.
#[derive(Debug, Default)]
pub(crate) struct ParsedRole {
    pub(super) rules: Vec<Rule>,
    /// How many strings the rules have: how long it takes to compare them.
    pub(super) strings: usize,
    pub(super) labels: BTreeMap<String, String>,
    /// The aggregation rule's selectors; empty for roles that aggregate nothing.
    pub(super) aggregation_selectors: Vec<labels::Selector>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RoleObject {
    metadata: Metadata,
    rules: Option<Vec<Rule>>,
    aggregation_rule: Option<Aggregation>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Aggregation {
    cluster_role_selectors: Option<Vec<Value>>,
}

/// A stored role has passed its schema; if it cannot be parsed nevertheless, it grants nothing.
pub(super) fn parse_role(entry: &Entry) -> ParsedRole {
    let role: RoleObject = parse_object(entry);
    let rules = role.rules.unwrap_or_default();
    let strings = |rule: &Rule| {
        let resources = rule.api_groups.len() + rule.resources.len() + rule.resource_names.len();
        1 + rule.verbs.len() + resources + rule.non_resource_urls.len()
    };
    ParsedRole {
        strings: rules.iter().map(strings).sum(),
        rules,
        labels: role.metadata.labels.unwrap_or_default(),
        aggregation_selectors: role
            .aggregation_rule
            .and_then(|rule| rule.cluster_role_selectors)
            .unwrap_or_default()
            .iter()
            .map(labels::Selector::from_json)
            .collect(),
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BindingObject {
    role_ref: Reference,
    subjects: Option<Vec<Reference>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Reference {
    kind: Box<str>,
    name: Box<str>,
    namespace: Box<str>,
}

pub(super) fn parse_binding(entry: &Entry) -> Binding {
    let bound: BindingObject = parse_object(entry);
    let subject = |subject: Reference| match &*subject.kind {
        "User" => Some(Subject::User(subject.name)),
        "Group" => Some(Subject::Group(subject.name)),
        "ServiceAccount" => {
            // Within a namespaced binding, the subject's namespace defaults to the binding's.
            let namespace = match &*subject.namespace {
                "" => &*entry.key.namespace,
                namespace => namespace,
            };
            Some(Subject::service_account(namespace, &subject.name))
        }
        _ => None,
    };
    let mut seen = HashSet::new();
    let mut subjects: Vec<_> = bound
        .subjects
        .unwrap_or_default()
        .into_iter()
        .filter_map(subject)
        .collect();
    subjects.retain(|subject| seen.insert(subject.clone()));
    Binding {
        key: entry.key.clone(),
        role_kind: bound.role_ref.kind,
        role: bound.role_ref.name,
        subjects,
    }
}

fn parse_object<T: Default + serde::de::DeserializeOwned>(entry: &Entry) -> T {
    serde_json::from_slice(entry.object.json()).unwrap_or_else(|error| {
        tracing::warn!(%error, name = &*entry.key.name, "cannot parse a stored role or binding; it grants nothing");
        T::default()
    })
}

//! Roles and bindings as the policy needs them, read from their objects.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use windlass_rights::Rule;

use super::policy::{Binding, Subject};
use crate::{selector::LabelSelector, storage::Entry};

/// What a role says.
#[derive(Debug, Default)]
pub(crate) struct RoleFacts {
    pub(super) rules: Vec<Rule>,
    pub(super) labels: BTreeMap<String, String>,
    /// Whose rules a cluster role gathers; none for those with rules of their own.
    pub(super) gathers: Vec<LabelSelector>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Role {
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

/// A stored role passed its schema; one that cannot be read all the same grants nothing.
pub(super) fn read_role(entry: &Entry) -> RoleFacts {
    let role: Role = read(entry);
    RoleFacts {
        rules: role.rules.unwrap_or_default(),
        labels: role.metadata.labels.unwrap_or_default(),
        gathers: role
            .aggregation_rule
            .and_then(|rule| rule.cluster_role_selectors)
            .unwrap_or_default()
            .iter()
            .map(LabelSelector::of)
            .collect(),
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Bound {
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

pub(super) fn read_binding(entry: &Entry) -> Binding {
    let bound: Bound = read(entry);
    let subject = |subject: Reference| match &*subject.kind {
        "User" => Some(Subject::User(subject.name)),
        "Group" => Some(Subject::Group(subject.name)),
        "ServiceAccount" => {
            // A binding in a namespace means its own where it names none.
            let namespace = match &*subject.namespace {
                "" => &*entry.key.namespace,
                namespace => namespace,
            };
            Some(Subject::account(namespace, &subject.name))
        }
        _ => None,
    };
    Binding {
        key: entry.key.clone(),
        role_kind: bound.role_ref.kind,
        role: bound.role_ref.name,
        subjects: bound
            .subjects
            .unwrap_or_default()
            .into_iter()
            .filter_map(subject)
            .collect(),
    }
}

fn read<T: Default + serde::de::DeserializeOwned>(entry: &Entry) -> T {
    serde_json::from_slice(entry.object.json()).unwrap_or_else(|error| {
        tracing::warn!(%error, name = &*entry.key.name, "a stored role or binding cannot be read and grants nothing");
        T::default()
    })
}

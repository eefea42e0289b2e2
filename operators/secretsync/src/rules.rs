//! A parsed SecretSync spec.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass::{
    api::{
        labels::Selector,
        naming::{check_label_key, check_label_value, check_name},
    },
    k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};

use crate::{
    api::{
        AdoptionPolicy, DeletionPolicy, Filter, MAX_ENTRIES, MAX_NAMES, MetadataPolicy, RecreatePolicy,
        SecretSyncSpec, SourceKind,
    },
    source_watch::SourceWatchKey,
};

/// The rules of a sync.
#[derive(Debug, PartialEq)]
pub(crate) struct SyncRules {
    pub(crate) kind: SourceKind,
    /// Selects the sources; `None` selects none.
    sources: Option<Selector>,
    pub(crate) names: BTreeSet<Arc<str>>,
    /// Selects the namespaces; `None` selects all that consent.
    namespaces: Option<Selector>,
    pub(crate) keys: Filter,
    pub(crate) metadata: MetadataPolicy,
    pub(crate) adoption: AdoptionPolicy,
    pub(crate) deletion: DeletionPolicy,
    pub(crate) recreate: RecreatePolicy,
    pub(crate) allow_chaining: bool,
    pub(crate) is_paused: bool,
}

impl SyncRules {
    /// The rules of an annotated object.
    pub(crate) fn annotated(kind: SourceKind) -> Self {
        let spec = SecretSyncSpec {
            kind,
            ..SecretSyncSpec::default()
        };
        Self::from_spec(&spec).expect("it has no selectors")
    }

    /// Parses a spec, or returns its validation error.
    pub(crate) fn from_spec(spec: &SecretSyncSpec) -> Result<Self, String> {
        check_lengths(spec)?;
        for name in &spec.names {
            check_name(name).map_err(|wrong| format!("spec.names: {wrong}"))?;
        }
        let read = |field: &str, selector: &Option<LabelSelector>| {
            let selector = selector.as_ref().map(parse).transpose();
            selector.map_err(|wrong| format!("spec.{field}: {wrong}"))
        };
        Ok(Self {
            kind: spec.kind,
            sources: read("sourceSelector", &spec.source_selector)?,
            names: spec.names.iter().map(|name| name.as_str().into()).collect(),
            namespaces: read("namespaceSelector", &spec.namespace_selector)?,
            keys: spec.keys.clone(),
            metadata: spec.metadata.clone(),
            adoption: spec.adoption_policy,
            deletion: spec.deletion_policy,
            recreate: spec.recreate_policy,
            allow_chaining: spec.allow_chaining,
            is_paused: spec.paused,
        })
    }

    /// Returns the watch of its sources; `None` if it selects nothing.
    pub(crate) fn watch_key(&self, namespace: &Arc<str>) -> Option<SourceWatchKey> {
        let asks = self.sources.is_some() || !self.names.is_empty();
        asks.then(|| SourceWatchKey {
            kind: self.kind,
            namespace: Arc::clone(namespace),
        })
    }

    /// Returns whether it selects sources by label.
    pub(crate) fn has_selector(&self) -> bool {
        self.sources.is_some()
    }

    /// Returns whether it selects the object with this name and these labels.
    pub(crate) fn selects(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let selector = self.sources.as_ref();
        self.names_source(name) || selector.is_some_and(|selector| selector.matches_map(labels))
    }

    pub(crate) fn selects_namespace(&self, labels: &BTreeMap<String, String>) -> bool {
        self.namespaces
            .as_ref()
            .is_none_or(|selector| selector.matches_map(labels))
    }

    pub(crate) fn names_source(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}

/// The schema has the same limits; this also checks objects that were stored under an older schema.
fn check_lengths(spec: &SecretSyncSpec) -> Result<(), String> {
    let selectors = [
        ("sourceSelector", &spec.source_selector),
        ("namespaceSelector", &spec.namespace_selector),
    ];
    let mut lengths = vec![
        ("names", spec.names.len(), MAX_NAMES),
        ("keys.include", spec.keys.include.len(), MAX_ENTRIES),
        ("keys.exclude", spec.keys.exclude.len(), MAX_ENTRIES),
    ];
    for filter in [&spec.metadata.labels, &spec.metadata.annotations] {
        lengths.push(("metadata", filter.include.len(), MAX_ENTRIES));
        lengths.push(("metadata", filter.exclude.len(), MAX_ENTRIES));
    }
    for (field, selector) in selectors {
        let Some(selector) = selector else {
            continue;
        };
        let requirements = selector.match_expressions.as_deref().unwrap_or_default();
        let labels = selector.match_labels.as_ref().map_or(0, BTreeMap::len);
        lengths.push((field, labels, MAX_ENTRIES));
        lengths.push((field, requirements.len(), MAX_ENTRIES));
        for requirement in requirements {
            let values = requirement.values.as_ref().map_or(0, Vec::len);
            lengths.push((field, values, MAX_ENTRIES));
        }
    }
    match lengths.iter().find(|(_, length, most)| length > most) {
        Some((field, length, most)) => Err(format!(
            "spec.{field}: too many entries: {length}, at most {most} are allowed"
        )),
        None => Ok(()),
    }
}

/// Parses a selector strictly: the server validates it only when it is used in a list request, or not at all.
fn parse(selector: &LabelSelector) -> Result<Selector, String> {
    for (key, value) in selector.match_labels.iter().flatten() {
        check_label_key(key).map_err(|wrong| wrong.to_string())?;
        check_label_value(value).map_err(|wrong| wrong.to_string())?;
    }
    for requirement in selector.match_expressions.iter().flatten() {
        check(requirement)?;
    }
    Selector::try_from(selector).map_err(|wrong| wrong.to_string())
}

fn check(
    LabelSelectorRequirement {
        key,
        operator,
        values,
    }: &LabelSelectorRequirement,
) -> Result<(), String> {
    check_label_key(key).map_err(|wrong| wrong.to_string())?;
    for value in values.iter().flatten() {
        check_label_value(value).map_err(|wrong| wrong.to_string())?;
    }
    let has_values = values.as_ref().is_some_and(|values| !values.is_empty());
    match (operator.as_str(), has_values) {
        ("In" | "NotIn", true) | ("Exists" | "DoesNotExist", false) => Ok(()),
        ("In" | "NotIn", false) => Err(format!("operator `{operator}` of key `{key}` needs `values`")),
        ("Exists" | "DoesNotExist", true) => {
            Err(format!("operator `{operator}` of key `{key}` takes no `values`"))
        }
        _ => Err(format!(
            "key `{key}` has the unknown operator `{operator}`: use `In`, `NotIn`, `Exists` or `DoesNotExist`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use windlass::prelude::{from_value, json};

    use super::*;
    use crate::source_watch::SourceMetadata;

    fn spec(json: serde_json::Value) -> SecretSyncSpec {
        from_value(json).expect("a valid spec")
    }

    #[test]
    fn sources_are_selected_by_label_and_by_name() {
        let seen = |labels: serde_json::Value| {
            let metadata = from_value(json!({ "labels": labels })).expect("valid metadata");
            SourceMetadata::from_metadata(&metadata, "sync").labels()
        };
        let objects = [
            ("x", seen(json!({}))),
            ("y", seen(json!({ "a": "b", "c": "" }))),
            ("z", seen(json!({ "a": "c" }))),
        ];
        for (json, expected) in [
            (json!({}), None),
            (json!({ "names": ["x", "y"] }), Some("xy")),
            (json!({ "sourceSelector": {} }), Some("xyz")),
            (
                json!({ "sourceSelector": { "matchLabels": { "a": "b" } } }),
                Some("y"),
            ),
            (
                json!({ "sourceSelector": { "matchLabels": { "c": "" } }, "names": ["x"] }),
                Some("xy"),
            ),
            (
                json!({ "sourceSelector": { "matchExpressions": [{ "key": "a", "operator": "Exists" }] } }),
                Some("yz"),
            ),
        ] {
            let rules = SyncRules::from_spec(&spec(json)).expect("a valid spec");
            let selected = objects
                .iter()
                .filter(|(name, labels)| rules.selects(name, labels));
            let selected: String = selected.map(|(name, _)| *name).collect();
            assert_eq!(rules.watch_key(&"n".into()).map(|_| &*selected), expected);
        }
    }

    #[test]
    fn invalid_specs_are_rejected_with_the_field() {
        let one = |requirement: serde_json::Value| json!({ "matchExpressions": [requirement] });
        for (wrong, expected) in [
            (json!({ "matchLabels": { "a": "b c" } }), "\"b c\""),
            (json!({ "matchLabels": { "a b": "c" } }), "\"a b\""),
            (one(json!({ "key": "a b", "operator": "Exists" })), "\"a b\""),
            (
                one(json!({ "key": "a", "operator": "In", "values": ["b c"] })),
                "\"b c\"",
            ),
            (
                one(json!({ "key": "a", "operator": "Near", "values": ["b"] })),
                "`Near`: use `In`",
            ),
            (one(json!({ "key": "a", "operator": "NotIn" })), "needs `values`"),
            (
                one(json!({ "key": "a", "operator": "In", "values": [] })),
                "needs `values`",
            ),
            (
                one(json!({ "key": "a", "operator": "Exists", "values": ["b"] })),
                "takes no `values`",
            ),
        ] {
            for field in ["sourceSelector", "namespaceSelector"] {
                let error = SyncRules::from_spec(&spec(json!({ field: wrong }))).expect_err(expected);
                assert!(
                    error.starts_with(&format!("spec.{field}: ")) && error.contains(expected),
                    "{error}"
                );
            }
        }
        let many = |count: usize| (0..count).map(|number| format!("n-{number}")).collect::<Vec<_>>();
        let values = |count: usize| one(json!({ "key": "a", "operator": "In", "values": many(count) }));
        for (field, most, too_many) in [
            ("names", json!(many(1000)), json!(many(12_000))),
            (
                "keys",
                json!({ "exclude": many(100) }),
                json!({ "exclude": many(101) }),
            ),
            ("sourceSelector", values(100), values(101)),
        ] {
            assert!(
                SyncRules::from_spec(&spec(json!({ field: most }))).is_ok(),
                "{field}"
            );
            let error = SyncRules::from_spec(&spec(json!({ field: too_many }))).expect_err(field);
            assert!(
                error.starts_with(&format!("spec.{field}")) && error.contains("at most"),
                "{error}"
            );
        }
        for name in ["", "No Name", "a,metadata.namespace=b", "../a"] {
            let error = SyncRules::from_spec(&spec(json!({ "names": ["a", name] }))).expect_err(name);
            assert!(
                error.starts_with(&format!("spec.names: invalid name {name:?}")),
                "{error}"
            );
        }
    }
}

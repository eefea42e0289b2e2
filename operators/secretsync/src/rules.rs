//! A SecretSync's spec, read once.

use std::{collections::BTreeMap, sync::Arc};

use windlass::{
    k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
    kube::core::{Selector, SelectorExt},
    runtime::names::{check_label_key, check_label_value, check_name},
};

use crate::{
    api::{AdoptionPolicy, DeletionPolicy, Filter, MetadataPolicy, Recreate, SecretSyncSpec, SourceKind},
    room::{RoomKey, Which},
};

/// What a sync was told.
#[derive(Debug, PartialEq)]
pub(crate) struct Rules {
    pub(crate) kind: SourceKind,
    /// Of the sources; `None` for none.
    sources: Option<Selector>,
    pub(crate) names: Vec<Arc<str>>,
    /// Of the namespaces; `None` for all that consent.
    namespaces: Option<Selector>,
    pub(crate) keys: Filter,
    pub(crate) metadata: MetadataPolicy,
    pub(crate) adoption: AdoptionPolicy,
    pub(crate) deletion: DeletionPolicy,
    pub(crate) recreate: Recreate,
    pub(crate) allow_chaining: bool,
    pub(crate) is_paused: bool,
}

impl Rules {
    /// Of an annotated object.
    pub(crate) fn annotated(kind: SourceKind) -> Self {
        let spec = SecretSyncSpec {
            kind,
            ..SecretSyncSpec::default()
        };
        Self::of(&spec).expect("it has no selector that could be wrong")
    }

    /// What is wrong with a spec that makes no rules.
    pub(crate) fn of(spec: &SecretSyncSpec) -> Result<Self, String> {
        for name in &spec.names {
            check_name(name).map_err(|wrong| format!("spec.names: {wrong}"))?;
        }
        let read = |field: &str, selector: &Option<LabelSelector>| {
            let selector = selector.as_ref().map(parse).transpose();
            selector.map_err(|wrong| format!("spec.{field}: {wrong}"))
        };
        Ok(Self {
            kind: spec.kind,
            sources: read("secretSelector", &spec.secret_selector)?,
            names: spec.names.iter().map(|name| name.as_str().into()).collect(),
            namespaces: read("namespaceSelector", &spec.namespace_selector)?,
            keys: spec.keys.clone(),
            metadata: spec.metadata.clone(),
            adoption: spec.adoption_policy,
            deletion: spec.deletion_policy,
            recreate: spec.recreate,
            allow_chaining: spec.allow_chaining,
            is_paused: spec.paused,
        })
    }

    /// Where its sources are found.
    pub(crate) fn rooms(&self, namespace: &Arc<str>) -> Vec<RoomKey> {
        let room = |which| RoomKey {
            kind: self.kind,
            namespace: Arc::clone(namespace),
            which,
        };
        let selected = self.sources.iter().map(|selector| match selector.to_string() {
            all if all.is_empty() => Which::All,
            some => Which::Labelled(some.into()),
        });
        let named = self.names.iter().map(|name| Which::Named(Arc::clone(name)));
        selected.chain(named).map(room).collect()
    }

    pub(crate) fn selects_namespace(&self, labels: &BTreeMap<String, String>) -> bool {
        self.namespaces
            .as_ref()
            .is_none_or(|selector| selector.matches(labels))
    }

    pub(crate) fn names_one(&self, name: &str) -> bool {
        self.names.iter().any(|named| &**named == name)
    }
}

/// Reads what the server would refuse only when it is asked for a list by it, or not at all.
fn parse(selector: &LabelSelector) -> Result<Selector, String> {
    for (key, value) in selector.match_labels.iter().flatten() {
        check_label_key(key).map_err(|wrong| wrong.to_string())?;
        check_label_value(value).map_err(|wrong| wrong.to_string())?;
    }
    for requirement in selector.match_expressions.iter().flatten() {
        check(requirement)?;
    }
    Selector::try_from(selector.clone()).map_err(|wrong| wrong.to_string())
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
        ("In" | "NotIn", false) => Err(format!(
            "`{key}` has the operator `{operator}`, which needs `values`"
        )),
        ("Exists" | "DoesNotExist", true) => Err(format!(
            "`{key}` has the operator `{operator}`, which takes no `values`"
        )),
        _ => Err(format!(
            "`{key}` has the operator `{operator}`: use `In`, `NotIn`, `Exists` or `DoesNotExist`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use windlass::prelude::{from_value, json};

    use super::*;

    fn spec(json: serde_json::Value) -> SecretSyncSpec {
        from_value(json).expect("it is a spec")
    }

    #[test]
    fn sources_are_found_by_label_and_by_name() {
        let rooms = |json| {
            let rules = Rules::of(&spec(json)).expect("it is right");
            rules
                .rooms(&"a".into())
                .into_iter()
                .map(|room| room.which)
                .collect::<Vec<_>>()
        };
        assert_eq!(rooms(json!({})), []);
        assert_eq!(rooms(json!({ "secretSelector": {} })), [Which::All]);
        assert_eq!(
            rooms(json!({ "secretSelector": { "matchLabels": { "a": "b" } }, "names": ["x"] })),
            [Which::Labelled("a=b".into()), Which::Named("x".into())]
        );
    }

    #[test]
    fn what_cannot_be_meant_is_named() {
        let one = |requirement: serde_json::Value| json!({ "matchExpressions": [requirement] });
        for (wrong, said) in [
            (json!({ "matchLabels": { "a": "b c" } }), "`b c`"),
            (json!({ "matchLabels": { "a b": "c" } }), "`a b`"),
            (one(json!({ "key": "a b", "operator": "Exists" })), "`a b`"),
            (
                one(json!({ "key": "a", "operator": "In", "values": ["b c"] })),
                "`b c`",
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
            for field in ["secretSelector", "namespaceSelector"] {
                let error = Rules::of(&spec(json!({ field: wrong }))).expect_err(said);
                assert!(
                    error.starts_with(&format!("spec.{field}: ")) && error.contains(said),
                    "{error}"
                );
            }
        }
        for name in ["", "No Name", "a,metadata.namespace=b", "../a"] {
            let error = Rules::of(&spec(json!({ "names": ["a", name] }))).expect_err(name);
            assert!(error.starts_with(&format!("spec.names: `{name}`")), "{error}");
        }
    }
}

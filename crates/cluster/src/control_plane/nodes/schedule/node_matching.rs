//! Matches node affinity terms and tolerations with a node's labels and taints.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};
use windlass_api::labels::Operator;

/// Whether the term selects a node with this name and these labels. An empty term selects none.
pub(in crate::control_plane) fn term_matches(
    term: &NodeSelectorTerm,
    name: &str,
    labels: &BTreeMap<String, String>,
) -> bool {
    let (expressions, fields) = (term.match_expressions.as_deref(), term.match_fields.as_deref());
    let (expressions, fields) = (expressions.unwrap_or_default(), fields.unwrap_or_default());
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let by_label = |requirement: &NodeSelectorRequirement| {
        requirement_holds(requirement, labels.get(&requirement.key).map(String::as_str))
    };
    let by_field = |requirement: &NodeSelectorRequirement| {
        requirement.key == "metadata.name" && requirement_holds(requirement, Some(name))
    };
    expressions.iter().all(by_label) && fields.iter().all(by_field)
}

fn requirement_holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    Operator::from_name(&requirement.operator).is_some_and(|operator| operator.matches(values, value))
}

/// Returns the node names in the terms if every term selects by name, so that other nodes can be skipped.
pub(super) fn node_names(terms: &[NodeSelectorTerm]) -> Option<Vec<&str>> {
    let mut names: Vec<&str> = Vec::new();
    for term in terms {
        let field = term
            .match_fields
            .iter()
            .flatten()
            .find(|field| field.key == "metadata.name" && field.operator == "In")?;
        names.extend(field.values.iter().flatten().map(String::as_str));
    }
    (!terms.is_empty()).then_some(names)
}

/// Whether one of the tolerations covers the taint.
pub(in crate::control_plane) fn tolerated(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

/// Whether the toleration covers the taint.
pub(in crate::control_plane::nodes) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let unset_or =
        |field: Option<&str>, value: &str| field.is_none_or(|field| field.is_empty() || field == value);
    let value = taint.value.as_deref().unwrap_or_default();
    unset_or(toleration.effect.as_deref(), &taint.effect)
        && unset_or(toleration.key.as_deref(), &taint.key)
        && match toleration.operator.as_deref().unwrap_or_default() {
            "" | "Equal" => toleration.value.as_deref().unwrap_or_default() == value,
            "Exists" => true,
            _ => false,
        }
}

/// Whether the taint repels pods that do not tolerate it.
pub(super) fn repels(taint: &Taint) -> bool {
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_selector_operator_matches_as_in_kubernetes() {
        let labels = [("zone", "a"), ("cores", "8")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        for (key, operator, values, expected) in [
            ("zone", "In", json!(["a", "b"]), true),
            ("zone", "In", json!(["b"]), false),
            ("zone", "NotIn", json!(["b"]), true),
            ("zone", "NotIn", json!(["a"]), false),
            ("disk", "NotIn", json!(["a"]), true),
            ("disk", "In", json!(["a"]), false),
            ("zone", "Exists", json!([]), true),
            ("disk", "Exists", json!([]), false),
            ("zone", "DoesNotExist", json!([]), false),
            ("disk", "DoesNotExist", json!([]), true),
            ("cores", "Gt", json!(["4"]), true),
            ("cores", "Gt", json!(["8"]), false),
            ("cores", "Lt", json!(["16"]), true),
            ("zone", "Lt", json!(["16"]), false),
        ] {
            let term = json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
            let term = serde_json::from_value(term).expect("a term");
            assert_eq!(
                term_matches(&term, "n", &labels),
                expected,
                "{key} {operator} {values}"
            );
        }
        assert!(!term_matches(&NodeSelectorTerm::default(), "n", &labels));
    }

    #[test]
    fn toleration_ignores_unset_fields() {
        let taint = |effect: &str| Taint {
            key: "k".into(),
            value: Some("v".into()),
            effect: effect.into(),
            time_added: None,
        };
        for (toleration, covers) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "operator": "Equal", "value": "w"}), false),
            (
                json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}),
                false,
            ),
            (json!({"key": "l", "operator": "Exists"}), false),
        ] {
            let known: Toleration = serde_json::from_value(toleration.clone()).expect("a toleration");
            assert_eq!(tolerates(&known, &taint("NoSchedule")), covers, "{toleration}");
        }
    }
}

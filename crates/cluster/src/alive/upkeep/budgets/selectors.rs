//! Which budgets cover a pod: their selectors, by namespace.
//!
//! A budget is entered by its own reconcile, before that reads any pod: a pod that comes earlier is read there, one that
//! comes later finds the budget here.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError, RwLock},
};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::LabelSelector};
use kube::core::{Selector, SelectorExt};
use windlass_cache::{Meta, ObjectKey};

type Labels = BTreeMap<String, String>;

/// By namespace and name.
#[derive(Clone, Default)]
pub(super) struct Selectors(Arc<RwLock<HashMap<String, HashMap<String, Selector>>>>);

impl Selectors {
    /// The budget selects these pods from now on; `None` if it selects none, or is gone.
    pub(super) fn set(&self, budget: &ObjectKey, selector: Option<Selector>) {
        let namespace = budget.namespace().unwrap_or_default();
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(selector) = selector {
            let budgets = all.entry(namespace.to_owned()).or_default();
            budgets.insert(budget.name().to_owned(), selector);
        } else if let Some(budgets) = all.get_mut(namespace) {
            budgets.remove(budget.name());
            if budgets.is_empty() {
                all.remove(namespace);
            }
        }
    }

    /// Whether a budget may cover the pod; decodes nothing.
    pub(super) fn concern(&self, pod: &Meta) -> bool {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.contains_key(pod.key().namespace().unwrap_or_default())
    }

    /// The budgets that cover the pod.
    pub(super) fn covering(&self, pod: &Pod) -> Vec<ObjectKey> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(budgets) = all.get(namespace) else {
            return Vec::new();
        };
        let none = Labels::new();
        let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
        let covering = budgets.iter().filter(|(_, selector)| selector.matches(labels));
        covering
            .map(|(name, _)| ObjectKey::namespaced(namespace, name.as_str()))
            .collect()
    }
}

/// How a Go program prints a selector; events have it.
pub(super) fn in_go(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten();
    let labels: String = labels.map(|(name, value)| format!("{name}: {value},")).collect();
    let expressions = selector.match_expressions.iter().flatten();
    let expressions: String = expressions
        .map(|expression| {
            let values = expression.values.as_deref().unwrap_or_default().join(" ");
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
                expression.key, expression.operator
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(labels: serde_json::Value) -> Pod {
        let pod = serde_json::json!({"metadata": {"namespace": "a", "name": "p", "labels": labels}});
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn a_pod_finds_its_budgets_until_they_are_gone() {
        let selectors = Selectors::default();
        let key = |name| ObjectKey::namespaced("a", name);
        let web: LabelSelector =
            serde_json::from_value(serde_json::json!({"matchLabels": {"app": "web"}})).expect("a selector");
        selectors.set(&key("web"), Some(web.try_into().expect("a selector")));
        selectors.set(&key("all"), Some(Selector::default()));
        let mut found = selectors.covering(&pod(serde_json::json!({"app": "web"})));
        found.sort();
        assert_eq!(found, [key("all"), key("web")]);
        assert_eq!(selectors.covering(&pod(serde_json::json!(null))), [key("all")]);
        for name in ["all", "web"] {
            selectors.set(&key(name), None);
        }
        assert!(selectors.0.read().expect("nobody panics").is_empty());
    }

    #[test]
    fn selectors_are_printed_as_a_go_program_prints_them() {
        let selector = serde_json::from_value(serde_json::json!({
            "matchLabels": {"app": "b"},
            "matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["y", "z"]}],
        }));
        assert_eq!(
            in_go(&selector.expect("a selector")),
            "&LabelSelector{MatchLabels:map[string]string{app: b,},MatchExpressions:[]LabelSelectorRequirement{\
             LabelSelectorRequirement{Key:x,Operator:NotIn,Values:[y z],},},}"
        );
    }
}

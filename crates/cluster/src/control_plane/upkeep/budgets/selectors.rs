//! Maps pods to the budgets that select them.
//!
//! A budget's reconcile adds its selector before it reads any pod, so no pod is missed: earlier pods are read by that
//! reconcile, later ones find the selector here.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError, RwLock},
};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::LabelSelector};
use windlass_api::labels::Selector;
use windlass_cache::{Meta, ObjectKey};

type Labels = BTreeMap<String, String>;

/// The selectors of all budgets, by namespace and name.
#[derive(Clone, Default)]
pub(super) struct Selectors(Arc<RwLock<HashMap<String, HashMap<String, Selector>>>>);

impl Selectors {
    /// Sets the budget's selector; `None` if it has none or was deleted.
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

    /// Whether the pod's namespace has budgets, without decoding the pod.
    pub(super) fn may_select(&self, pod: &Meta) -> bool {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.contains_key(pod.key().namespace().unwrap_or_default())
    }

    /// Returns the budgets that select the pod.
    pub(super) fn budgets_of(&self, pod: &Pod) -> Vec<ObjectKey> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(budgets) = all.get(namespace) else {
            return Vec::new();
        };
        let none = Labels::new();
        let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
        let covering = budgets
            .iter()
            .filter(|(_, selector)| selector.matches_map(labels));
        covering
            .map(|(name, _)| ObjectKey::namespaced(namespace, name.as_str()))
            .collect()
    }
}

/// Formats a selector like Go's `%v`, as Kubernetes does in events.
pub(super) fn format_like_go(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten();
    let labels: Vec<_> = labels.map(|(name, value)| format!("{name}: {value},")).collect();
    let expressions = selector.match_expressions.iter().flatten();
    let expressions: Vec<_> = expressions
        .map(|expression| {
            let values = expression.values.as_deref().unwrap_or_default().join(" ");
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
                expression.key, expression.operator
            )
        })
        .collect();
    let (labels, expressions) = (labels.concat(), expressions.concat());
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(labels: &serde_json::Value) -> Pod {
        let pod = serde_json::json!({"metadata": {"namespace": "a", "name": "p", "labels": labels}});
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn pod_finds_its_budgets_until_they_are_removed() {
        let selectors = Selectors::default();
        let key = |name| ObjectKey::namespaced("a", name);
        let web: LabelSelector =
            serde_json::from_value(serde_json::json!({"matchLabels": {"app": "web"}})).expect("a selector");
        selectors.set(&key("web"), Some((&web).try_into().expect("a selector")));
        selectors.set(&key("all"), Some(Selector::default()));
        let mut found = selectors.budgets_of(&pod(&serde_json::json!({"app": "web"})));
        found.sort();
        assert_eq!(found, [key("all"), key("web")]);
        assert_eq!(selectors.budgets_of(&pod(&serde_json::json!(null))), [key("all")]);
        for name in ["all", "web"] {
            selectors.set(&key(name), None);
        }
        assert!(selectors.0.read().expect("not poisoned").is_empty());
    }

    #[test]
    fn selectors_print_like_go() {
        let selector = serde_json::from_value(serde_json::json!({
            "matchLabels": {"app": "b"},
            "matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["y", "z"]}],
        }));
        assert_eq!(
            format_like_go(&selector.expect("a selector")),
            "&LabelSelector{MatchLabels:map[string]string{app: b,},MatchExpressions:[]LabelSelectorRequirement{\
             LabelSelectorRequirement{Key:x,Operator:NotIn,Values:[y z],},},}"
        );
    }
}

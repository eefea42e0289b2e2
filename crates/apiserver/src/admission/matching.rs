//! Which requests a policy, a binding or a webhook applies to: rules, excluded rules, and selectors.
//!
//! Rules are compared first: they are texts, and nearly all of them do not match. Only for those that do, namespaces and
//! labels are read.

use std::sync::Arc;

use serde_json::Value;
use windlass_api::labels;

use super::request::{Attributes, Operation};
use crate::{
    object_store::ObjectStore,
    registry::Resource,
    storage::{Entry, Key},
};

/// The parsed `matchConstraints` of a policy, or `matchResources` of a binding.
#[derive(Debug, Default)]
pub(crate) struct MatchResources {
    rules: Vec<Rule>,
    /// Whether a request must match a rule; otherwise, no rules mean everything, as in a binding.
    needs_rule: bool,
    excluded: Vec<Rule>,
    namespace_selector: labels::Selector,
    object_selector: labels::Selector,
    /// Whether other versions of the resource match too.
    equivalent: bool,
}

/// Operations on some resources.
#[derive(Debug)]
struct Rule {
    operations: Box<[Box<str>]>,
    groups: Box<[Box<str>]>,
    versions: Box<[Box<str>]>,
    /// Resources and subresources.
    resources: Box<[(Box<str>, Box<str>)]>,
    scope: Scope,
    /// Empty means all.
    names: Box<[Box<str>]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Cluster,
    Namespaced,
}

impl MatchResources {
    /// Parses valid `matchConstraints` or `matchResources`.
    pub(crate) fn parse(value: &Value) -> Self {
        let rules = |key: &str| {
            let rules = value[key].as_array().into_iter().flatten();
            rules.map(Rule::parse).collect()
        };
        Self {
            rules: rules("resourceRules"),
            needs_rule: false,
            excluded: rules("excludeResourceRules"),
            namespace_selector: labels::Selector::from_json(&value["namespaceSelector"]),
            object_selector: labels::Selector::from_json(&value["objectSelector"]),
            equivalent: value["matchPolicy"] != "Exact",
        }
    }

    /// Parses what a webhook matches.
    pub(crate) fn of_webhook(webhook: &Value) -> Self {
        let rules = webhook["rules"].as_array().into_iter().flatten();
        Self {
            rules: rules.map(Rule::parse).collect(),
            needs_rule: true,
            ..Self::parse(webhook)
        }
    }

    /// The resource as which a request matches the rules, which may be another version of it. `None` if no rule matches
    /// or one excludes it.
    pub(crate) fn match_rules<'a>(
        &self,
        store: &ObjectStore,
        attributes: &'a Attributes<'_>,
    ) -> Option<&'a Arc<Resource>> {
        if self.match_any(&self.excluded, store, attributes).is_some() {
            return None;
        }
        if self.rules.is_empty() && !self.needs_rule {
            return Some(attributes.resource);
        }
        self.match_any(&self.rules, store, attributes)
    }

    /// Whether a request for this resource may match a rule: one in any version, by anyone, about any object.
    pub(crate) fn may_match(&self, resource: &Resource, subresource: &str) -> bool {
        (self.rules.is_empty() && !self.needs_rule)
            || self.rules.iter().any(|rule| rule.is_about(resource, subresource))
    }

    fn match_any<'a>(
        &self,
        rules: &[Rule],
        store: &ObjectStore,
        attributes: &'a Attributes<'_>,
    ) -> Option<&'a Arc<Resource>> {
        if rules.is_empty() {
            return None;
        }
        if rules
            .iter()
            .any(|rule| rule.matches(attributes, attributes.resource))
        {
            return Some(attributes.resource);
        }
        if !self.equivalent {
            return None;
        }
        // Earlier rules come first.
        let others = attributes.other_versions(store);
        let mut found = rules
            .iter()
            .filter_map(|rule| others.iter().find(|other| rule.matches(attributes, other)));
        found.next()
    }

    /// Whether the namespace's and the object's labels match, or why that is unknown.
    pub(crate) fn match_labels(
        &self,
        store: &ObjectStore,
        attributes: &Attributes<'_>,
        objects: [Option<&Value>; 2],
    ) -> Result<bool, String> {
        Ok(self.match_object(objects) && self.match_namespace(store, attributes, objects)?)
    }

    fn match_object(&self, objects: [Option<&Value>; 2]) -> bool {
        let selector = &self.object_selector;
        let is_match = |object: &Value| selector.matches(|key| label(object, key));
        selector.is_empty() || objects.into_iter().flatten().any(is_match)
    }

    fn match_namespace(
        &self,
        store: &ObjectStore,
        attributes: &Attributes<'_>,
        [object, _]: [Option<&Value>; 2],
    ) -> Result<bool, String> {
        let selector = &self.namespace_selector;
        if selector.is_empty() || (attributes.namespace.is_empty() && !attributes.is_namespace()) {
            return Ok(true);
        }
        let is_write = attributes.operation != Operation::Delete;
        if attributes.is_namespace() && attributes.subresource.is_empty() && is_write {
            return Ok(selector.matches(|key| label(object?, key)));
        }
        let Some(namespace) = namespace(store, attributes.namespace) else {
            return Err(format!("namespaces {:?} not found", attributes.namespace));
        };
        let labels = namespace.object.labels();
        Ok(selector.matches(|key| {
            let place = labels.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
            Some(&*labels[place].1)
        }))
    }
}

fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

/// The namespace with a name.
pub(crate) fn namespace(store: &ObjectStore, name: &str) -> Option<Arc<Entry>> {
    store.builtin_entry(("", "namespaces"), &Key::new("", name))
}

/// Whether a text is among these, or all are.
fn is_in(texts: &[Box<str>], text: &str) -> bool {
    texts.iter().any(|one| **one == *"*" || **one == *text)
}

impl Rule {
    fn parse(rule: &Value) -> Self {
        let texts = |key: &str| -> Box<[Box<str>]> {
            let texts = rule[key].as_array().into_iter().flatten();
            texts.filter_map(Value::as_str).map(Box::from).collect()
        };
        let resources = texts("resources");
        Self {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: resources
                .iter()
                .map(|text| {
                    let (resource, subresource) = text.split_once('/').unwrap_or((text, ""));
                    (resource.into(), subresource.into())
                })
                .collect(),
            scope: match rule["scope"].as_str() {
                Some("Cluster") => Scope::Cluster,
                Some("Namespaced") => Scope::Namespaced,
                _ => Scope::All,
            },
            names: texts("resourceNames"),
        }
    }

    /// Whether the group and the resource are those of the rule.
    fn is_about(&self, resource: &Resource, subresource: &str) -> bool {
        let is_resource = |(plural, part): &(Box<str>, Box<str>)| {
            (**plural == *"*" || *plural == resource.plural) && (**part == *"*" || **part == *subresource)
        };
        is_in(&self.groups, &resource.group) && self.resources.iter().any(is_resource)
    }

    fn matches(&self, attributes: &Attributes<'_>, resource: &Resource) -> bool {
        let in_cluster = attributes.is_namespace() || attributes.namespace.is_empty();
        let in_scope = match self.scope {
            Scope::All => true,
            Scope::Cluster => in_cluster,
            Scope::Namespaced => !in_cluster,
        };
        in_scope
            && is_in(&self.operations, attributes.operation.name())
            && is_in(&self.versions, &resource.version)
            && self.is_about(resource, attributes.subresource)
            && (self.names.is_empty() || self.names.iter().any(|name| **name == *attributes.name))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::Registry;

    #[test]
    fn constraints_may_match_only_resources_of_their_rules() {
        let catalogue = Registry::new().catalogue();
        let resource = |group: &str, plural: &str| catalogue.find(group, "v1", plural).expect("built in");
        let rule = |groups: &[&str], resources: &[&str]| {
            let rule = json!({"apiGroups": groups, "apiVersions": ["v9"], "operations": ["CREATE"], "resources": resources});
            MatchResources::of_webhook(&json!({"rules": [rule]}))
        };
        for (groups, resources, may_match) in [
            (vec![""], vec!["configmaps"], true),
            (vec!["*"], vec!["*"], true),
            (vec!["*"], vec!["secrets", "configmaps"], true),
            (vec!["apps"], vec!["*"], false),
            (vec![""], vec!["secrets"], false),
            (vec![""], vec!["configmaps/status"], false),
        ] {
            let constraints = rule(&groups, &resources);
            let found = constraints.may_match(resource("", "configmaps"), "");
            assert_eq!(found, may_match, "{groups:?} {resources:?}");
        }
        let status = rule(&["apps"], &["deployments/*"]);
        assert!(status.may_match(resource("apps", "deployments"), "status"));
        // A policy without rules sees everything, a webhook without rules nothing.
        assert!(MatchResources::parse(&json!({})).may_match(resource("", "configmaps"), ""));
        assert!(!MatchResources::of_webhook(&json!({})).may_match(resource("", "configmaps"), ""));
    }
}

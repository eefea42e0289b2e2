//! RBAC rules: what they allow, and what one set of rules allows beyond another.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::{Access, AccessTarget};

/// RBAC's `PolicyRule`: allows every verb on every resource or path in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Rule {
    /// `*` stands for all.
    #[serde(deserialize_with = "or_empty")]
    pub verbs: Vec<String>,
    /// An empty string is the core group, `*` stands for all.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// `pods`, `pods/log`, `*/scale`, `*`.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Only objects with these names. Empty: all.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths; a `*` at the end matches any suffix.
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "or_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub non_resource_urls: Vec<String>,
}

fn or_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

const WILDCARD: &str = "*";

impl Rule {
    /// Creates a rule for these verbs on these resources of these groups.
    pub fn for_resources<T: Into<String>>(
        verbs: impl IntoIterator<Item = T>,
        groups: impl IntoIterator<Item = T>,
        resources: impl IntoIterator<Item = T>,
    ) -> Self {
        let texts = |items: &mut dyn Iterator<Item = T>| items.map(Into::into).collect();
        Self {
            verbs: texts(&mut verbs.into_iter()),
            api_groups: texts(&mut groups.into_iter()),
            resources: texts(&mut resources.into_iter()),
            ..Self::default()
        }
    }

    /// Creates a rule for these verbs on these paths.
    pub fn for_paths<T: Into<String>>(
        verbs: impl IntoIterator<Item = T>,
        paths: impl IntoIterator<Item = T>,
    ) -> Self {
        Self {
            verbs: verbs.into_iter().map(Into::into).collect(),
            non_resource_urls: paths.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// Returns whether the rule allows an access. Ignores the namespace, which the binding decides.
    pub fn allows(&self, access: &Access) -> bool {
        if !has(&self.verbs, &access.verb) && !has(&self.verbs, WILDCARD) {
            return false;
        }
        match &access.target {
            AccessTarget::Path(path) => self.non_resource_urls.iter().any(|url| path_matches(url, path)),
            AccessTarget::Resource {
                group,
                resource,
                subresource,
                name,
                ..
            } => {
                (has(&self.api_groups, WILDCARD) || has(&self.api_groups, group))
                    && self
                        .resources
                        .iter()
                        .any(|rule| resource_matches(rule, resource, subresource))
                    && (self.resource_names.is_empty() || has(&self.resource_names, name))
            }
        }
    }

    /// Returns the rule as subrules with one verb on one resource, or one verb on one path (Kubernetes'
    /// `BreakdownRule`).
    pub fn breakdown(&self) -> Vec<Self> {
        let mut atoms = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let atom = Self::for_resources([verb], [group], [resource]);
                    if self.resource_names.is_empty() {
                        atoms.push(atom);
                        continue;
                    }
                    for name in &self.resource_names {
                        let resource_names = vec![name.clone()];
                        atoms.push(Self {
                            resource_names,
                            ..atom.clone()
                        });
                    }
                }
            }
        }
        for url in &self.non_resource_urls {
            atoms.extend(self.verbs.iter().map(|verb| Self::for_paths([verb], [url])));
        }
        atoms
    }

    /// Returns whether this rule allows everything that a subrule allows.
    fn covers(&self, subrule: &Self) -> bool {
        let all = |own: &[String], other: &[String]| other.iter().all(|one| has(own, one));
        let names = self.resource_names.is_empty()
            || !subrule.resource_names.is_empty() && all(&self.resource_names, &subrule.resource_names);
        names
            && (has(&self.verbs, WILDCARD) || all(&self.verbs, &subrule.verbs))
            && (has(&self.api_groups, WILDCARD) || all(&self.api_groups, &subrule.api_groups))
            && (has(&self.resources, WILDCARD)
                || subrule.resources.iter().all(|one| self.covers_resource(one)))
            && subrule
                .non_resource_urls
                .iter()
                .all(|url| self.non_resource_urls.iter().any(|own| path_matches(own, url)))
    }

    fn covers_resource(&self, resource: &str) -> bool {
        has(&self.resources, resource)
            || resource.split_once('/').is_some_and(|(_, part)| {
                self.resources
                    .iter()
                    .any(|own| own.strip_prefix("*/") == Some(part))
            })
    }

    /// Returns the form that API server errors contain, with Go's quoted lists (Kubernetes' `CompactString`).
    pub fn compact_string(&self) -> String {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let shown: Vec<_> = parts
            .into_iter()
            .filter(|(_, values)| !values.is_empty())
            .map(|(name, values)| {
                let quoted: Vec<_> = values.iter().map(|value| format!("{value:?}")).collect();
                format!("{name}:[{}]", quoted.join(" "))
            })
            .collect();
        format!("{{{}}}", shown.join(", "))
    }
}

fn has(list: &[String], one: &str) -> bool {
    list.iter().any(|item| item == one)
}

fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    match rule.split_once('/') {
        _ if rule == WILDCARD => true,
        None => subresource.is_empty() && rule == resource,
        Some((WILDCARD, part)) if !subresource.is_empty() => part == subresource,
        // The resource of an access review may contain slashes.
        Some(_) => match rule
            .strip_prefix(resource)
            .and_then(|rest| rest.strip_prefix('/'))
        {
            Some(part) => !subresource.is_empty() && part == subresource,
            None => subresource.is_empty() && rule == resource,
        },
    }
}

fn path_matches(rule: &str, path: &str) -> bool {
    rule == path || rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*'))
}

/// Returns what `wanted` allows and `held` does not, as [subrules](Rule::breakdown). It enumerates all combinations, so
/// use it only for trusted rules; for others there is [`MissingRules::find`](crate::MissingRules::find).
pub fn missing(held: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    wanted
        .iter()
        .flat_map(Rule::breakdown)
        .filter(|atom| !held.iter().any(|rule| rule.covers(atom)))
        .collect()
}

/// Joins subrules that differ only in their verbs.
pub fn compact_rules(subrules: Vec<Rule>) -> Vec<Rule> {
    let mut joined: BTreeMap<Rule, Vec<String>> = BTreeMap::new();
    let mut rules = Vec::new();
    for mut atom in subrules {
        if !atom.non_resource_urls.is_empty() {
            rules.push(atom);
            continue;
        }
        let verbs = std::mem::take(&mut atom.verbs);
        joined.entry(atom).or_default().extend(verbs);
    }
    rules.extend(joined.into_iter().map(|(rule, verbs)| Rule { verbs, ..rule }));
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(verb: &str, group: &str, resource: &str) -> Access {
        let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
        Access::resource(verb, group, resource).with_subresource(part)
    }

    #[test]
    fn rule_allows_its_verbs_resources_names_and_paths() {
        let pods = Rule::for_resources(["get"], [""], ["pods"]);
        let logs = Rule::for_resources(["get"], [""], ["pods/log"]);
        let scales = Rule::for_resources(["*"], ["*"], ["*/scale"]);
        let all = Rule::for_resources(["*"], ["*"], ["*"]);
        let one = Rule {
            resource_names: vec!["a".to_owned()],
            ..pods.clone()
        };
        let cases = [
            (&pods, resource("get", "", "pods"), true),
            (&pods, resource("get", "", "pods").with_name("x"), true),
            (&pods, resource("list", "", "pods"), false),
            (&pods, resource("get", "apps", "pods"), false),
            (&pods, resource("get", "", "pods/log"), false),
            (&logs, resource("get", "", "pods/log"), true),
            (&logs, resource("get", "", "pods"), false),
            (&scales, resource("update", "apps", "deployments/scale"), true),
            (&scales, resource("update", "apps", "deployments"), false),
            (&scales, resource("update", "apps", "deployments/status"), false),
            (&all, resource("x", "y", "z/w"), true),
            (&all, Access::path("get", "/healthz"), false),
            (&one, resource("get", "", "pods").with_name("a"), true),
            (&one, resource("get", "", "pods"), false),
            (&one, resource("get", "", "pods").with_name("b"), false),
        ];
        for (rule, access, allowed) in cases {
            assert_eq!(
                rule.allows(&access),
                allowed,
                "{access} by {}",
                rule.compact_string()
            );
        }
        let paths = Rule::for_paths(["get"], ["/healthz", "/apis/*"]);
        for (path, allowed) in [
            ("/healthz", true),
            ("/healthz/x", false),
            ("/apis/a/b", true),
            ("/apis", false),
        ] {
            assert_eq!(paths.allows(&Access::path("get", path)), allowed, "{path}");
        }
    }

    #[test]
    fn missing_rules_are_compacted_by_verb() {
        let held = [
            Rule::for_resources(["get", "list"], [""], ["pods"]),
            Rule::for_resources(["*"], [""], ["*/log"]),
        ];
        let wanted = [
            Rule::for_resources(["get", "delete", "watch"], [""], ["pods", "pods/log"]),
            Rule::for_paths(["get"], ["/metrics"]),
        ];
        let shown: Vec<_> = compact_rules(missing(&held, &wanted))
            .iter()
            .map(Rule::compact_string)
            .collect();
        assert_eq!(
            shown,
            [
                r#"{NonResourceURLs:["/metrics"], Verbs:["get"]}"#,
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["delete" "watch"]}"#,
            ]
        );
    }

    #[test]
    fn rule_round_trips_as_policy_rule_json() {
        let json = r#"{"verbs":["get"],"nonResourceURLs":["/x"]}"#;
        let rule: Rule = serde_json::from_str(json).expect("a rule");
        assert_eq!(rule, Rule::for_paths(["get"], ["/x"]));
        assert_eq!(serde_json::to_string(&rule).expect("JSON"), json);
        let nulls: Rule = serde_json::from_str(r#"{"verbs":null,"resources":null}"#).expect("a rule");
        assert_eq!(nulls, Rule::default());
    }
}

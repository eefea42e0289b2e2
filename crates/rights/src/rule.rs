//! What RBAC grants: rules, what they allow, and what one set of them has beyond another.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::access::{Access, Object};

/// RBAC's `PolicyRule`: every verb on every resource (or path) in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Rule {
    /// `*` is all.
    #[serde(deserialize_with = "or_empty")]
    pub verbs: Vec<String>,
    /// Empty text is the core group, `*` is all.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// `pods`, `pods/log`, `*/scale`, `*`.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Only objects of these names. Empty means all.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths; a `*` at the end stands for any rest.
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

const ALL: &str = "*";

impl Rule {
    /// These verbs on these resources of these groups.
    pub fn on<T: Into<String>>(
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

    /// These verbs on these paths.
    pub fn on_paths<T: Into<String>>(
        verbs: impl IntoIterator<Item = T>,
        paths: impl IntoIterator<Item = T>,
    ) -> Self {
        Self {
            verbs: verbs.into_iter().map(Into::into).collect(),
            non_resource_urls: paths.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// Whether the rule allows something, in whatever place it is bound for.
    pub fn allows(&self, access: &Access) -> bool {
        if !has(&self.verbs, &access.verb) && !has(&self.verbs, ALL) {
            return false;
        }
        match &access.object {
            Object::Path(path) => self.non_resource_urls.iter().any(|url| url_covers(url, path)),
            Object::Resource {
                group,
                resource,
                subresource,
                name,
                ..
            } => {
                (has(&self.api_groups, ALL) || has(&self.api_groups, group))
                    && self
                        .resources
                        .iter()
                        .any(|rule| names_resource(rule, resource, subresource))
                    && (self.resource_names.is_empty() || has(&self.resource_names, name))
            }
        }
    }

    /// The rule as rules of one verb on one resource, or of one verb on one path.
    pub fn atoms(&self) -> Vec<Self> {
        let mut atoms = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let atom = Self::on([verb], [group], [resource]);
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
            atoms.extend(self.verbs.iter().map(|verb| Self::on_paths([verb], [url])));
        }
        atoms
    }

    /// Whether all that an atom allows is allowed by this rule.
    fn covers(&self, atom: &Self) -> bool {
        let all = |own: &[String], other: &[String]| other.iter().all(|one| has(own, one));
        let names = self.resource_names.is_empty()
            || !atom.resource_names.is_empty() && all(&self.resource_names, &atom.resource_names);
        names
            && (has(&self.verbs, ALL) || all(&self.verbs, &atom.verbs))
            && (has(&self.api_groups, ALL) || all(&self.api_groups, &atom.api_groups))
            && (has(&self.resources, ALL) || atom.resources.iter().all(|one| self.covers_resource(one)))
            && atom
                .non_resource_urls
                .iter()
                .all(|url| self.non_resource_urls.iter().any(|own| url_covers(own, url)))
    }

    fn covers_resource(&self, resource: &str) -> bool {
        has(&self.resources, resource)
            || resource.split_once('/').is_some_and(|(_, part)| {
                self.resources
                    .iter()
                    .any(|own| own.strip_prefix("*/") == Some(part))
            })
    }

    /// As refusals show it, in Go's form of quoted lists.
    pub fn shown(&self) -> String {
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

fn names_resource(rule: &str, resource: &str, subresource: &str) -> bool {
    match rule.split_once('/') {
        _ if rule == ALL => true,
        None => subresource.is_empty() && rule == resource,
        Some((ALL, part)) if !subresource.is_empty() => part == subresource,
        // What a review asks for may have slashes of its own.
        Some(_) => match rule
            .strip_prefix(resource)
            .and_then(|rest| rest.strip_prefix('/'))
        {
            Some(part) => !subresource.is_empty() && part == subresource,
            None => subresource.is_empty() && rule == resource,
        },
    }
}

fn url_covers(rule: &str, path: &str) -> bool {
    rule == path || rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*'))
}

/// What `wanted` allows and `held` does not, as [atoms](Rule::atoms). It multiplies rules out, which is for those that one
/// wrote oneself; for others there is [`Missing::find`](crate::Missing::find).
pub fn missing(held: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    wanted
        .iter()
        .flat_map(Rule::atoms)
        .filter(|atom| !held.iter().any(|rule| rule.covers(atom)))
        .collect()
}

/// Joins atoms that differ only in their verbs.
pub fn compact(atoms: Vec<Rule>) -> Vec<Rule> {
    let mut joined: BTreeMap<Rule, Vec<String>> = BTreeMap::new();
    let mut rules = Vec::new();
    for mut atom in atoms {
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
        Access::resource(verb, group, resource).part(part)
    }

    #[test]
    fn rules_allow_what_they_name() {
        let pods = Rule::on(["get"], [""], ["pods"]);
        let logs = Rule::on(["get"], [""], ["pods/log"]);
        let scales = Rule::on(["*"], ["*"], ["*/scale"]);
        let all = Rule::on(["*"], ["*"], ["*"]);
        let one = Rule {
            resource_names: vec!["a".to_owned()],
            ..pods.clone()
        };
        let cases = [
            (&pods, resource("get", "", "pods"), true),
            (&pods, resource("get", "", "pods").named("x"), true),
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
            (&one, resource("get", "", "pods").named("a"), true),
            (&one, resource("get", "", "pods"), false),
            (&one, resource("get", "", "pods").named("b"), false),
        ];
        for (rule, access, allowed) in cases {
            assert_eq!(rule.allows(&access), allowed, "{access} by {}", rule.shown());
        }
        let paths = Rule::on_paths(["get"], ["/healthz", "/apis/*"]);
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
    fn what_is_missing_is_shown_with_its_verbs_together() {
        let held = [
            Rule::on(["get", "list"], [""], ["pods"]),
            Rule::on(["*"], [""], ["*/log"]),
        ];
        let wanted = [
            Rule::on(["get", "delete", "watch"], [""], ["pods", "pods/log"]),
            Rule::on_paths(["get"], ["/metrics"]),
        ];
        let shown: Vec<_> = compact(missing(&held, &wanted)).iter().map(Rule::shown).collect();
        assert_eq!(
            shown,
            [
                r#"{NonResourceURLs:["/metrics"], Verbs:["get"]}"#,
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["delete" "watch"]}"#,
            ]
        );
    }

    #[test]
    fn a_rule_reads_and_writes_as_a_policy_rule() {
        let json = r#"{"verbs":["get"],"nonResourceURLs":["/x"]}"#;
        let rule: Rule = serde_json::from_str(json).expect("a rule");
        assert_eq!(rule, Rule::on_paths(["get"], ["/x"]));
        assert_eq!(serde_json::to_string(&rule).expect("JSON"), json);
        let nulls: Rule = serde_json::from_str(r#"{"verbs":null,"resources":null}"#).expect("a rule");
        assert_eq!(nulls, Rule::default());
    }
}

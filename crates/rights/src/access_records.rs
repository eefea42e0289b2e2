//! Recorded accesses, and what follows from them: the minimal rights of a program, and its unused rights.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    Access, AccessTarget,
    rule::{Rule, compact_rules},
};

/// The recorded requests of one user with the same verb, resource and namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRecord {
    /// The user.
    pub user: String,
    /// The access, without a name.
    pub access: Access,
    /// The names of the requested objects.
    pub names: Names,
    /// The number of requests.
    pub count: u64,
    /// The number of responses with status 403.
    pub forbidden: u64,
}

/// The names of requested objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// Exactly these. A request on a collection is recorded as an empty name.
    Few(BTreeSet<String>),
    /// More than [`Names::LIMIT`].
    Many,
}

impl Names {
    /// Upper bound of distinct names in one record.
    pub const LIMIT: usize = 256;

    pub(crate) fn add(&mut self, name: &str) {
        if let Self::Few(names) = self {
            if !names.contains(name) {
                names.insert(name.to_owned());
            }
            if names.len() > Self::LIMIT {
                *self = Self::Many;
            }
        }
    }
}

/// The records of a [`Recorder`](crate::Recorder) at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRecords {
    /// Ordered by user, verb and target.
    pub records: Vec<AccessRecord>,
    /// The number of requests beyond the recorder's limit. If it is not 0, all results are incomplete.
    pub unrecorded: u64,
}

/// The minimal rights that allow every recorded access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// For a `ClusterRole`: cluster-scoped objects, requests across all namespaces, and paths.
    pub cluster: Vec<Rule>,
    /// For a `Role` in each namespace. Does not repeat what [`Rights::cluster`] allows.
    pub namespaces: BTreeMap<String, Vec<Rule>>,
}

impl AccessRecords {
    /// Returns the records of one user.
    #[must_use]
    pub fn for_user(&self, user: &str) -> Self {
        Self {
            records: self
                .records
                .iter()
                .filter(|one| one.user == user)
                .cloned()
                .collect(),
            unrecorded: self.unrecorded,
        }
    }

    /// Returns the minimal rights for all records, for objects of any name. They contain `list` wherever they contain
    /// `watch`: a client that follows a kind lists it when its watch has expired, or when the server cannot stream the
    /// initial state, which a recorded run need not show.
    pub fn rights(&self) -> Rights {
        self.derive(|_| Vec::new())
    }

    /// Like [`rights`](Self::rights), but limited to the requested names. Applies only to records whose requests all
    /// named an object: RBAC cannot limit a create or a list that way.
    pub fn rights_by_name(&self) -> Rights {
        self.derive(|one| match &one.names {
            Names::Few(names) if !names.contains("") => names.iter().cloned().collect(),
            _ => Vec::new(),
        })
    }

    fn derive(&self, names: impl Fn(&AccessRecord) -> Vec<String>) -> Rights {
        let mut by_namespace: BTreeMap<&str, Vec<Rule>> = BTreeMap::new();
        for one in &self.records {
            let atoms = by_namespace.entry(one.access.namespace()).or_default();
            atoms.extend(one.needed().map(|needed| needed.subrule(names(one))));
        }
        let cluster = by_namespace.remove("").map(join_subrules).unwrap_or_default();
        let namespaces = by_namespace
            .into_iter()
            .map(|(namespace, atoms)| {
                (
                    namespace.to_owned(),
                    join_subrules(crate::missing(&cluster, &atoms)),
                )
            })
            .filter(|(_, rules)| !rules.is_empty())
            .collect();
        Rights { cluster, namespaces }
    }

    /// Returns the unused rights of these rules, by verb and resource. A wildcard counts as used if anything that it
    /// matches was used; [`rights`](Self::rights) has the rules to replace it. A `list` counts as used by a `watch`.
    ///
    /// The rules count as bound for the whole cluster; for a Role, apply [`in_namespace`](Self::in_namespace) first.
    pub fn unused(&self, granted: &[Rule]) -> Vec<Rule> {
        let used = |atom: &Rule| {
            let needed = self.records.iter().flat_map(AccessRecord::needed);
            let mut accesses = needed.flat_map(|one| one.accesses());
            accesses.any(|access| atom.allows(&access))
        };
        let atoms = granted.iter().flat_map(Rule::breakdown);
        join_subrules(atoms.filter(|atom| !used(atom)).collect())
    }

    /// Returns the records of one namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Self {
        let here = |one: &&AccessRecord| one.access.namespace() == namespace;
        Self {
            records: self.records.iter().filter(here).cloned().collect(),
            unrecorded: self.unrecorded,
        }
    }
}

impl AccessRecord {
    /// Returns the record, and for a watch also the list that may precede it.
    fn needed(&self) -> impl Iterator<Item = Cow<'_, Self>> {
        let list = (self.access.verb == "watch").then(|| Self {
            access: Access {
                verb: "list".to_owned(),
                ..self.access.clone()
            },
            ..self.clone()
        });
        std::iter::once(Cow::Borrowed(self)).chain(list.map(Cow::Owned))
    }

    /// Returns the access once for each name.
    fn accesses(&self) -> Vec<Access> {
        match &self.names {
            Names::Few(names) => names
                .iter()
                .map(|name| self.access.clone().with_name(name))
                .collect(),
            Names::Many => vec![self.access.clone()],
        }
    }

    fn subrule(&self, resource_names: Vec<String>) -> Rule {
        let verb = self.access.verb.as_str();
        match &self.access.target {
            AccessTarget::Path(path) => Rule::for_paths([verb], [path.as_str()]),
            AccessTarget::Resource {
                group,
                resource,
                subresource,
                ..
            } => {
                let resource = match subresource.as_str() {
                    "" => resource.clone(),
                    part => format!("{resource}/{part}"),
                };
                Rule {
                    resource_names,
                    ..Rule::for_resources([verb], [group.as_str()], [resource.as_str()])
                }
            }
        }
    }
}

/// Joins subrules into few rules: first the verbs of each resource, then the resources of a group with the same verbs.
fn join_subrules(subrules: Vec<Rule>) -> Vec<Rule> {
    let (paths, resources): (Vec<_>, Vec<_>) = subrules
        .into_iter()
        .partition(|atom| !atom.non_resource_urls.is_empty());
    let mut joined: BTreeMap<Rule, BTreeSet<String>> = BTreeMap::new();
    for mut rule in compact_rules(resources) {
        rule.verbs.sort_unstable();
        rule.verbs.dedup();
        let resources = std::mem::take(&mut rule.resources);
        joined.entry(rule).or_default().extend(resources);
    }
    let mut by_verb: BTreeMap<Vec<String>, BTreeSet<String>> = BTreeMap::new();
    for path in paths {
        by_verb
            .entry(path.verbs)
            .or_default()
            .extend(path.non_resource_urls);
    }
    let of_resources = joined.into_iter().map(|(rule, resources)| Rule {
        resources: resources.into_iter().collect(),
        ..rule
    });
    let mut rules: Vec<_> = of_resources.collect();
    rules.sort_unstable_by(|a, b| (&a.api_groups, &a.resources).cmp(&(&b.api_groups, &b.resources)));
    rules.extend(
        by_verb
            .into_iter()
            .map(|(verbs, urls)| Rule::for_paths(verbs, urls)),
    );
    rules
}

//! What was used, and what follows for the rights of a program: what it needs, and what it never needed.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    access::{Access, Object},
    rule::{Rule, compact},
};

/// One kind of request that somebody made, however often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// Who asked.
    pub user: String,
    /// What for; without a name.
    pub access: Access,
    /// The objects that were named.
    pub names: Names,
    /// How often.
    pub count: u64,
    /// How often the answer was 403.
    pub refused: u64,
}

/// The names of objects that requests asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// Exactly these. Requests on collections name none, which shows as an empty name.
    Few(BTreeSet<String>),
    /// More than [`Names::LIMIT`].
    Many,
}

impl Names {
    /// How many different names are remembered of one kind of request.
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

/// What was used: the content of a [`Recorder`](crate::Recorder) at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// In order of user, verb and object.
    pub all: Vec<Use>,
    /// How many requests were of kinds beyond what a recorder remembers. Where it is not 0, nothing below is complete.
    pub forgotten: u64,
}

/// The least rights with which everything that was used would have been allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// For a `ClusterRole`: cluster-scoped objects, requests across all namespaces, and paths.
    pub cluster: Vec<Rule>,
    /// For a `Role` in each namespace. What [`Rights::cluster`] allows is not repeated.
    pub namespaces: BTreeMap<String, Vec<Rule>>,
}

impl Uses {
    /// Those of one user.
    #[must_use]
    pub fn of(&self, user: &str) -> Self {
        Self {
            all: self.all.iter().filter(|one| one.user == user).cloned().collect(),
            forgotten: self.forgotten,
        }
    }

    /// Those that the given rules do not allow: what every user may do anyway, such as discovery, needs no rule.
    #[must_use]
    pub fn beyond(&self, granted: &[Rule]) -> Self {
        let allowed = |one: &Use| {
            one.accesses()
                .iter()
                .all(|access| granted.iter().any(|rule| rule.allows(access)))
        };
        Self {
            all: self.all.iter().filter(|one| !allowed(one)).cloned().collect(),
            forgotten: self.forgotten,
        }
    }

    /// The least rights for all of it, whatever the objects are called.
    pub fn rights(&self) -> Rights {
        self.derive(|_| Vec::new())
    }

    /// The same, limited to the names that were asked for. Only where every request of a kind named an object: a
    /// create or a list cannot be limited so.
    pub fn rights_by_name(&self) -> Rights {
        self.derive(|one| match &one.names {
            Names::Few(names) if !names.contains("") => names.iter().cloned().collect(),
            _ => Vec::new(),
        })
    }

    fn derive(&self, names: impl Fn(&Use) -> Vec<String>) -> Rights {
        let mut places: BTreeMap<&str, Vec<Rule>> = BTreeMap::new();
        for one in &self.all {
            let atom = one.atom(names(one));
            places.entry(one.access.namespace()).or_default().push(atom);
        }
        let cluster = places.remove("").map(join).unwrap_or_default();
        let namespaces = places
            .into_iter()
            .map(|(namespace, atoms)| (namespace.to_owned(), join(crate::missing(&cluster, &atoms))))
            .filter(|(_, rules)| !rules.is_empty())
            .collect();
        Rights { cluster, namespaces }
    }

    /// What the rules grant and nobody used: verb by verb and resource by resource. A wildcard counts as used as soon as
    /// anything that it stands for was; see [`Uses::rights`] for what would do instead.
    ///
    /// The rules are taken as bound for the whole cluster; for a Role, take [`Uses::within`] its namespace first.
    pub fn unused(&self, granted: &[Rule]) -> Vec<Rule> {
        let used = |atom: &Rule| {
            let mut accesses = self.all.iter().flat_map(Use::accesses);
            accesses.any(|access| atom.allows(&access))
        };
        let atoms = granted.iter().flat_map(Rule::atoms);
        join(atoms.filter(|atom| !used(atom)).collect())
    }

    /// Those in one namespace.
    #[must_use]
    pub fn within(&self, namespace: &str) -> Self {
        let here = |one: &&Use| one.access.namespace() == namespace;
        Self {
            all: self.all.iter().filter(here).cloned().collect(),
            forgotten: self.forgotten,
        }
    }
}

impl Use {
    /// What was asked for, with each name.
    fn accesses(&self) -> Vec<Access> {
        match &self.names {
            Names::Few(names) => names.iter().map(|name| self.access.clone().named(name)).collect(),
            Names::Many => vec![self.access.clone()],
        }
    }

    fn atom(&self, resource_names: Vec<String>) -> Rule {
        let verb = self.access.verb.as_str();
        match &self.access.object {
            Object::Path(path) => Rule::on_paths([verb], [path.as_str()]),
            Object::Resource {
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
                    ..Rule::on([verb], [group.as_str()], [resource.as_str()])
                }
            }
        }
    }
}

/// Atoms as few rules: first the verbs of each resource, then the resources of a group with the same verbs.
fn join(atoms: Vec<Rule>) -> Vec<Rule> {
    let (paths, resources): (Vec<_>, Vec<_>) = atoms
        .into_iter()
        .partition(|atom| !atom.non_resource_urls.is_empty());
    let mut joined: BTreeMap<Rule, BTreeSet<String>> = BTreeMap::new();
    for mut rule in compact(resources) {
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
            .map(|(verbs, urls)| Rule::on_paths(verbs, urls)),
    );
    rules
}

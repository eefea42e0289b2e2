//! An index of the policies and bindings in the storage.
//!
//! ```text
//!   storage history ──► PolicyIndex ── rules of the request ──► Hook: a policy, and its bindings
//! ```
//!
//! Before each request the index applies what was written to its two tables since; if nothing is new, that is a look at two
//! counters. So a policy takes effect as soon as its write is answered (a real server takes up to a second). A policy is
//! compiled when a request first matches it, outside of the lock. Requests visit policies in the order of their names,
//! those of a real server in a random one.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, OnceLock},
};

use parking_lot::RwLock;
use serde_json::Value;

use super::{expressions::PolicyPrograms, matching::MatchResources, request::Attributes};
use crate::{
    object_store::ObjectStore,
    registry::Resource,
    storage::{Entry, Storage, TableChanges, TableFollower},
};

/// The two kinds of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyKind {
    Validating,
    Mutating,
}

/// The policies of one kind.
pub(crate) struct PolicyIndex {
    kind: PolicyKind,
    index: RwLock<Index>,
}

struct Index {
    policies_table: TableFollower,
    bindings_table: TableFollower,
    /// How often something was applied.
    changes: u64,
    /// The policies that were written since [`PolicyIndex::catch_up`].
    uncompiled: Vec<Arc<Policy>>,
    policies: HashMap<Arc<str>, Arc<Policy>>,
    /// The policy of each binding.
    bound_policies: HashMap<Arc<str>, Arc<str>>,
    /// The bindings of each policy, which need not exist, by name.
    bindings: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<Binding>>>,
}

/// A policy.
pub(crate) struct Policy {
    pub(crate) name: Arc<str>,
    kind: PolicyKind,
    pub(crate) spec: Value,
    pub(crate) constraints: MatchResources,
    programs: OnceLock<PolicyPrograms>,
}

/// A binding of a policy.
pub(crate) struct Binding {
    pub(crate) name: Arc<str>,
    pub(crate) spec: Value,
    /// `None` matches what the policy matches.
    pub(crate) resources: Option<MatchResources>,
}

/// A policy whose rules match a request, and its bindings.
pub(crate) struct Hook<'a> {
    pub(crate) policy: Arc<Policy>,
    /// The resource as which the request matches.
    pub(crate) matched: &'a Arc<Resource>,
    pub(crate) bindings: Vec<Arc<Binding>>,
}

impl Policy {
    /// What an error means: whether the request is admitted nevertheless.
    pub(crate) fn ignores_failures(&self) -> bool {
        self.spec["failurePolicy"] == "Ignore"
    }

    /// The compiled expressions.
    pub(crate) fn programs(&self) -> &PolicyPrograms {
        self.programs
            .get_or_init(|| PolicyPrograms::compile(&self.spec, self.kind))
    }
}

impl Binding {
    /// Whether a request that the policy matches is one of the binding's, or why that is unknown.
    pub(crate) fn matches(
        &self,
        store: &ObjectStore,
        attributes: &Attributes<'_>,
        objects: [Option<&Value>; 2],
    ) -> Result<bool, String> {
        match &self.resources {
            None => Ok(true),
            Some(resources) if resources.match_rules(store, attributes).is_none() => Ok(false),
            Some(resources) => resources.match_labels(store, attributes, objects),
        }
    }
}

impl PolicyIndex {
    pub(crate) fn new(storage: &dyn Storage, kind: PolicyKind) -> Self {
        let prefix = match kind {
            PolicyKind::Validating => "validating",
            PolicyKind::Mutating => "mutating",
        };
        let follow = |plural: &str| {
            TableFollower::new(storage, &format!("{prefix}{plural}.admissionregistration.k8s.io"))
        };
        Self {
            kind,
            index: RwLock::new(Index {
                policies_table: follow("admissionpolicies"),
                bindings_table: follow("admissionpolicybindings"),
                changes: 0,
                uncompiled: Vec::new(),
                policies: HashMap::new(),
                bound_policies: HashMap::new(),
                bindings: BTreeMap::new(),
            }),
        }
    }

    /// Applies what was written, and compiles the expressions of the policies.
    pub(crate) fn catch_up(&self, store: &ObjectStore) {
        self.is_empty(store);
        // Outside of the lock.
        let uncompiled = std::mem::take(&mut self.index.write().uncompiled);
        for policy in uncompiled {
            policy.programs();
        }
    }

    /// Whether what a bound policy matches is like this.
    pub(crate) fn any_policy(&self, is_like: impl Fn(&MatchResources) -> bool) -> bool {
        let index = self.index.read();
        let mut bound = index.bindings.keys().filter_map(|name| index.policies.get(name));
        bound.any(|policy| is_like(&policy.constraints))
    }

    /// Counts the changes that were applied.
    pub(crate) fn changes(&self) -> u64 {
        self.index.read().changes
    }

    /// The policies with bindings whose rules match a request, ordered by name.
    pub(crate) fn hooks<'a>(&self, store: &ObjectStore, attributes: &'a Attributes<'_>) -> Vec<Hook<'a>> {
        let index = self.index.read();
        if !index.is_behind() {
            return index.hooks(store, attributes);
        }
        drop(index);
        let mut index = self.index.write();
        index.catch_up(&*store.storage, self.kind);
        index.hooks(store, attributes)
    }

    /// Whether there is no bound policy, so that nothing needs to be prepared for one.
    pub(crate) fn is_empty(&self, store: &ObjectStore) -> bool {
        let index = self.index.read();
        if !index.is_behind() {
            return index.bindings.is_empty() || index.policies.is_empty();
        }
        drop(index);
        let mut index = self.index.write();
        index.catch_up(&*store.storage, self.kind);
        index.bindings.is_empty() || index.policies.is_empty()
    }
}

impl Index {
    fn is_behind(&self) -> bool {
        self.policies_table.is_behind() || self.bindings_table.is_behind()
    }

    fn hooks<'a>(&self, store: &ObjectStore, attributes: &'a Attributes<'_>) -> Vec<Hook<'a>> {
        let mut hooks = Vec::new();
        for (name, bindings) in &self.bindings {
            let Some(policy) = self.policies.get(name) else {
                continue;
            };
            if let Some(matched) = policy.constraints.match_rules(store, attributes) {
                hooks.push(Hook {
                    policy: policy.clone(),
                    matched,
                    bindings: bindings.values().cloned().collect(),
                });
            }
        }
        hooks
    }

    fn catch_up(&mut self, storage: &dyn Storage, kind: PolicyKind) {
        self.changes += 1;
        match self.policies_table.catch_up(storage) {
            TableChanges::Events(written) => {
                for (entry, exists) in written {
                    self.set_policy(&entry, exists, kind);
                }
            }
            TableChanges::Relist(entries) => {
                self.policies.clear();
                for entry in entries {
                    self.set_policy(&entry, true, kind);
                }
            }
        }
        match self.bindings_table.catch_up(storage) {
            TableChanges::Events(written) => {
                for (entry, exists) in written {
                    self.set_binding(&entry, exists);
                }
            }
            TableChanges::Relist(entries) => {
                self.bindings.clear();
                self.bound_policies.clear();
                for entry in entries {
                    self.set_binding(&entry, true);
                }
            }
        }
    }

    fn set_policy(&mut self, entry: &Entry, exists: bool, kind: PolicyKind) {
        let name = &entry.key.name;
        self.policies.remove(name);
        if let Some(spec) = spec(entry).filter(|_| exists) {
            let policy = Policy {
                name: name.clone(),
                kind,
                constraints: MatchResources::parse(&spec["matchConstraints"]),
                spec,
                programs: OnceLock::new(),
            };
            let policy = Arc::new(policy);
            self.uncompiled.push(policy.clone());
            self.policies.insert(name.clone(), policy);
        }
    }

    fn set_binding(&mut self, entry: &Entry, exists: bool) {
        let name = &entry.key.name;
        if let Some(policy) = self.bound_policies.remove(name)
            && let Some(bindings) = self.bindings.get_mut(&policy)
        {
            bindings.remove(name);
            if bindings.is_empty() {
                self.bindings.remove(&policy);
            }
        }
        if let Some(spec) = spec(entry).filter(|_| exists) {
            let policy: Arc<str> = spec["policyName"].as_str().unwrap_or_default().into();
            let resources = &spec["matchResources"];
            let binding = Binding {
                name: name.clone(),
                resources: resources.is_object().then(|| MatchResources::parse(resources)),
                spec,
            };
            let bindings = self.bindings.entry(policy.clone()).or_default();
            bindings.insert(name.clone(), Arc::new(binding));
            self.bound_policies.insert(name.clone(), policy);
        }
    }
}

fn spec(entry: &Entry) -> Option<Value> {
    let mut object = entry.object.decode().ok()?;
    object.fields_mut().remove("spec")
}

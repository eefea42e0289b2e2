//! Cluster roles that gather the rules of others: what the controller manager of a real cluster keeps up.

use std::{collections::HashSet, sync::Arc};

use serde_json::{Value, json};
use windlass_rights::Rule;

use super::rules::RoleFacts;
use crate::{
    registry::Resource,
    request::Target,
    storage::{Change, Expect},
    verbs::Api,
};

impl Api {
    /// Acts on a write to a role: those that gather it follow.
    pub(crate) fn after_role(&self, resource: &Resource) {
        if self.guard.policy.is_some() && &*resource.table == "clusterroles.rbac.authorization.k8s.io" {
            self.aggregate();
        }
    }

    /// Brings every gathering role in line with those that it gathers, one after the other, until nothing changes any more.
    ///
    /// Roles can gather gathering ones, so that a change may take as many rounds as there are roles in a chain. Roles that
    /// gather each other in a circle could hand the order of their rules round for ever; they end with the last round, when
    /// each has had what any of them has.
    pub(super) fn aggregate(&self) {
        let Some(policy) = &self.guard.policy else {
            return;
        };
        let _one_at_a_time = self.guard.aggregating.lock();
        let roles = policy.cluster_roles(&*self.storage);
        let gathering = roles.iter().filter(|(_, role)| !role.gathers.is_empty());
        let names: Vec<_> = gathering.map(|(name, _)| name).collect();
        for _round in 0..=names.len() {
            let mut written = false;
            for name in &names {
                let roles = policy.cluster_roles(&*self.storage);
                let Some((_, role)) = roles.iter().find(|(other, _)| other == *name) else {
                    continue;
                };
                let wanted = gathered(name, role, &roles);
                written |= wanted != role.rules && self.write_rules(name, &wanted);
            }
            if !written {
                return;
            }
        }
    }

    /// Whether the rules could be written. A role that is gone by now gathers nothing.
    fn write_rules(&self, name: &str, rules: &[Rule]) -> bool {
        let catalogue = self.registry.catalogue();
        let resource = catalogue.find("rbac.authorization.k8s.io", "v1", "clusterroles");
        let target = Target {
            resource: resource.expect("built in").clone(),
            namespace: "".into(),
            name: name.into(),
            subresource: "".into(),
        };
        loop {
            let Ok(entry) = self.current(&target) else {
                return false;
            };
            let Ok(mut role) = entry.object.decode() else {
                return false;
            };
            let rules = if rules.is_empty() {
                Value::Null
            } else {
                json!(rules)
            };
            role.fields_mut().insert("rules".into(), rules);
            // Whoever came in between wrote; that ends when writers do.
            let committed = self.commit(
                &target.resource,
                &mut role,
                Expect::At(entry.revision),
                Change::Put,
            );
            if committed.is_ok() {
                return true;
            }
        }
    }
}

/// The rules of all roles that a role selects, each once: selector by selector, and in order of the roles' names.
fn gathered(own: &str, role: &RoleFacts, all: &[(Arc<str>, Arc<RoleFacts>)]) -> Vec<Rule> {
    let (mut rules, mut known) = (Vec::new(), HashSet::new());
    for selector in &role.gathers {
        for (name, other) in all {
            if **name == *own || !selector.matches(|key| other.labels.get(key).map(String::as_str)) {
                continue;
            }
            for rule in &other.rules {
                if known.insert(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    rules
}

//! Aggregated cluster roles, which a real cluster's controller manager keeps up to date.

use std::{collections::HashSet, sync::Arc};

use serde_json::{Value, json};
use windlass_rights::Rule;

use super::{AccessControl, role_objects::ParsedRole};
use crate::{
    limits,
    request::Target,
    storage::{Change, Expect},
};

impl AccessControl {
    /// Updates every aggregated role, one after the other, until nothing changes.
    ///
    /// Roles can aggregate aggregated roles, so a change may take as many rounds as there are roles in a chain. Roles
    /// that aggregate each other in a cycle could pass the order of their rules around endlessly, so the number of
    /// rounds is limited; after the last one each role has the rules of all.
    pub(crate) fn update_aggregated_roles(&self) {
        let Some(policy) = &self.policy else {
            return;
        };
        let _one_at_a_time = self.aggregation_lock.lock();
        let roles = policy.cluster_roles(&*self.store.storage);
        let gathering = roles
            .iter()
            .filter(|(_, role)| !role.aggregation_selectors.is_empty());
        let names: Vec<_> = gathering.map(|(name, _)| name).collect();
        for _round in 0..=names.len() {
            let mut written = false;
            for name in &names {
                let roles = policy.cluster_roles(&*self.store.storage);
                let Some((_, role)) = roles.iter().find(|(other, _)| other == *name) else {
                    continue;
                };
                let wanted = aggregated_rules(name, role, &roles);
                written |= wanted != role.rules && self.write_rules(name, &wanted);
            }
            if !written {
                return;
            }
        }
    }

    /// Writes the rules and returns whether the write succeeded. Returns `false` if the role was deleted in the
    /// meantime.
    fn write_rules(&self, name: &str, rules: &[Rule]) -> bool {
        let catalogue = self.store.registry.catalogue();
        let resource = catalogue.find("rbac.authorization.k8s.io", "v1", "clusterroles");
        let target = Target {
            resource: resource.expect("built in").clone(),
            namespace: "".into(),
            name: name.into(),
            subresource: "".into(),
        };
        loop {
            let Ok(entry) = self.store.current(&target) else {
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
            // A role that does not fit stays as it is.
            if limits::check_storable(&target.resource, &role).is_err() {
                return false;
            }
            // Retries on a conflict, which needs another write to have succeeded.
            let committed = self.store.commit(
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

/// The rules of all roles that a role selects, each once: selector by selector, in order of the roles' names.
fn aggregated_rules(own: &str, role: &ParsedRole, all: &[(Arc<str>, Arc<ParsedRole>)]) -> Vec<Rule> {
    let (mut rules, mut known) = (Vec::new(), HashSet::new());
    for selector in &role.aggregation_selectors {
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

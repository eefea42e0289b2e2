//! Prevents privilege escalation: writers of roles and bindings may grant only rules that they hold themselves.

use std::collections::BTreeSet;

use serde_json::Value;
use windlass_api::request::Access;
use windlass_rights::{CoverageLimits, MissingRules, Rule, compact_rules};

use super::{AccessControl, Budget, Caller, policy::aggregate_messages};
use crate::{kinds::Write, object::Object, status::Status};

const GROUP: &str = "rbac.authorization.k8s.io";

impl AccessControl {
    /// The caller whose rights limit a write; `None` if nothing limits it.
    fn limited_caller<'a>(&self, caller: Option<&'a Caller>, write: &Write<'_>) -> Option<&'a Caller> {
        let unlimited = |caller: &Caller| {
            caller.user.is_master()
                || write
                    .old
                    .is_some_and(|old| only_gc_metadata_changed(write.object, old))
        };
        caller.filter(|caller| self.policy.is_some() && !unlimited(caller))
    }

    /// Rejects a role that allows more than its writer holds, unless the writer may `escalate`.
    pub(crate) fn check_role(&self, caller: Option<&Caller>, write: &Write<'_>) -> Result<(), Status> {
        let Some(caller) = self.limited_caller(caller, write) else {
            return Ok(());
        };
        let (resource, role, old) = (write.resource, write.object, write.old);
        let escalate = Access::resource("escalate", GROUP, &resource.plural)
            .with_name(caller.access().name())
            .in_namespace(caller.access().namespace());
        if self.decide(&caller.user, &escalate).is_allowed() {
            return Ok(());
        }
        let refused = |why: &str| Status::forbidden(resource, role.name(), why);
        self.check_holds_rules(caller, &rules(role))
            .map_err(|why| refused(&why))?;
        // An aggregation rule may select any role in the future; removing one would let the writer keep the aggregated
        // rules.
        if has_aggregation_rule(role) || old.is_some_and(has_aggregation_rule) {
            let everything = [
                Rule::for_resources(["*"], ["*"], ["*"]),
                Rule::for_paths(["*"], ["*"]),
            ];
            self.check_holds_rules(caller, &everything)
                .map_err(|_| refused("must have cluster-admin privileges to use the aggregationRule"))?;
        }
        Ok(())
    }

    /// Rejects a binding to a role that allows more than its writer holds, unless the writer may `bind`.
    pub(crate) fn check_binding(&self, caller: Option<&Caller>, write: &Write<'_>) -> Result<(), Status> {
        let Some(caller) = self.limited_caller(caller, write) else {
            return Ok(());
        };
        let (resource, binding) = (write.resource, write.object);
        let text = |key: &str| {
            let role = binding.fields().get("roleRef").unwrap_or(&Value::Null);
            role[key].as_str().unwrap_or_default()
        };
        let (kind, name, namespace) = (text("kind"), text("name"), caller.access().namespace());
        let plural = match kind {
            "ClusterRole" => Some("clusterroles"),
            "Role" => Some("roles"),
            _ => None,
        };
        let bind = |plural| {
            Access::resource("bind", text("apiGroup"), plural)
                .with_name(name)
                .in_namespace(namespace)
        };
        if plural.is_some_and(|plural| self.decide(&caller.user, &bind(plural)).is_allowed()) {
            return Ok(());
        }
        if plural.is_none() {
            return Err(Status::without_reason(format!(
                "unsupported role reference kind: {kind:?}"
            )));
        }
        let policy = self.policy.as_ref().expect("checked by the caller");
        let role = policy
            .role(&*self.store.storage, namespace, kind, name)
            .ok_or_else(|| Status::not_found(resource, name))?;
        self.check_holds_rules(caller, &role.rules)
            .map_err(|why| Status::forbidden(resource, binding.name(), &why))
    }

    /// Checks that the caller holds all of the rules; the error lists the missing ones.
    fn check_holds_rules(&self, caller: &Caller, wanted: &[Rule]) -> Result<(), String> {
        let policy = self.policy.as_ref().expect("checked by the caller");
        let user = &caller.user;
        let (held, unresolved) = policy.rules_of(
            &*self.store.storage,
            user,
            caller.access().namespace(),
            &Budget::unlimited(),
        );
        let lacking = MissingRules::find(&held, wanted, CoverageLimits::default());
        if lacking.is_empty() {
            return Ok(());
        }
        let shown: BTreeSet<_> = compact_rules(lacking.rules)
            .iter()
            .map(Rule::compact_string)
            .collect();
        let mut shown: Vec<_> = shown.into_iter().collect();
        if lacking.truncated {
            shown.push("and more".to_owned());
        }
        let groups: Vec<_> = user.groups.iter().map(|group| format!("{group:?}")).collect();
        let unresolved = match &unresolved[..] {
            [] => String::new(),
            missing => format!("; resolution errors: [{}]", aggregate_messages(missing)),
        };
        Err(format!(
            "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}{unresolved}",
            user.name,
            groups.join(" "),
            shown.join("\n")
        ))
    }
}

fn rules(role: &Object) -> Vec<Rule> {
    let rules = role.fields().get("rules").cloned().unwrap_or_default();
    serde_json::from_value(rules).unwrap_or_default()
}

fn has_aggregation_rule(role: &Object) -> bool {
    let selectors = role
        .fields()
        .get("aggregationRule")
        .map(|rule| &rule["clusterRoleSelectors"]);
    selectors
        .and_then(Value::as_array)
        .is_some_and(|selectors| !selectors.is_empty())
}

/// Whether nothing changed except the metadata that garbage collection touches, and managed fields.
fn only_gc_metadata_changed(object: &Object, old: &Object) -> bool {
    let mut same = object.clone();
    for key in ["ownerReferences", "finalizers", "selfLink", "resourceVersion"] {
        same.keep_meta(key, old);
    }
    same.fields() == old.fields()
}

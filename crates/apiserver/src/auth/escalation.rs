//! Nobody gives away what they do not have: writes to roles and bindings are held against their writer's own rules.

use std::collections::BTreeSet;

use serde_json::Value;
use windlass_rights::{Access, Limits, Missing, Rule, compact};

use super::{Caller, policy::together};
use crate::{object::Object, registry::Resource, status::Status, verbs::Api};

const GROUP: &str = "rbac.authorization.k8s.io";

impl Api {
    /// Refuses a role that allows more than its writer may, and a binding to one, unless the writer may `escalate` or
    /// `bind`.
    pub(crate) fn check_escalation(
        &self,
        resource: &Resource,
        caller: Option<&Caller>,
        object: &Object,
        old: Option<&Object>,
    ) -> Result<(), Status> {
        let (Some(caller), Some(_)) = (caller, &self.guard.policy) else {
            return Ok(());
        };
        if *resource.group != *GROUP
            || caller.user.is_master()
            || old.is_some_and(|old| keeps_all(object, old))
        {
            return Ok(());
        }
        match &*resource.plural {
            "roles" | "clusterroles" => self.check_role(resource, caller, object, old),
            "rolebindings" | "clusterrolebindings" => self.check_binding(resource, caller, object),
            _ => Ok(()),
        }
    }

    fn check_role(
        &self,
        resource: &Resource,
        caller: &Caller,
        role: &Object,
        old: Option<&Object>,
    ) -> Result<(), Status> {
        let escalate = Access::resource("escalate", GROUP, &resource.plural)
            .named(caller.access.name())
            .within(caller.access.namespace());
        if self.decide(&caller.user, &escalate).is_allowed() {
            return Ok(());
        }
        let refused = |why: &str| Status::forbidden(resource, role.name(), why);
        self.holds(caller, &rules(role)).map_err(|why| refused(&why))?;
        // A role that gathers may come to gather anything, and one that gathered keeps others from tightening it.
        if gathers(role) || old.is_some_and(gathers) {
            let everything = [Rule::on(["*"], ["*"], ["*"]), Rule::on_paths(["*"], ["*"])];
            self.holds(caller, &everything)
                .map_err(|_| refused("must have cluster-admin privileges to use the aggregationRule"))?;
        }
        Ok(())
    }

    fn check_binding(&self, resource: &Resource, caller: &Caller, binding: &Object) -> Result<(), Status> {
        let text = |key: &str| {
            let role = binding.fields().get("roleRef").unwrap_or(&Value::Null);
            role[key].as_str().unwrap_or_default()
        };
        let (kind, name, namespace) = (text("kind"), text("name"), caller.access.namespace());
        let plural = match kind {
            "ClusterRole" => Some("clusterroles"),
            "Role" => Some("roles"),
            _ => None,
        };
        let bind = |plural| {
            Access::resource("bind", text("apiGroup"), plural)
                .named(name)
                .within(namespace)
        };
        if plural.is_some_and(|plural| self.decide(&caller.user, &bind(plural)).is_allowed()) {
            return Ok(());
        }
        if plural.is_none() {
            return Err(Status::unexplained(format!(
                "unsupported role reference kind: {kind:?}"
            )));
        }
        let policy = self.guard.policy.as_ref().expect("looked at before");
        let role = policy
            .role(&*self.storage, namespace, kind, name)
            .ok_or_else(|| Status::not_found(resource, name))?;
        self.holds(caller, &role.rules)
            .map_err(|why| Status::forbidden(resource, binding.name(), &why))
    }

    /// Whether the caller has all that the rules allow; the refusal names what is missing.
    fn holds(&self, caller: &Caller, wanted: &[Rule]) -> Result<(), String> {
        let policy = self.guard.policy.as_ref().expect("looked at before");
        let user = &caller.user;
        let (held, unresolved) = policy.rules_of(&*self.storage, user, caller.access.namespace());
        let lacking = Missing::find(&held, wanted, Limits::default());
        if lacking.is_nothing() {
            return Ok(());
        }
        let shown: BTreeSet<_> = compact(lacking.rights).iter().map(Rule::shown).collect();
        let mut shown: Vec<_> = shown.into_iter().collect();
        if lacking.more {
            shown.push("and more".to_owned());
        }
        let groups: Vec<_> = user.groups.iter().map(|group| format!("{group:?}")).collect();
        let unresolved = match &unresolved[..] {
            [] => String::new(),
            missing => format!("; resolution errors: [{}]", together(missing)),
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

fn gathers(role: &Object) -> bool {
    let selectors = role
        .fields()
        .get("aggregationRule")
        .map(|rule| &rule["clusterRoleSelectors"]);
    selectors
        .and_then(Value::as_array)
        .is_some_and(|selectors| !selectors.is_empty())
}

/// Whether nothing changes but what garbage collection touches, and who wrote it.
fn keeps_all(object: &Object, old: &Object) -> bool {
    let mut same = object.clone();
    for key in ["ownerReferences", "finalizers", "selfLink", "resourceVersion"] {
        same.keep_meta(key, old);
    }
    same.fields() == old.fields()
}

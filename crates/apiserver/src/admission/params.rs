//! The parameters of a policy: the objects to which the `paramRef` of a binding refers.

use std::sync::Arc;

use serde_json::Value;
use windlass_api::labels;

use super::{
    evaluation::RequestCost,
    policies::{Binding, Policy},
    request::Attributes,
};
use crate::{
    conversion, crd,
    object::Object,
    object_store::ObjectStore,
    registry::Resource,
    status::Status,
    storage::{Entry, Key},
};

/// The greatest number of parameters of a binding. A real server has no such limit.
const MAX_PARAMS: usize = 1_000;

/// The kind of a policy's parameters.
pub(crate) enum ParamKind {
    /// The policy has none.
    None,
    Known(Arc<Resource>),
}

impl ParamKind {
    /// Finds the resource of a policy's parameters, or returns why there is none.
    pub(crate) fn of(policy: &Policy, store: &ObjectStore) -> Result<Self, String> {
        let kind = &policy.spec["paramKind"];
        if !kind.is_object() {
            return Ok(Self::None);
        }
        let [version, kind] = ["apiVersion", "kind"].map(|key| kind[key].as_str().unwrap_or_default());
        let catalogue = store.registry.catalogue();
        let is_kind =
            |resource: &&Arc<Resource>| *resource.kind == *kind && resource.api_version() == version;
        match catalogue.resources.iter().find(is_kind) {
            Some(resource) => Ok(Self::Known(resource.clone())),
            None => {
                let version = if version.contains('/') {
                    version.to_owned()
                } else {
                    format!("/{version}")
                };
                Err(format!(
                    "failed to find resource referenced by paramKind: '{version}, Kind={kind}'"
                ))
            }
        }
    }

    /// The parameters with which a policy is evaluated for a binding: `None` is an evaluation without any.
    pub(crate) fn collect(
        &self,
        binding: &Binding,
        store: &ObjectStore,
        attributes: &Attributes<'_>,
    ) -> Result<Vec<Option<Param>>, String> {
        let reference = &binding.spec["paramRef"];
        let (Self::Known(resource), true) = (self, reference.is_object()) else {
            return Ok(vec![None]);
        };
        let text = |key: &str| reference[key].as_str().unwrap_or_default();
        let (name, within) = (text("name"), text("namespace"));
        let namespace = match (resource.namespaced, within) {
            (true, "") if attributes.namespace.is_empty() => {
                return Err(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                        .to_owned(),
                );
            }
            (true, "") => attributes.namespace,
            (false, within) if !within.is_empty() => {
                return Err(
                    "paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned(),
                );
            }
            (_, within) => within,
        };
        let entries: Vec<_> = if name.is_empty() {
            let selector = labels::Selector::from_json(&reference["selector"]);
            let is_selected = |entry: &&Arc<Entry>| {
                let labels = entry.object.labels();
                selector.matches(|key| {
                    let place = labels.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
                    Some(&*labels[place].1)
                })
            };
            let within = Some(namespace).filter(|_| resource.namespaced);
            let snapshot = store.storage.snapshot(&resource.table, within, None);
            let snapshot = snapshot.map_err(|_| "the parameters cannot be listed".to_owned())?;
            let all = snapshot.range(within, None);
            // One more, to see that there are more.
            let selected = all.filter(is_selected).take(MAX_PARAMS + 1);
            selected.cloned().collect()
        } else {
            let found = store.storage.get(&resource.table, &Key::new(namespace, name));
            found.into_iter().collect()
        };
        if entries.len() > MAX_PARAMS {
            return Err(format!("paramRef.selector selects more than {MAX_PARAMS} params"));
        }
        if entries.is_empty() && text("parameterNotFoundAction") == "Deny" {
            return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
        }
        let param = |entry| {
            Some(Param {
                entry,
                resource: resource.clone(),
            })
        };
        Ok(entries.into_iter().map(param).collect())
    }
}

/// A parameter, which is decoded only for its evaluation.
pub(crate) struct Param {
    entry: Arc<Entry>,
    resource: Arc<Resource>,
}

impl Param {
    /// Namespace and name, which tell the parameters of a binding apart.
    pub(crate) fn key(&self) -> &Key {
        &self.entry.key
    }

    /// Whether it needs a large stack.
    pub(crate) fn is_deep(&self) -> bool {
        self.entry.object.is_deep()
    }

    /// The object, at the version that the policy names, or why it cannot be read.
    pub(crate) fn decode(&self, cost: &RequestCost) -> Result<Result<Value, String>, Status> {
        if let Err(spent) = cost.spend_on_param(self.entry.object.json().len()) {
            return Ok(Err(spent.to_string()));
        }
        let entry = crd::convert_for_read(&self.resource, self.entry.clone())?;
        let object = conversion::decode_for_read(&entry, &self.resource);
        Ok(object
            .map(Object::into_value)
            .map_err(|status| status.message().to_owned()))
    }
}

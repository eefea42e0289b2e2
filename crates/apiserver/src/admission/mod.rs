//! Admission: what may change or refuse a request after its authorization.
//!
//! ```text
//!   mutating stage     plugins ─► MutatingAdmissionPolicies ─► mutating webhooks        once more if something changed
//!        │
//!   preparation and validation by the verb
//!        │
//!   validating stage   ValidatingAdmissionPolicies ─► validating webhooks
//!        │
//!   commit
//! ```
//!
//! The plugins are those that a real server enables by default, as far as a client can see them; those of one kind are in its
//! file in [`crate::kinds`]:
//!
//! ```text
//!   NamespaceLifecycle ─► ServiceAccount ─► TaintNodesByCondition ─► Priority ─► DefaultTolerationSeconds
//!                     ─► DefaultStorageClass, StorageObjectInUseProtection ─► RuntimeClass ─► DefaultIngressClass
//! ```
//!
//! Policies ([`policies`] finds them, [`matching`] says which requests they match) are evaluated where the request is. A
//! request that needs the answer of a webhook ([`webhooks`]) ends its stage with a status that makes the server ask, and
//! run the verb again ([`crate::webhook`]). Policies and bindings are never admitted, and webhooks do not see
//! configurations of admission, so that no administrator is locked out for good. Writes of the server itself, without a caller, pass
//! too. Without policies and webhooks, admission costs a look at a few counters.
//!
//! [`Admission::mutate`] and [`Admission::validate`] are the only places at which the verbs enter the stages, before
//! anything is written.

mod authorizer;
mod evaluation;
pub(crate) mod expressions;
mod matching;
mod mutating;
mod mutation;
mod params;
mod policies;
#[cfg(test)]
mod recorded;
mod request;
mod type_checking;
mod validating;
mod versions;
mod webhooks;

use std::sync::Arc;

use serde_json::{Value, json};

pub use self::type_checking::{ExpressionWarning, PolicyTypes, schema_of_kind};
use self::{
    evaluation::Slowness,
    matching::MatchResources,
    mutating::Reinvocation,
    policies::PolicyIndex,
    request::Attributes,
    versions::WholeObjects,
    webhooks::{WebhookReinvocation, Webhooks},
};
pub(crate) use self::{policies::PolicyKind, request::Operation};
use crate::{
    admission_plugins::{AdmissionPlugin, AdmissionPlugins},
    auth::{AccessControl, Caller},
    depth,
    kinds::Creation,
    object::Object,
    object_store::ObjectStore,
    registry::{Resource, group_version},
    request::Target,
    status::Status,
    storage::Key,
    warnings::Warnings,
};

/// The admission chain.
pub(crate) struct Admission {
    pub(crate) store: Arc<ObjectStore>,
    pub(crate) plugins: AdmissionPlugins,
    policies: Policies,
    webhooks: Webhooks,
}

/// The admission policies of a server.
pub(crate) struct Policies {
    store: Arc<ObjectStore>,
    access: Arc<AccessControl>,
    validating: PolicyIndex,
    mutating: PolicyIndex,
    slowness: Slowness,
}

impl Policies {
    fn new(access: &Arc<AccessControl>) -> Self {
        let store = &access.store;
        let index = |kind| PolicyIndex::new(&*store.storage, kind);
        Self {
            store: store.clone(),
            access: access.clone(),
            validating: index(PolicyKind::Validating),
            mutating: index(PolicyKind::Mutating),
            slowness: Slowness::default(),
        }
    }
}

/// What admission knows about a write besides its target and its objects.
#[derive(Clone, Copy)]
pub(crate) struct Admitted<'a> {
    pub(crate) target: &'a Target,
    pub(crate) operation: Operation,
    /// `None` for writes of the server itself.
    pub(crate) caller: Option<&'a Arc<Caller>>,
    pub(crate) dry_run: bool,
    /// The options of a deletion. Those of other operations are in the caller's query.
    pub(crate) options: Option<&'a Value>,
    /// Whether the request deletes a whole collection.
    pub(crate) is_collection: bool,
}

impl<'a> Admitted<'a> {
    /// A create or an update.
    pub(crate) fn write(
        target: &'a Target,
        operation: Operation,
        options: &'a crate::verbs::WriteOptions,
    ) -> Self {
        Self {
            target,
            operation,
            caller: options.caller.as_ref(),
            dry_run: options.dry_run,
            options: None,
            is_collection: false,
        }
    }

    /// The client, if policies see its request.
    fn caller_for_policies(&self) -> Option<&'a Arc<Caller>> {
        let resource = &self.target.resource;
        let is_exempt = resource.facts.exempt_from_policies || resource.strategy.as_review().is_some();
        self.caller.filter(|_| !is_exempt)
    }

    /// The client, if webhooks see its request.
    fn caller_for_webhooks(&self) -> Option<&'a Arc<Caller>> {
        self.caller
            .filter(|_| !self.target.resource.facts.exempt_from_webhooks)
    }

    /// The options as JSON.
    fn options(&self, caller: &Caller) -> Value {
        if let Some(options) = self.options {
            return options.clone();
        }
        let kind = match self.operation {
            Operation::Create => "CreateOptions",
            _ => "UpdateOptions",
        };
        let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        for key in ["fieldManager", "fieldValidation"] {
            if let Some(text) = caller.info.query.text(key).filter(|text| !text.is_empty()) {
                options[key] = text.into();
            }
        }
        options
    }

    /// Calls a stage with the attributes of the request. No failure policy excuses that it takes too long where it runs.
    fn with_attributes<T>(
        &self,
        caller: &Arc<Caller>,
        name: &str,
        stage: impl FnOnce(&Attributes<'_>) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let options = self.options(caller);
        let attributes = Attributes::new(
            self.target,
            name,
            self.operation,
            (&options, self.dry_run),
            caller,
        );
        let attributes = if self.is_collection {
            attributes.without_name()
        } else {
            attributes
        };
        let done = stage(&attributes);
        if attributes.cost.needs_time() {
            return Err(Status::needs_time());
        }
        done
    }
}

/// The name of the object in a denial.
fn name_in_errors<'a>(attributes: &Attributes<'a>, object: Option<&'a Object>) -> &'a str {
    let names = [
        attributes.name,
        object.map_or("", Object::name),
        object.map_or("", |object| object.meta("generateName")),
    ];
    names
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or("Unknown")
}

impl Admission {
    /// Creates the chain, with these plugins.
    pub(crate) fn new(access: &Arc<AccessControl>, plugins: AdmissionPlugins) -> Self {
        Self {
            store: access.store.clone(),
            plugins,
            policies: Policies::new(access),
            webhooks: Webhooks::new(access),
        }
    }

    /// Whether a policy or a webhook may change or reject what a client writes.
    pub(crate) fn may_intervene(&self) -> bool {
        self.has_mutating_policies()
            || self.has_validating_policies()
            || self.has_mutating_webhooks()
            || self.has_validating_webhooks()
    }

    /// Whether a policy or a webhook may see writes to a resource, of whatever version, or to one of its subresources.
    pub(crate) fn may_see(&self, resource: &Resource, subresource: &str) -> bool {
        if !self.may_intervene() {
            return false;
        }
        let catalogue = self.store.registry.catalogue();
        let versions = catalogue.resources.iter();
        let versions: Vec<_> = versions.filter(|other| other.table == resource.table).collect();
        let may_match = |constraints: &MatchResources| {
            let mut versions = versions.iter();
            versions.any(|resource| constraints.may_match(resource, subresource))
        };
        self.policies.validating.any_policy(may_match)
            || self.policies.mutating.any_policy(may_match)
            || self.webhooks.any(may_match)
    }

    /// Whether the admission of a write may take long: that of an earlier one to the same resource did. If this one is the first,
    /// it stops and begins again as large work.
    pub(crate) fn is_slow(&self, resource: &Resource) -> bool {
        self.may_intervene() && self.policies.slowness.is_slow(&resource.table, self.changes())
    }

    /// Reads what was written of policies and webhooks, and compiles their expressions. The write does so, which runs as large
    /// work, so that no other request has to.
    pub(crate) fn catch_up(&self) {
        self.policies.validating.catch_up(&self.store);
        self.policies.mutating.catch_up(&self.store);
        self.webhooks.catch_up();
    }

    /// Counts the changes of policies and webhooks.
    fn changes(&self) -> u64 {
        self.policies.validating.changes() + self.policies.mutating.changes() + self.webhooks.changes()
    }

    fn record_cost(&self, attributes: &Attributes<'_>) {
        let table = &attributes.resource.table;
        self.policies
            .slowness
            .record(table, self.changes(), &attributes.cost);
    }

    fn has_mutating_policies(&self) -> bool {
        self.plugins.has(AdmissionPlugin::MutatingAdmissionPolicy)
            && !self.policies.mutating.is_empty(&self.store)
    }

    fn has_validating_policies(&self) -> bool {
        self.plugins.has(AdmissionPlugin::ValidatingAdmissionPolicy)
            && !self.policies.validating.is_empty(&self.store)
    }

    fn has_mutating_webhooks(&self) -> bool {
        self.plugins.has(AdmissionPlugin::MutatingAdmissionWebhook) && self.webhooks.may_mutate()
    }

    fn has_validating_webhooks(&self) -> bool {
        self.plugins.has(AdmissionPlugin::ValidatingAdmissionWebhook) && self.webhooks.may_reject()
    }

    /// The mutating stage. `plugins` runs those of the kind, once more if a policy or a webhook changes the object. Returns
    /// whether one did. Adds warnings for the client.
    pub(crate) fn mutate(
        &self,
        admitted: &Admitted<'_>,
        object: &mut Object,
        old: Option<&Object>,
        warnings: &mut Warnings,
        plugins: impl Fn(&mut Object) -> Result<(), Status>,
    ) -> Result<bool, Status> {
        plugins(object)?;
        let policies = admitted
            .caller_for_policies()
            .filter(|_| self.has_mutating_policies());
        let webhooks = admitted
            .caller_for_webhooks()
            .filter(|_| self.has_mutating_webhooks());
        let Some(caller) = policies.or(webhooks) else {
            return Ok(false);
        };
        let name = object.name().to_owned();
        let mutated = admitted.with_attributes(caller, &name, |attributes| {
            let (mut state, mut webhook_state) = (Reinvocation::default(), WebhookReinvocation::default());
            let mut pass = |object: &mut Object, is_second| {
                state.is_second = is_second;
                if policies.is_some() {
                    self.policies.mutate(attributes, object, old, &mut state)?;
                }
                let mut is_changed = state.is_needed;
                if webhooks.is_some() {
                    let output = (is_second, &mut *warnings);
                    is_changed |=
                        self.webhooks
                            .mutate(attributes, Some(object), old, &mut webhook_state, output)?;
                }
                Ok::<_, Status>(is_changed)
            };
            let is_changed = pass(object, false);
            self.record_cost(attributes);
            if !is_changed? {
                return Ok(false);
            }
            // The request has the namespace of an object that has lost its own.
            if admitted.target.resource.namespaced && object.namespace().is_empty() {
                object.set_meta("namespace", admitted.target.namespace.to_string());
            }
            plugins(object)?;
            pass(object, true)?;
            Ok(true)
        });
        let mutated = unless_restarting(mutated);
        mutated.map_err(|status: Status| status.with_warnings(warnings))
    }

    /// The mutating stage of a deletion, which can only refuse it. Adds warnings for the client.
    pub(crate) fn mutate_deletion(
        &self,
        admitted: &Admitted<'_>,
        old: &Object,
        warnings: &mut Warnings,
    ) -> Result<(), Status> {
        let Some(caller) = admitted
            .caller_for_webhooks()
            .filter(|_| self.has_mutating_webhooks())
        else {
            return Ok(());
        };
        let asked = admitted.with_attributes(caller, "", |attributes| {
            let mut state = WebhookReinvocation::default();
            self.webhooks
                .mutate(attributes, None, Some(old), &mut state, (false, &mut *warnings))
        });
        let asked = unless_restarting(asked);
        asked.map(|_| ()).map_err(|status| status.with_warnings(warnings))
    }

    /// The validating stage, of the object as it will be written. Adds warnings for the client.
    pub(crate) fn validate(
        &self,
        admitted: &Admitted<'_>,
        objects: [Option<&Object>; 2],
        warnings: &mut Warnings,
    ) -> Result<(), Status> {
        let policies = admitted
            .caller_for_policies()
            .filter(|_| self.has_validating_policies());
        let webhooks = admitted
            .caller_for_webhooks()
            .filter(|_| self.has_validating_webhooks());
        let Some(caller) = policies.or(webhooks) else {
            return Ok(());
        };
        let name = objects[0].map_or("", Object::name);
        let whole = WholeObjects::new(objects);
        let validated = admitted.with_attributes(caller, name, |attributes| {
            if policies.is_some() {
                let validated = self.policies.validate(attributes, (objects, &whole), warnings);
                self.record_cost(attributes);
                validated?;
            }
            if webhooks.is_some() {
                self.webhooks.validate(attributes, (objects, &whole), warnings)?;
            }
            Ok(())
        });
        let validated = unless_restarting(validated);
        validated.map_err(|status: Status| status.with_warnings(warnings))
    }

    /// Both stages for the object of a subresource with a kind of its own, such as a Binding.
    pub(crate) fn admit_part(
        &self,
        admitted: &Admitted<'_>,
        value: Value,
        warnings: &mut Warnings,
    ) -> Result<Value, Status> {
        let value = self.mutate_part(admitted, value, None, warnings)?;
        self.validate_part(admitted, &value, None, warnings)?;
        Ok(value)
    }

    /// The mutating stage for the object of a subresource.
    pub(crate) fn mutate_part(
        &self,
        admitted: &Admitted<'_>,
        value: Value,
        old: Option<&Value>,
        warnings: &mut Warnings,
    ) -> Result<Value, Status> {
        if admitted.caller.is_none() || !self.may_intervene() {
            return Ok(value);
        }
        let mut object = part_of(admitted, value)?;
        let old = old.cloned().and_then(Object::new);
        self.mutate(admitted, &mut object, old.as_ref(), warnings, |_| Ok(()))?;
        Ok(object.into_value())
    }

    /// The validating stage for the object of a subresource.
    pub(crate) fn validate_part(
        &self,
        admitted: &Admitted<'_>,
        value: &Value,
        old: Option<&Value>,
        warnings: &mut Warnings,
    ) -> Result<(), Status> {
        if admitted.caller.is_none() || !self.may_intervene() {
            return Ok(());
        }
        let object = part_of(admitted, value.clone())?;
        let old = old.cloned().and_then(Object::new);
        self.validate(admitted, [Some(&object), old.as_ref()], warnings)
    }

    /// Both stages for a connection to a pod, a service or a node, with the options of its request. Returns warnings for the
    /// client.
    pub(crate) fn admit_connection(
        &self,
        target: &Target,
        caller: &Arc<Caller>,
        options: Value,
    ) -> Result<Warnings, Status> {
        let admitted = Admitted {
            target,
            operation: Operation::Connect,
            caller: Some(caller),
            dry_run: false,
            options: Some(&Value::Null),
            is_collection: false,
        };
        if !self.may_intervene() {
            return Ok(Warnings::default());
        }
        // Objects have metadata, options have none: it is not shown.
        let mut object = part_of(&admitted, options)?;
        let mut warnings = Warnings::default();
        self.mutate(&admitted, &mut object, None, &mut warnings, |_| Ok(()))?;
        self.validate(&admitted, [Some(&object), None], &mut warnings)?;
        Ok(warnings)
    }

    /// Applies the admission plugins to a new object: completes it, or rejects it.
    pub(crate) fn admit(
        &self,
        resource: &Resource,
        caller: Option<&Caller>,
        object: &mut Object,
    ) -> Result<(), Status> {
        if resource.crd.as_ref().is_some_and(|defined| defined.terminating) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(resource, object.name(), why));
        }
        let has = |plugin| self.plugins.has(plugin);
        if resource.namespaced && has(AdmissionPlugin::NamespaceLifecycle) {
            self.check_namespace(resource, object)?;
        }
        let creation = Creation {
            admission: self,
            resource,
            caller,
        };
        resource.strategy.admit(&creation, object)
    }

    /// `NamespaceLifecycle`: a new object needs a namespace that exists and is not terminating.
    fn check_namespace(&self, resource: &Resource, object: &Object) -> Result<(), Status> {
        let catalogue = self.store.registry.catalogue();
        let namespaces = catalogue.find("", "v1", "namespaces").expect("built in");
        let name = object.namespace();
        match self.store.storage.get(&namespaces.table, &Key::new("", name)) {
            None => Err(Status::not_found(namespaces, name)),
            Some(entry) if entry.object.is_deleting() => {
                Err(Status::namespace_terminating(resource, object.name(), name))
            }
            Some(_) => Ok(()),
        }
    }

    /// Sets the class marked as the default if the object names none.
    pub(crate) fn set_default_class(
        &self,
        object: &mut Object,
        field: &str,
        resource: (&str, &str),
        mark: &str,
    ) {
        let spec = object.fields().get("spec");
        if spec.is_none_or(|spec| !spec[field].is_null()) {
            return;
        }
        let marked = |class: &Object| {
            let annotations = class.metadata().get("annotations");
            annotations.is_some_and(|annotations| annotations[mark] == "true")
        };
        // If several are marked as the default, the newest wins.
        let class = self
            .store
            .builtin_objects(resource)
            .filter(marked)
            .max_by_key(|class| class.meta("creationTimestamp").to_owned());
        if let Some(class) = class {
            let name = Value::from(class.name());
            object.fields_mut()["spec"][field] = name;
        }
    }
}

/// The result of a stage, unless the request starts again on a large stack: no failure policy excuses a document that is only
/// too deep for this one.
fn unless_restarting<T>(result: Result<T, Status>) -> Result<T, Status> {
    if depth::must_restart() {
        return result.and_then(|_| Err(Status::internal("a document is nested too deep")));
    }
    result
}

/// The object of a subresource, with its kind.
fn part_of(admitted: &Admitted<'_>, value: Value) -> Result<Object, Status> {
    let Some(mut object) = Object::new(value) else {
        return Err(Status::bad_request("the object has no metadata"));
    };
    let Target {
        resource,
        subresource,
        ..
    } = admitted.target;
    let kind = request::kind_of(resource, subresource);
    let version = group_version(kind.group, kind.version);
    let fields = object.fields_mut();
    fields.insert("kind".to_owned(), kind.kind.into());
    fields.insert("apiVersion".to_owned(), version.into());
    Ok(object)
}

/// Adds a finalizer, unless the object has it.
pub(crate) fn add_finalizer(object: &mut Object, finalizer: &str) {
    let finalizers: Vec<_> = object.finalizers().map(str::to_owned).collect();
    if !finalizers.iter().any(|known| known == finalizer) {
        let all: Vec<_> = finalizers.into_iter().chain([finalizer.to_owned()]).collect();
        object.set_meta("finalizers", all);
    }
}

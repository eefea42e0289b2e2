//! The mutating and validating admission plugins that a real server enables by default, as far as a client can see
//! them. Those of one kind are in its file in [`crate::kinds`].
//!
//! ```text
//!   NamespaceLifecycle ─► ServiceAccount ─► TaintNodesByCondition ─► Priority ─► DefaultTolerationSeconds
//!                     ─► DefaultStorageClass, StorageObjectInUseProtection ─► RuntimeClass ─► DefaultIngressClass
//! ```

use std::sync::Arc;

use serde_json::Value;

use crate::{
    admission_plugins::{AdmissionPlugin, AdmissionPlugins},
    auth::Caller,
    kinds::Creation,
    object::Object,
    object_store::ObjectStore,
    registry::Resource,
    status::Status,
    storage::Key,
};

/// The admission plugins.
pub(crate) struct Admission {
    pub(crate) store: Arc<ObjectStore>,
    pub(crate) plugins: AdmissionPlugins,
}

impl Admission {
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

/// Adds a finalizer, unless the object has it.
pub(crate) fn add_finalizer(object: &mut Object, finalizer: &str) {
    let finalizers: Vec<_> = object.finalizers().map(str::to_owned).collect();
    if !finalizers.iter().any(|known| known == finalizer) {
        let all: Vec<_> = finalizers.into_iter().chain([finalizer.to_owned()]).collect();
        object.set_meta("finalizers", all);
    }
}

//! The life of CustomResourceDefinitions: established, served, changed, emptied, gone.
//!
//! Every step looks at what is stored and does what is missing, so that it does not matter which write led here or
//! how many came at once.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    object::Object,
    particular::CUSTOM_RESOURCE_CLEANUP,
    registry::{Definition, Resource, establish},
    request::Target,
    storage::{Change, Entry, Expect, Key},
    verbs::{Api, DeleteOptions},
};

impl Api {
    /// Acts on a write to an object.
    pub(crate) fn after(&self, resource: &Resource, entry: &Entry) {
        if is_definition(resource) {
            self.refresh_definition(&entry.key.name);
        }
    }

    /// Acts on the end of an object.
    pub(crate) fn after_removal(&self, resource: &Resource, entry: &Entry) {
        if is_definition(resource) {
            self.refresh_definition(&entry.key.name);
        } else if resource.custom {
            // It may have been the last that a dying definition waited for.
            self.refresh_definition(&resource.qualified());
        }
    }

    /// Serves what the stored definitions define.
    pub(crate) fn load_definitions(&self) {
        let resource = self.definitions_resource();
        let snapshot = self
            .storage
            .snapshot(&resource.table, None)
            .expect("the present is always known");
        for entry in snapshot.range(None, None) {
            self.refresh_definition(&entry.key.name);
        }
    }

    /// Brings what is served in line with one stored CRD.
    fn refresh_definition(&self, name: &str) {
        let _one_at_a_time = self.definitions.lock();
        let Some((resource, entry)) = self.definition(name) else {
            self.registry.define(name, None);
            return;
        };
        let crd = entry.object.decode();
        if crd.is_deleting() {
            return self.finish_definition(&resource, &entry, crd);
        }
        let crd = match establish(&crd, &self.world.now_text()) {
            // Losing this race means that another write follows, and with it another look.
            Some(mut crd) => {
                match self.commit(&resource, &mut crd, Expect::At(entry.revision), Change::Put) {
                    Ok(_) => crd,
                    Err(_) => return,
                }
            }
            None => crd,
        };
        match Definition::of(&crd) {
            Ok(definition) => self.registry.define(name, definition),
            Err(error) => tracing::error!(crd = name, error, "a stored definition cannot be served"),
        }
    }

    /// Empties a definition that is being deleted, and lets it go once nothing is left.
    fn finish_definition(&self, resource: &Resource, entry: &Entry, mut crd: Object) {
        if !crd
            .finalizers()
            .any(|finalizer| finalizer == CUSTOM_RESOURCE_CLEANUP)
        {
            return;
        }
        if self.delete_instances(&crd) > 0 {
            return;
        }
        let kept = crd
            .finalizers()
            .filter(|f| *f != CUSTOM_RESOURCE_CLEANUP)
            .map(Value::from);
        let finalizers: Vec<_> = kept.collect();
        let change = if finalizers.is_empty() {
            Change::Remove
        } else {
            Change::Put
        };
        crd.set_meta("finalizers", finalizers);
        let name = crd.name().to_owned();
        if self
            .commit(resource, &mut crd, Expect::At(entry.revision), change)
            .is_ok()
        {
            self.registry.define(&name, None);
        }
    }

    /// Deletes a definition's objects and returns how many stay, held by finalizers of their own.
    fn delete_instances(&self, crd: &Object) -> usize {
        let catalogue = self.registry.catalogue();
        let text = |path: &str| crd.text_at(path);
        let (group, plural) = (text("spec.group"), text("spec.names.plural"));
        let Some(served) = catalogue
            .resources
            .iter()
            .find(|r| *r.group == *group && *r.plural == *plural)
        else {
            return 0;
        };
        let Ok(snapshot) = self.storage.snapshot(&served.table, None) else {
            return 0;
        };
        let mut left = 0;
        for entry in snapshot.range(None, None) {
            let target = Target {
                resource: served.clone(),
                namespace: entry.key.namespace.as_ref().into(),
                name: entry.key.name.as_ref().into(),
                subresource: "".into(),
                legacy_watch: false,
            };
            // What is gone already is as good as deleted.
            let _ = self.delete_object(&target, &DeleteOptions::default());
            left += usize::from(self.storage.get(&served.table, &entry.key).is_some());
        }
        left
    }

    fn definition(&self, name: &str) -> Option<(Arc<Resource>, Arc<Entry>)> {
        let resource = self.definitions_resource();
        let entry = self.storage.get(&resource.table, &Key::new("", name))?;
        Some((resource, entry))
    }

    fn definitions_resource(&self) -> Arc<Resource> {
        let catalogue = self.registry.catalogue();
        catalogue
            .find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
            .expect("built in")
            .clone()
    }
}

fn is_definition(resource: &Resource) -> bool {
    (&*resource.group, &*resource.kind) == ("apiextensions.k8s.io", "CustomResourceDefinition")
}

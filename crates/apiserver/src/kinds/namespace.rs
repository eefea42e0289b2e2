//! Namespaces.

use serde_json::{Map, Value, json};
use windlass_api::naming;

use super::{
    error_list::{ErrorList, list, text},
    row::Row,
    selectable::SelectableField,
    strategy::{DeletionMarks, Facts, InitialStatus, NameRule, SPEC, STATUS, Strategy, Write},
};
use crate::{object::Object, registry::Resource, status::Status, validation::STANDARD_FINALIZERS};

/// Namespaces that cannot be deleted.
const PROTECTED: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) struct Namespace;

impl Strategy for Namespace {
    fn facts(&self) -> Facts {
        Facts {
            returns_deleted: true,
            deletion_marks: DeletionMarks::WithoutGracePeriod,
            name_rule: NameRule::Label,
            selects_namespace: false,
            selectable_fields: const { &[SelectableField::text("status.phase")] },
            subresource_reset_fields: &[("status", &[SPEC]), ("finalize", &[STATUS])],
            columns: Some("Name Status Age"),
            ..Facts::DEFAULT
        }
    }

    fn set_defaults(&self, namespace: &mut Object) {
        if !namespace.name().is_empty() {
            label_with_name(namespace);
        }
    }

    fn prepare_create(&self, namespace: &mut Object) {
        let spec = namespace.fields_mut().entry("spec").or_insert_with(|| json!({}));
        let finalizers = spec["finalizers"].as_array().cloned().unwrap_or_default();
        if !finalizers.contains(&json!("kubernetes")) {
            spec["finalizers"] = finalizers.into_iter().chain([json!("kubernetes")]).collect();
        }
    }

    fn initial_status(&self, _resource: &Resource, _namespace: &Object, _now: &str) -> InitialStatus {
        InitialStatus::Set(json!({"phase": "Active"}))
    }

    fn after_naming(&self, namespace: &mut Object) {
        label_with_name(namespace);
    }

    fn prepare_update(&self, namespace: &mut Object, old: &Object) {
        // Its finalizers change only through `finalize`.
        if let Some(spec) = old.fields().get("spec") {
            namespace.fields_mut().insert("spec".into(), spec.clone());
        }
        label_with_name(namespace);
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check_finalizers(write.spec(), errors);
    }

    fn check_delete(&self, resource: &Resource, name: &str) -> Result<(), Status> {
        if PROTECTED.contains(&name) {
            let why = "this namespace may not be deleted";
            return Err(Status::forbidden(resource, name, why));
        }
        Ok(())
    }

    fn prepare_deletion(&self, namespace: &mut Object, _now: &str) {
        namespace
            .fields_mut()
            .entry("status")
            .or_insert_with(|| json!({}))["phase"] = "Terminating".into();
    }

    fn has_other_finalizers(&self, namespace: &Object) -> bool {
        !list(&namespace.tree()["spec"]["finalizers"]).is_empty()
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.text("/status/phase").into(), row.age()]
    }
}

/// Labels a namespace with its name.
fn label_with_name(namespace: &mut Object) {
    let name = Value::from(namespace.name());
    let labels = namespace
        .metadata_mut()
        .entry("labels")
        .or_insert_with(|| Value::Object(Map::new()));
    labels["kubernetes.io/metadata.name"] = name;
}

/// Namespace finalizers must be qualified names.
fn check_finalizers(spec: &Value, errors: &mut ErrorList) {
    for finalizer in list(&spec["finalizers"]).iter().map(text) {
        let field = "spec.finalizers";
        errors.invalid_each(field, finalizer, naming::qualified(finalizer));
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(field, finalizer, why);
        }
    }
}

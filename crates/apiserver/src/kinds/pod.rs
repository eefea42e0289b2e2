//! Pods, and the pod templates of other kinds.

mod admission;
pub(super) mod defaults;
mod ephemeral_containers;
mod initial_status;
mod resize;
mod runtime_class;
mod table;
pub(super) mod validation;
pub(super) mod warnings;

use serde_json::Value;
use windlass_api::naming;

use super::{
    error_list::{ErrorList, list, text},
    row::Row,
    selectable::SelectableField,
    strategy::{Creation, Facts, InitialStatus, SPEC, Strategy, Write},
};
use crate::{
    admission_plugins::{AdmissionPlugin, AdmissionPlugins},
    field_path::FieldPath,
    object::Object,
    registry::Resource,
    status::Status,
    storage::Entry,
    verbs::WriteVerbs,
};

static SELECTABLE_FIELDS: [SelectableField; 8] = [
    SelectableField::text("spec.nodeName"),
    SelectableField::text("spec.restartPolicy"),
    SelectableField::text("spec.schedulerName"),
    SelectableField::text("spec.serviceAccountName"),
    SelectableField::flag("spec.hostNetwork"),
    SelectableField::text("status.phase"),
    SelectableField::text("status.podIP"),
    SelectableField::text("status.nominatedNodeName"),
];

pub(super) struct Pod;

impl Strategy for Pod {
    fn facts(&self) -> Facts {
        Facts {
            has_generation: true,
            graceful_deletion: true,
            selectable_fields: &SELECTABLE_FIELDS,
            subresource_reset_fields: &[(
                "status",
                &[
                    SPEC,
                    &["metadata", "deletionTimestamp"],
                    &["metadata", "ownerReferences"],
                ],
            )],
            columns: Some(table::COLUMNS),
            ..Facts::RETURNS_DELETED
        }
    }

    fn set_defaults(&self, pod: &mut Object) {
        let spec = &mut pod.tree_mut()["spec"];
        defaults::fill_spec(spec);
        defaults::fill_pod(spec);
    }

    fn stored_field(&self, field: &str) -> Option<String> {
        // An old name that is still accepted.
        Some(
            if field == "spec.host" {
                "spec.nodeName"
            } else {
                field
            }
            .to_owned(),
        )
    }

    fn admit(&self, creation: &Creation<'_>, pod: &mut Object) -> Result<(), Status> {
        let (admission, resource) = (creation.admission, creation.resource);
        if creation.has(AdmissionPlugin::ServiceAccount) {
            admission::admit_service_account(creation, pod)?;
        }
        if creation.has(AdmissionPlugin::Priority) {
            admission::admit_priority(admission, resource, pod)?;
        }
        if creation.has(AdmissionPlugin::DefaultTolerationSeconds) {
            admission::add_default_tolerations(pod);
        }
        if creation.has(AdmissionPlugin::RuntimeClass) {
            runtime_class::admit_runtime_class(&admission.store, resource, pod)?;
        }
        Ok(())
    }

    fn prepare_create(&self, pod: &mut Object) {
        initial_status::clamp_grace_period(pod);
    }

    fn initial_status(&self, _resource: &Resource, pod: &Object, now: &str) -> InitialStatus {
        InitialStatus::Set(initial_status::initial_status(pod, now))
    }

    fn keep_outside_subresource(&self, subresource: &str, pod: &mut Object, old: &Object) {
        match subresource {
            "ephemeralcontainers" => ephemeral_containers::keep_rest(pod, old),
            "resize" => resize::keep_rest(pod, old),
            _ => {}
        }
    }

    fn keep_metadata_on_status_update(&self, pod: &mut Object, old: &Object) {
        pod.keep_meta("ownerReferences", old);
    }

    fn admit_update(&self, plugins: AdmissionPlugins, pod: &mut Object, old: &Object) {
        if plugins.has(AdmissionPlugin::Priority) {
            admission::keep_priority(pod, old);
        }
        if plugins.has(AdmissionPlugin::DefaultTolerationSeconds) {
            admission::add_default_tolerations(pod);
        }
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        validation::check_pod(write.value(), write.is_new(), errors);
    }

    fn validate_changes(&self, write: &Write<'_>, old: &Value, errors: &mut ErrorList) {
        validation::check_changes(write.value(), old, errors);
    }

    fn validate_subresource(&self, subresource: &str, pod: &Value, old: &Value, errors: &mut ErrorList) {
        match subresource {
            "ephemeralcontainers" => {
                validation::check_pod(pod, false, errors);
                ephemeral_containers::validate(pod, old, errors);
            }
            "resize" => {
                validation::check_pod(pod, false, errors);
                resize::validate(pod, old, errors);
            }
            _ => {
                // A status update of a pod can change its annotations.
                validation::check_annotation_changes(pod, old, errors);
                check_status(pod, old, errors);
            }
        }
    }

    fn warn(&self, write: &Write<'_>, warnings: &mut Vec<String>) {
        if write.is_new() {
            warnings::warn(write.object, warnings);
        }
    }

    fn after_validation(&self, resource: &Resource, pod: &mut Object) -> Result<(), Status> {
        runtime_class::check_overhead(resource, pod)
    }

    fn after_removal(&self, writes: &WriteVerbs, _resource: &Resource, entry: &Entry) {
        if !writes.pod_logs.is_empty() {
            writes.pod_logs.remove_pod(entry.object.uid());
        }
    }

    fn grace_seconds(&self, pod: &Object, requested: Option<i64>) -> i64 {
        // It has one only while it runs on a node.
        if pod.text_at("spec.nodeName").is_empty()
            || matches!(pod.text_at("status.phase").as_str(), "Succeeded" | "Failed")
        {
            return 0;
        }
        let own = pod.tree()["spec"]["terminationGracePeriodSeconds"].as_i64();
        requested.or(own).unwrap_or(defaults::GRACE_SECONDS).max(0)
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        table::cells(row)
    }

    fn row_conditions(&self, pod: &Value) -> Option<Value> {
        table::row_conditions(pod)
    }
}

/// Keeps the spec, the status, and the metadata that a write to a subresource may not change.
fn keep_spec_and_status(pod: &mut Object, old: &Object) {
    for key in ["labels", "annotations", "finalizers", "ownerReferences"] {
        pod.keep_meta(key, old);
    }
    for key in ["spec", "status"] {
        match old.fields().get(key) {
            Some(value) => drop(pod.fields_mut().insert(key.to_owned(), value.clone())),
            None => drop(pod.fields_mut().remove(key)),
        }
    }
}

fn check_status(pod: &Value, old: &Value, errors: &mut ErrorList) {
    let status = &pod["status"];
    let (field, node) = ("status.nominatedNodeName", text(&status["nominatedNodeName"]));
    if !node.is_empty() && node != text(&old["status"]["nominatedNodeName"]) {
        errors.invalid_each(field, node, naming::subdomain(node));
        if !text(&old["spec"]["nodeName"]).is_empty() {
            errors.forbidden(field, "may not be set on pods that are already bound to a node");
        }
    }
    let path = FieldPath::from_root("status.podIPs");
    for (index, entry) in list(&status["podIPs"]).iter().enumerate() {
        let ip = text(&entry["ip"]);
        errors.invalid_each(path.index(index), ip, naming::ip_address(ip));
    }
    let path = FieldPath::from_root("status.conditions");
    for (index, condition) in list(&status["conditions"]).iter().enumerate() {
        let kind = text(&condition["type"]);
        errors.invalid_each(path.index(index).child("Type"), kind, naming::qualified(kind));
    }
}

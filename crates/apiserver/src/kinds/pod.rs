//! Pods, and the pod templates of other kinds.

mod admission;
pub(super) mod defaults;
mod initial_status;
mod runtime_class;
mod table;
pub(super) mod validation;
pub(super) mod warnings;

use serde_json::Value;
use windlass_api::naming;

use super::{
    error_list::{ErrorList, list, text},
    row::Row,
    strategy::{Creation, Facts, InitialStatus, SPEC, Strategy, Write},
};
use crate::{
    admission::ServiceAccountAdmission, field_path::FieldPath, object::Object, registry::Resource,
    status::Status, storage::Entry, verbs::WriteVerbs,
};

pub(super) struct Pod;

impl Strategy for Pod {
    fn facts(&self) -> Facts {
        Facts {
            has_generation: true,
            graceful_deletion: true,
            selectable_fields: &[
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "spec.hostNetwork",
                "status.phase",
                "status.podIP",
                "status.nominatedNodeName",
            ],
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

    fn admit(&self, creation: &Creation<'_>, pod: &mut Object) -> Result<(), Status> {
        let (admission, resource) = (creation.admission, creation.resource);
        if admission.service_accounts == ServiceAccountAdmission::Required {
            admission::admit_service_account(admission, resource, pod)?;
        }
        admission::admit_priority(admission, resource, pod)?;
        admission::add_default_tolerations(pod);
        runtime_class::admit_runtime_class(&admission.store, resource, pod)
    }

    fn prepare_create(&self, pod: &mut Object) {
        initial_status::clamp_grace_period(pod);
    }

    fn initial_status(&self, _resource: &Resource, pod: &Object, now: &str) -> InitialStatus {
        InitialStatus::Set(initial_status::initial_status(pod, now))
    }

    fn keep_metadata_on_status_update(&self, pod: &mut Object, old: &Object) {
        pod.keep_meta("ownerReferences", old);
    }

    fn admit_update(&self, pod: &mut Object, _old: &Object) {
        admission::add_default_tolerations(pod);
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        validation::check_pod(write.value(), write.is_new(), errors);
    }

    fn validate_changes(&self, write: &Write<'_>, old: &Value, errors: &mut ErrorList) {
        validation::check_changes(write.value(), old, errors);
    }

    fn validate_status(&self, _subresource: &str, pod: &Value, old: &Value, errors: &mut ErrorList) {
        // A status update of a pod can change its annotations.
        validation::check_annotation_changes(pod, old, errors);
        check_status(&pod["status"], errors);
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
            writes.pod_logs.remove_pod(&entry.object.uid());
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
        requested.or(own).unwrap_or(30).max(0)
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        table::cells(row)
    }

    fn row_conditions(&self, pod: &Value) -> Option<Value> {
        table::row_conditions(pod)
    }
}

fn check_status(status: &Value, errors: &mut ErrorList) {
    let node = text(&status["nominatedNodeName"]);
    if !node.is_empty() {
        errors.invalid_each("status.nominatedNodeName", node, naming::subdomain(node));
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

//! Validation of built-in kinds, with the real server's messages.
//!
//! ```text
//!   defaulted object ─► rules of its kind ─► immutable fields (updates) ─► FieldErrors ─► 422
//! ```
//!
//! Kubernetes has some ten thousand lines of such rules; these are the most common ones.

mod admission;
mod apps;
mod autoscaling;
mod batch;
mod certificates;
mod config;
mod duplicates;
mod error_list;
mod immutable;
mod ingress;
mod network;
mod nodes;
mod pods;
mod quota;
mod rbac;
mod services;
mod status;
mod storage;

pub(crate) use pods::MIRROR_ANNOTATION;
use serde_json::Value;

use self::error_list::ErrorList;
use crate::{field_path::FieldPath, object::Object, registry::Resource, schema::FieldError};

/// Validates a new object.
pub(crate) fn check(resource: &Resource, object: &Object) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    if !resource.is_custom {
        check_kind(resource, object, None, object.tree(), &mut errors);
    }
    errors.into_errors()
}

/// The errors of an update.
pub(crate) struct UpdateErrors {
    /// Errors that any object of its kind could have.
    pub(crate) rules: Vec<FieldError>,
    /// Changes of immutable fields.
    pub(crate) immutable_fields: Vec<FieldError>,
}

/// Validates an update.
pub(crate) fn check_update(resource: &Resource, object: &Object, old: &Object) -> UpdateErrors {
    let (mut rules, mut changes) = (ErrorList::default(), ErrorList::default());
    if !resource.is_custom {
        // The rules index freely: an absent field reads as null.
        let value = object.tree();
        let kind = (&*resource.group, &*resource.kind);
        check_kind(resource, object, Some(old), value, &mut rules);
        // The real server validates an updated job twice.
        if kind == ("batch", "Job") && !rules.is_empty() {
            check_kind(resource, object, Some(old), value, &mut changes);
        }
        immutable::check(kind, value, old.tree(), &mut changes);
    }
    UpdateErrors {
        rules: rules.into_errors(),
        immutable_fields: changes.into_errors(),
    }
}

/// Validates the cluster IPs of a service. If any are invalid, nothing else is checked.
pub(crate) fn check_cluster_ips(resource: &Resource, object: &Object) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    if (&*resource.group, &*resource.kind) == ("", "Service") {
        services::check_cluster_ips(&object.tree()["spec"], &mut errors);
    }
    errors.into_errors()
}

/// Validates a status update.
pub(crate) fn check_status(
    resource: &Resource,
    part: &str,
    object: &Object,
    old: &Object,
) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    let kind = (&*resource.group, &*resource.kind);
    if kind == ("certificates.k8s.io", "CertificateSigningRequest") {
        certificates::check_status(part, object.tree(), old.tree(), &mut errors);
    } else if !resource.is_custom {
        if kind == ("", "Pod") {
            // A status update of a pod can change its annotations.
            pods::check_annotation_changes(object.tree(), old.tree(), &mut errors);
        }
        status::check(kind, object.tree(), &mut errors);
    }
    errors.into_errors()
}

fn check_kind(
    resource: &Resource,
    object: &Object,
    old: Option<&Object>,
    value: &Value,
    errors: &mut ErrorList,
) {
    let (kind, spec, is_new) = (&*resource.kind, &value["spec"], old.is_none());
    match (&*resource.group, kind) {
        ("", "Pod") => pods::check_pod(value, is_new, errors),
        ("", "PodTemplate") => {
            pods::check_template(&value["template"], &FieldPath::from_root("template"), errors);
        }
        ("", "ReplicationController") => apps::check_replication_controller(spec, errors),
        ("apps", _) => apps::check(kind, value, is_new, errors),
        ("batch", "Job") => batch::check_job(value, errors),
        ("batch", "CronJob") => batch::check_cron_job(object, spec, is_new, errors),
        ("", "ConfigMap") => config::check_config_map(value, errors),
        ("", "Secret") => config::check_secret(value, errors),
        ("", "Namespace") => config::check_namespace(spec, errors),
        ("", "Service") => services::check(value, old.map(Object::tree), errors),
        ("", "Node") => nodes::check(value, errors),
        ("", "ResourceQuota") => quota::check(spec, errors),
        ("", "LimitRange") => quota::check_limits(spec, errors),
        ("", "PersistentVolume" | "PersistentVolumeClaim") | ("storage.k8s.io", _) => {
            storage::check(kind, value, errors);
        }
        ("" | "events.k8s.io", "Event") => config::check_event(&resource.group, value, old, errors),
        ("policy", "PodDisruptionBudget") => apps::check_disruption_budget(spec, errors),
        ("coordination.k8s.io", "Lease") => config::check_lease(spec, errors),
        ("autoscaling", _) => autoscaling::check(&resource.version, spec, errors),
        ("networking.k8s.io", "Ingress") => ingress::check(value, is_new, errors),
        ("networking.k8s.io", "IngressClass") => ingress::check_class(spec, is_new, errors),
        ("networking.k8s.io", "NetworkPolicy") => network::check_policy(spec, errors),
        ("node.k8s.io", "RuntimeClass") => nodes::check_runtime_class(value, errors),
        ("discovery.k8s.io", "EndpointSlice") => network::check_slice(value, old, errors),
        ("rbac.authorization.k8s.io", _) => rbac::check(kind, value, errors),
        ("scheduling.k8s.io", "PriorityClass") => storage::check_priority_class(value, errors),
        ("admissionregistration.k8s.io", _) => admission::check(value, errors),
        _ => {}
    }
}

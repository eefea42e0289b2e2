//! What the real server refuses about objects of built-in kinds, with its words.
//!
//! ```text
//!   completed object ─► rules of its kind ─► what may not change any more (updates) ─► FieldErrors ─► 422
//! ```
//!
//! Kubernetes has some ten thousand lines of such rules; these are the ones that people run into.

mod admission;
mod apps;
mod autoscaling;
mod batch;
mod certificates;
mod config;
mod findings;
mod immutable;
mod ingress;
mod network;
mod nodes;
mod pods;
mod quota;
mod rbac;
mod repeats;
mod services;
mod status;
mod storage;

pub(crate) use pods::MIRROR;
use serde_json::Value;

use self::findings::Findings;
use crate::{object::Object, registry::Resource, schema::FieldError, trail::Trail};

/// What is wrong with a new object.
pub(crate) fn check(resource: &Resource, object: &Object) -> Vec<FieldError> {
    let mut findings = Findings::default();
    if !resource.custom {
        check_kind(resource, object, None, object.tree(), &mut findings);
    }
    findings.into_errors()
}

/// What is wrong with an object that takes the place of another.
pub(crate) struct Changed {
    /// What no object of its kind may be.
    pub(crate) rules: Vec<FieldError>,
    /// What may not have changed.
    pub(crate) changes: Vec<FieldError>,
}

/// What is wrong with an object that takes the place of another.
pub(crate) fn check_changed(resource: &Resource, object: &Object, old: &Object) -> Changed {
    let (mut rules, mut changes) = (Findings::default(), Findings::default());
    if !resource.custom {
        // The rules index freely: a field that is not there reads as null.
        let value = object.tree();
        let kind = (&*resource.group, &*resource.kind);
        check_kind(resource, object, Some(old), value, &mut rules);
        // Of a changed job, two of the real server's checks look at the same.
        if kind == ("batch", "Job") && !rules.is_empty() {
            check_kind(resource, object, Some(old), value, &mut changes);
        }
        immutable::check(kind, value, old.tree(), &mut changes);
    }
    Changed {
        rules: rules.into_errors(),
        changes: changes.into_errors(),
    }
}

/// What is wrong with an object's place in the cluster: if anything is, the rest is not looked at.
pub(crate) fn check_place(resource: &Resource, object: &Object) -> Vec<FieldError> {
    let mut findings = Findings::default();
    if (&*resource.group, &*resource.kind) == ("", "Service") {
        services::check_place(&object.tree()["spec"], &mut findings);
    }
    findings.into_errors()
}

/// What is wrong with the status of an object that is otherwise as it was.
pub(crate) fn check_status(
    resource: &Resource,
    part: &str,
    object: &Object,
    old: &Object,
) -> Vec<FieldError> {
    let mut findings = Findings::default();
    let kind = (&*resource.group, &*resource.kind);
    if kind == ("certificates.k8s.io", "CertificateSigningRequest") {
        certificates::check_status(part, object.tree(), old.tree(), &mut findings);
    } else if !resource.custom {
        if kind == ("", "Pod") {
            // A pod's status is written with its metadata.
            pods::check_annotation_changes(object.tree(), old.tree(), &mut findings);
        }
        status::check(kind, object.tree(), &mut findings);
    }
    findings.into_errors()
}

fn check_kind(
    resource: &Resource,
    object: &Object,
    old: Option<&Object>,
    value: &Value,
    findings: &mut Findings,
) {
    let (kind, spec, is_new) = (&*resource.kind, &value["spec"], old.is_none());
    match (&*resource.group, kind) {
        ("", "Pod") => pods::check_pod(value, is_new, findings),
        ("", "PodTemplate") => {
            pods::check_template(&value["template"], &Trail::from_root("template"), findings);
        }
        ("", "ReplicationController") => apps::check_replication_controller(spec, findings),
        ("apps", _) => apps::check(kind, value, is_new, findings),
        ("batch", "Job") => batch::check_job(value, findings),
        ("batch", "CronJob") => batch::check_cron_job(object, spec, is_new, findings),
        ("", "ConfigMap") => config::check_config_map(value, findings),
        ("", "Secret") => config::check_secret(value, findings),
        ("", "Namespace") => config::check_namespace(spec, findings),
        ("", "Service") => services::check(value, old.map(Object::tree), findings),
        ("", "Node") => nodes::check(value, findings),
        ("", "ResourceQuota") => quota::check(spec, findings),
        ("", "LimitRange") => quota::check_limits(spec, findings),
        ("", "PersistentVolume" | "PersistentVolumeClaim") | ("storage.k8s.io", _) => {
            storage::check(kind, value, findings);
        }
        ("" | "events.k8s.io", "Event") => config::check_event(&resource.group, value, old, findings),
        ("policy", "PodDisruptionBudget") => apps::check_disruption_budget(spec, findings),
        ("coordination.k8s.io", "Lease") => config::check_lease(spec, findings),
        ("autoscaling", _) => autoscaling::check(&resource.version, spec, findings),
        ("networking.k8s.io", "Ingress") => ingress::check(value, is_new, findings),
        ("networking.k8s.io", "IngressClass") => ingress::check_class(spec, is_new, findings),
        ("networking.k8s.io", "NetworkPolicy") => network::check_policy(spec, findings),
        ("node.k8s.io", "RuntimeClass") => nodes::check_runtime_class(value, findings),
        ("discovery.k8s.io", "EndpointSlice") => network::check_slice(value, old, findings),
        ("rbac.authorization.k8s.io", _) => rbac::check(kind, value, findings),
        ("scheduling.k8s.io", "PriorityClass") => storage::check_priority_class(value, findings),
        ("admissionregistration.k8s.io", _) => admission::check(value, findings),
        _ => {}
    }
}

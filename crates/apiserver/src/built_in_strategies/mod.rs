//! How the server changes objects of built-in kinds before they are stored: initial status, generated fields, fields that
//! an update may not change.

mod certificates;
mod pods;
mod runtime_class;
mod services;
mod workloads;

pub(crate) use runtime_class::admit_runtime_class;
use serde_json::{Map, Value, json};
pub(crate) use services::ServiceAllocator;

use crate::{crd, object::Object, registry::Resource, request::Target, status::Status};

/// Sets defaults right after decoding, so that the writer's managed fields include them.
pub(crate) fn set_defaults(resource: &Resource, object: &mut Object) {
    match (&*resource.group, &*resource.kind) {
        ("", "Namespace") if !object.name().is_empty() => label_namespace(object),
        ("apps", "DaemonSet") => workloads::default_template_generation(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => crd::set_defaults(object),
        _ => {}
    }
}

/// The initial status of a new object; none if the client may set one.
pub(crate) fn initial_status(resource: &Resource, object: &Object, now: &str) -> Option<Value> {
    Some(match (&*resource.group, &*resource.kind) {
        ("", "Namespace") => json!({"phase": "Active"}),
        ("", "Pod") => pods::initial_status(object, now),
        ("", "Service") | ("networking.k8s.io", "Ingress") => json!({"loadBalancer": {}}),
        ("", "PersistentVolumeClaim") => json!({"phase": "Pending"}),
        ("", "PersistentVolume") => json!({"phase": "Pending", "lastPhaseTransitionTime": now}),
        // A kubelet registers its node with a status.
        ("", "Node") => return None,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => crd::initial_status(object),
        _ if !resource.has_status() => return None,
        _ => json!({}),
    })
}

/// Sets generated fields of a new object.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Object) {
    match (&*resource.group, &*resource.kind) {
        ("batch", "Job") => workloads::generate_selector(object),
        ("apps", "DaemonSet") => workloads::update_template_generation(object, None),
        ("coordination.k8s.io", "Lease") => drop_disabled_fields(object),
        ("", "Pod") => pods::clamp_grace_period(object),
        ("", "Service") => services::set_cluster_ips(object),
        ("", "Namespace") => {
            let spec = object.fields_mut().entry("spec").or_insert_with(|| json!({}));
            let finalizers = spec["finalizers"].as_array().cloned().unwrap_or_default();
            if !finalizers.contains(&json!("kubernetes")) {
                spec["finalizers"] = finalizers.into_iter().chain([json!("kubernetes")]).collect();
            }
        }
        _ => {}
    }
}

/// Sets fields that depend on the name of a new object.
pub(crate) fn after_naming(resource: &Resource, object: &mut Object) {
    if (&*resource.group, &*resource.kind) == ("", "Namespace") {
        label_namespace(object);
    }
}

/// Sets fields of a new object after validation, and makes the checks that come last.
pub(crate) fn after_validation(resource: &Resource, object: &mut Object) -> Result<(), Status> {
    match (&*resource.group, &*resource.kind) {
        ("batch", "Job") => workloads::label_job(object),
        ("", "Pod") => runtime_class::check_overhead(resource, object)?,
        _ => {}
    }
    Ok(())
}

/// Keeps the fields that an update may not change.
pub(crate) fn prepare_update(resource: &Resource, object: &mut Object, old: &Object) {
    match (&*resource.group, &*resource.kind) {
        ("apps", "DaemonSet") => workloads::update_template_generation(object, Some(old)),
        ("coordination.k8s.io", "Lease") => drop_disabled_fields(object),
        ("", "Service") => services::keep_allocated(object, old),
        // The request and its requester are immutable; the rest changes through subresources.
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            if let Some(spec) = old.fields().get("spec") {
                object.fields_mut().insert("spec".into(), spec.clone());
            }
        }
        // Its finalizers change only through `finalize`.
        ("", "Namespace") => {
            if let Some(spec) = old.fields().get("spec") {
                object.fields_mut().insert("spec".into(), spec.clone());
            }
            label_namespace(object);
        }
        _ => {}
    }
}

/// Completes an update of a certificate signing request's approval or status.
pub(crate) fn complete_signing_request(target: &Target, object: &mut Object, old: &Object, now: &str) {
    if (&*target.resource.group, &*target.resource.kind)
        == ("certificates.k8s.io", "CertificateSigningRequest")
    {
        certificates::complete_update(&target.subresource, object, old, now);
    }
}

/// Removes metadata that views such as tables do not show.
pub(crate) fn hide_from_views(resource: &Resource, metadata: &mut Value) {
    if (&*resource.group, &*resource.kind) == ("apps", "DaemonSet") {
        workloads::hide_template_generation(metadata);
    }
}

/// Labels a namespace with its name.
fn label_namespace(namespace: &mut Object) {
    let name = Value::from(namespace.name());
    let labels = namespace
        .metadata_mut()
        .entry("labels")
        .or_insert_with(|| Value::Object(Map::new()));
    labels["kubernetes.io/metadata.name"] = name;
}

/// Drops the fields of coordinated leader election, which is disabled by default.
fn drop_disabled_fields(lease: &mut Object) {
    if let Some(spec) = lease.fields_mut().get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}

/// Whether a change of metadata increments the generation.
pub(crate) fn metadata_increments_generation(resource: &Resource, object: &Object, old: &Object) -> bool {
    let differs = |key: &str| object.metadata().get(key) != old.metadata().get(key);
    match (&*resource.group, &*resource.kind) {
        ("apps", "Deployment") => differs("annotations"),
        ("discovery.k8s.io", "EndpointSlice") => differs("labels"),
        _ => false,
    }
}

//! What becomes of an object of a built-in kind on its way to the storage, whatever the client said: its first status,
//! what the server generates, what a change may not touch.

mod certificates;
mod pods;
mod runtime_class;
mod services;
mod workloads;

use serde_json::{Map, Value, json};

use crate::{crd, object::Object, registry::Resource, request::Target, status::Status};

/// What the server fills in as soon as it has read an object, so that its writer comes to own it.
pub(crate) fn default(resource: &Resource, object: &mut Object) {
    match (&*resource.group, &*resource.kind) {
        ("", "Namespace") if !object.name().is_empty() => label_namespace(object),
        ("apps", "DaemonSet") => workloads::note_template(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => crd::complete(object),
        _ => {}
    }
}

/// The status that a new object begins with; none if the client may bring one.
pub(crate) fn first_status(resource: &Resource, object: &Object, now: &str) -> Option<Value> {
    Some(match (&*resource.group, &*resource.kind) {
        ("", "Namespace") => json!({"phase": "Active"}),
        ("", "Pod") => pods::first_status(object, now),
        ("", "Service") | ("networking.k8s.io", "Ingress") => json!({"loadBalancer": {}}),
        ("", "PersistentVolumeClaim") => json!({"phase": "Pending"}),
        ("", "PersistentVolume") => json!({"phase": "Pending", "lastPhaseTransitionTime": now}),
        // A kubelet registers its node with the status it has.
        ("", "Node") => return None,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => crd::first_status(object),
        _ if !resource.has_status() => return None,
        _ => json!({}),
    })
}

/// What the server adds to a new object.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Object) {
    match (&*resource.group, &*resource.kind) {
        ("batch", "Job") => workloads::generate_selector(object),
        ("apps", "DaemonSet") => workloads::count_template(object, None),
        ("coordination.k8s.io", "Lease") => drop_disabled(object),
        ("", "Pod") => pods::shorten_negative_grace(object),
        ("", "Service") => services::list_address(object),
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

/// What a new object is given with its name.
pub(crate) fn named(resource: &Resource, object: &mut Object) {
    if (&*resource.group, &*resource.kind) == ("", "Namespace") {
        label_namespace(object);
    }
}

/// What a new object shows once it has passed all checks, and what is refused only then.
pub(crate) fn complete(resource: &Resource, object: &mut Object) -> Result<(), Status> {
    match (&*resource.group, &*resource.kind) {
        ("batch", "Job") => workloads::label_job(object),
        ("", "Pod") => runtime_class::check_overhead(resource, object)?,
        _ => {}
    }
    Ok(())
}

/// What a change leaves as it was.
pub(crate) fn prepare_update(resource: &Resource, object: &mut Object, old: &Object) {
    match (&*resource.group, &*resource.kind) {
        ("apps", "DaemonSet") => workloads::count_template(object, Some(old)),
        ("coordination.k8s.io", "Lease") => drop_disabled(object),
        ("", "Service") => services::carry_over(object, old),
        // What was asked for stays, and who asked; the rest changes through parts of its own.
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            if let Some(spec) = old.fields().get("spec") {
                object.fields_mut().insert("spec".into(), spec.clone());
            }
        }
        // Its finalizers change through `finalize` alone.
        ("", "Namespace") => {
            if let Some(spec) = old.fields().get("spec") {
                object.fields_mut().insert("spec".into(), spec.clone());
            }
            label_namespace(object);
        }
        _ => {}
    }
}

/// What the server adds to a decision about an object, and what the decision leaves as it was.
pub(crate) fn decide(target: &Target, object: &mut Object, old: &Object, now: &str) {
    if (&*target.resource.group, &*target.resource.kind)
        == ("certificates.k8s.io", "CertificateSigningRequest")
    {
        certificates::decide(&target.subresource, object, old, now);
    }
}

/// Takes out of metadata what only a whole object shows.
pub(crate) fn hide_from_views(resource: &Resource, metadata: &mut Value) {
    if (&*resource.group, &*resource.kind) == ("apps", "DaemonSet") {
        workloads::hide_count(metadata);
    }
}

/// A namespace can be selected by its name.
fn label_namespace(namespace: &mut Object) {
    let name = Value::from(namespace.name());
    let labels = namespace
        .metadata_mut()
        .entry("labels")
        .or_insert_with(|| Value::Object(Map::new()));
    labels["kubernetes.io/metadata.name"] = name;
}

/// Coordinated leader election is off on a real server that was not asked for it, and its fields with it.
fn drop_disabled(lease: &mut Object) {
    if let Some(spec) = lease.fields_mut().get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}

/// Whether a change of metadata counts as one of the desired state.
pub(crate) fn metadata_counts(resource: &Resource, object: &Object, old: &Object) -> bool {
    let differs = |key: &str| object.metadata().get(key) != old.metadata().get(key);
    match (&*resource.group, &*resource.kind) {
        ("apps", "Deployment") => differs("annotations"),
        ("discovery.k8s.io", "EndpointSlice") => differs("labels"),
        _ => false,
    }
}

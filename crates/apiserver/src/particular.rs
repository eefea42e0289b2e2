//! What single kinds do otherwise: the few rules that are neither schema nor data.

use serde_json::{Value, json};

use crate::{crd, object::Object, registry::Resource, status::Status, strategies};

/// The namespaces that must not go.
const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

fn of(resource: &Resource) -> (&str, &str) {
    (&resource.group, &resource.kind)
}

/// What a new object begins with, whatever the client said.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Object, now: &str) {
    if resource.custom {
        if resource.has_status() {
            object.fields_mut().remove("status");
        }
        return;
    }
    strategies::prepare_create(resource, object);
    if let Some(status) = strategies::first_status(resource, object, now) {
        object.fields_mut().insert("status".into(), status);
    }
}

/// What a changed object keeps, whatever the client said.
pub(crate) fn prepare_update(resource: &Resource, object: &mut Object, old: &Object) {
    // Whoever writes the status writes all of it.
    if crd::is_definition(resource) && object.fields().get("status") == old.fields().get("status") {
        crd::note_storage_version(object);
    }
    if !resource.custom {
        strategies::prepare_update(resource, object, old);
    }
}

/// The metadata that a write to the status may not touch.
pub(crate) fn keep_on_status(resource: &Resource, object: &mut Object, old: &Object) {
    match of(resource) {
        ("apps", "Deployment") => object.keep_meta("labels", old),
        ("", "Pod") => object.keep_meta("ownerReferences", old),
        _ => {}
    }
}

/// What a deletion leaves on the object besides its time.
pub(crate) fn prepare_deletion(resource: &Resource, object: &mut Object, now: &str) {
    match of(resource) {
        ("", "Namespace") => {
            object.fields_mut().entry("status").or_insert_with(|| json!({}))["phase"] = "Terminating".into();
        }
        _ if crd::is_definition(resource) => crd::prepare_deletion(object, now),
        _ => {}
    }
}

/// Whether an object that is being deleted stays for another reason than `metadata.finalizers`.
pub(crate) fn holds(resource: &Resource, object: &Object) -> bool {
    of(resource) == ("", "Namespace")
        && object.fields().get("spec").is_some_and(|spec| {
            spec["finalizers"]
                .as_array()
                .is_some_and(|finalizers| !finalizers.is_empty())
        })
}

/// Whether nothing keeps an object that is being deleted any more.
pub(crate) fn is_finished(resource: &Resource, object: &Object) -> bool {
    let grace = object
        .metadata()
        .get("deletionGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    object.is_deleting() && grace == 0 && object.finalizers().next().is_none() && !holds(resource, object)
}

/// Whether objects of the kind get a time in which to go.
pub(crate) fn is_graceful(resource: &Resource) -> bool {
    of(resource) == ("", "Pod")
}

/// What the client of a deletion should know.
pub(crate) fn deletion_warnings(resource: &Resource, said_policy: bool) -> Vec<String> {
    if said_policy || of(resource) != ("batch", "Job") {
        return Vec::new();
    }
    vec![
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning"
            .to_owned(),
    ]
}

/// How long an object may take to go. Only pods have a grace period, and only once they are on a node.
pub(crate) fn grace_seconds(resource: &Resource, object: &Object, asked: Option<i64>) -> i64 {
    if !is_graceful(resource) {
        return 0;
    }
    let text = |path: &str| object.text_at(path);
    if text("spec.nodeName").is_empty() || matches!(text("status.phase").as_str(), "Succeeded" | "Failed") {
        return 0;
    }
    let own = object
        .fields()
        .get("spec")
        .and_then(|spec| spec["terminationGracePeriodSeconds"].as_i64());
    asked.or(own).unwrap_or(30).max(0)
}

/// Whether `deletionGracePeriodSeconds` is shown on objects of the kind that are being deleted.
pub(crate) fn shows_grace(resource: &Resource) -> bool {
    of(resource) != ("", "Namespace") && !crd::is_definition(resource)
}

/// Refuses deletions that would take the cluster with them.
pub(crate) fn may_delete(resource: &Resource, name: &str) -> Result<(), Status> {
    if of(resource) == ("", "Namespace") && IMMORTAL_NAMESPACES.contains(&name) {
        return Err(Status::forbidden(
            resource,
            name,
            "this namespace may not be deleted",
        ));
    }
    Ok(())
}

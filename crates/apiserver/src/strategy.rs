//! Per-kind behaviour on create, update and delete (a real server's strategies).

use serde_json::{Value, json};

use crate::{built_in_strategies, crd, object::Object, registry::Resource, status::Status};

/// Namespaces that cannot be deleted.
const PROTECTED_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

fn group_kind(resource: &Resource) -> (&str, &str) {
    (&resource.group, &resource.kind)
}

/// Sets the fields of a new object that the client may not set.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Object, now: &str) {
    if resource.is_custom {
        if resource.has_status() {
            object.fields_mut().remove("status");
        }
        return;
    }
    built_in_strategies::prepare_create(resource, object);
    if let Some(status) = built_in_strategies::initial_status(resource, object, now) {
        object.fields_mut().insert("status".into(), status);
    }
}

/// Keeps the fields of a changed object that the client may not change.
pub(crate) fn prepare_update(resource: &Resource, object: &mut Object, old: &Object) {
    // A write to the status sets all of it.
    if crd::is_definition(resource) && object.fields().get("status") == old.fields().get("status") {
        crd::record_storage_version(object);
    }
    if !resource.is_custom {
        built_in_strategies::prepare_update(resource, object, old);
    }
}

/// Keeps the metadata that a write to the status may not change.
pub(crate) fn keep_metadata_on_status_update(resource: &Resource, object: &mut Object, old: &Object) {
    match group_kind(resource) {
        ("apps", "Deployment") => object.keep_meta("labels", old),
        ("", "Pod") => object.keep_meta("ownerReferences", old),
        _ => {}
    }
}

/// Changes an object when its deletion starts, apart from the deletion timestamp.
pub(crate) fn prepare_deletion(resource: &Resource, object: &mut Object, now: &str) {
    match group_kind(resource) {
        ("", "Namespace") => {
            object.fields_mut().entry("status").or_insert_with(|| json!({}))["phase"] = "Terminating".into();
        }
        _ if crd::is_definition(resource) => crd::prepare_deletion(object, now),
        _ => {}
    }
}

/// Whether an object that is being deleted has finalizers elsewhere than in `metadata.finalizers`.
pub(crate) fn has_other_finalizers(resource: &Resource, object: &Object) -> bool {
    group_kind(resource) == ("", "Namespace")
        && object.fields().get("spec").is_some_and(|spec| {
            spec["finalizers"]
                .as_array()
                .is_some_and(|finalizers| !finalizers.is_empty())
        })
}

/// Whether an object that is being deleted can be removed.
pub(crate) fn can_be_removed(resource: &Resource, object: &Object) -> bool {
    let grace = object
        .metadata()
        .get("deletionGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    object.is_deleting()
        && grace == 0
        && object.finalizers().next().is_none()
        && !has_other_finalizers(resource, object)
}

/// Whether objects of the kind have a grace period.
pub(crate) fn is_graceful(resource: &Resource) -> bool {
    group_kind(resource) == ("", "Pod")
}

/// Warnings about a deletion.
pub(crate) fn deletion_warnings(resource: &Resource, said_policy: bool) -> Vec<String> {
    if said_policy || group_kind(resource) != ("batch", "Job") {
        return Vec::new();
    }
    vec![
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning"
            .to_owned(),
    ]
}

/// The grace period of a deletion. Only pods have one, and only once they are on a node.
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
pub(crate) fn shows_grace_period(resource: &Resource) -> bool {
    group_kind(resource) != ("", "Namespace") && !crd::is_definition(resource)
}

/// Rejects the deletion of namespaces that a cluster needs.
pub(crate) fn check_delete(resource: &Resource, name: &str) -> Result<(), Status> {
    if group_kind(resource) == ("", "Namespace") && PROTECTED_NAMESPACES.contains(&name) {
        return Err(Status::forbidden(
            resource,
            name,
            "this namespace may not be deleted",
        ));
    }
    Ok(())
}

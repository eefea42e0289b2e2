//! Prepares an object for a write: sets or keeps the fields that the client may not change.

use std::collections::HashSet;

use serde_json::Value;

use super::{Answer, decoding::normalize};
use crate::{
    admission_plugins::AdmissionPlugins,
    object::Object,
    registry::Resource,
    request::Target,
    schema::{FieldError, Problem},
    status::Status,
    warnings::Warnings,
};

/// Rejects a `resourceVersion` that is not a number, with the real server's internal error.
pub(super) fn check_resource_version(version: &str) -> Result<(), Status> {
    if version.is_empty() || version.parse::<u64>().is_ok() {
        return Ok(());
    }
    Err(Status::without_reason(format!(
        "strconv.ParseUint: parsing {version:?}: invalid syntax"
    )))
}

/// Rejects an update without a name.
pub(super) fn require_name(object: &Object, target: &Target) -> Result<(), Status> {
    if object.name().is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        )));
    }
    Ok(())
}

/// Sets the object's namespace from the request. Rejects an object whose name or namespace differs from the request's.
pub(super) fn match_request(object: &mut Object, target: &Target) -> Result<(), Status> {
    match_namespace(object, target)?;
    if !target.name.is_empty() && *object.name() != *target.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            object.name(),
            target.name
        )));
    }
    Ok(())
}

/// Sets the object's namespace from the request. Rejects an object of another one.
pub(super) fn match_namespace(object: &mut Object, target: &Target) -> Result<(), Status> {
    if target.resource.namespaced {
        if object.namespace().is_empty() {
            object.set_meta("namespace", target.namespace.to_string());
        } else if *object.namespace() != *target.namespace {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    } else {
        object.metadata_mut().remove("namespace");
    }
    Ok(())
}

/// Sets the fields of an updated object that the server decides. Returns errors for changes of immutable metadata.
pub(super) fn prepare_update(
    object: &mut Object,
    old: &Object,
    target: &Target,
    plugins: AdmissionPlugins,
) -> Vec<FieldError> {
    let resource = &target.resource;
    let mut errors = check_immutable_metadata(object, old);
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "selfLink",
    ] {
        object.keep_meta(key, old);
    }
    match &*target.subresource {
        "status" | "approval" => keep_all_but_status(object, old, resource),
        part => {
            if resource.has_status() {
                keep_status(object, old);
            }
            resource.strategy.keep_outside_subresource(part, object, old);
        }
    }
    if *target.subresource == *"finalize" {
        resource.strategy.after_naming(object);
        return errors;
    }
    resource.strategy.prepare_update(object, old);
    if target.subresource.is_empty() {
        resource.strategy.admit_update(plugins, object, old);
    }
    errors.extend(check_added_finalizers(object, old));
    normalize(object, resource);
    let counts = desired_state_differs(object, old, resource)
        || (target.subresource.is_empty() && resource.strategy.metadata_increments_generation(object, old));
    if resource.facts.has_generation && counts {
        object.set_meta("generation", next_generation(old));
    }
    errors
}

/// Errors for metadata that only the server may set and the client has changed.
fn check_immutable_metadata(object: &Object, old: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // Two of the real server's checks report them.
    for key in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"].repeat(2) {
        let value = object
            .metadata()
            .get(key)
            .filter(|value| old.metadata().get(key) != Some(*value));
        if let Some(value) = value {
            let problem = Problem::Invalid(value.clone(), "field is immutable".into());
            errors.push(FieldError::new(format!("metadata.{key}"), problem));
        }
    }
    errors
}

/// Keeps the old status on a write to the main resource.
fn keep_status(object: &mut Object, old: &Object) {
    match old.fields().get("status") {
        Some(status) => object.fields_mut().insert("status".into(), status.clone()),
        None => object.fields_mut().remove("status"),
    };
}

/// Keeps everything but the status on a write to the status. Built-in kinds take most of the metadata too.
fn keep_all_but_status(object: &mut Object, old: &Object, resource: &Resource) {
    let status = object.fields_mut().remove("status");
    let metadata = object.fields()["metadata"].clone();
    object.fields_mut().clone_from(old.fields());
    match status {
        Some(status) => object.fields_mut().insert("status".into(), status),
        None => object.fields_mut().remove("status"),
    };
    if resource.is_custom {
        return;
    }
    object.fields_mut().insert("metadata".into(), metadata);
    resource.strategy.keep_metadata_on_status_update(object, old);
}

/// Errors for finalizers that were added to an object that is being deleted.
fn check_added_finalizers(object: &Object, old: &Object) -> Vec<FieldError> {
    if !old.is_deleting() {
        return Vec::new();
    }
    let known: HashSet<_> = old.finalizers().collect();
    let added = object.finalizers().filter(|f| !known.contains(f));
    let listed: Vec<_> = added.map(|f| format!("{f:?}")).collect();
    if listed.is_empty() {
        return Vec::new();
    }
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        listed.join(", ")
    );
    let error = FieldError::new("metadata.finalizers", Problem::Forbidden(why));
    // Two of the real server's checks report it.
    vec![error; 2]
}

/// Whether the desired state differs: everything but the metadata and, where it is a subresource, the status.
pub(super) fn desired_state_differs(object: &Object, old: &Object, resource: &Resource) -> bool {
    let counts = |key: &str| {
        !matches!(key, "metadata" | "apiVersion" | "kind") && (key != "status" || !resource.has_status())
    };
    let one_sided = |a: &Object, b: &Object| {
        a.fields()
            .iter()
            .any(|(key, value)| counts(key) && b.fields().get(key) != Some(value))
    };
    one_sided(object, old) || one_sided(old, object)
}

/// The answer to a dry run. A new object has no resource version yet, a changed one keeps its old one.
pub(super) fn dry_run_answer(code: u16, object: Object, warnings: Warnings) -> Answer {
    Answer::Object {
        code,
        json: object.into_value().to_string().into(),
        warnings,
    }
}

/// The `metadata.generation` after a change of the desired state.
pub(super) fn next_generation(old: &Object) -> i64 {
    let generation = old.metadata().get("generation").and_then(Value::as_i64);
    generation.unwrap_or(0) + 1
}

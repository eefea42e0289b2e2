//! What the server decides about an object that is about to be written, whatever the client said.

use serde_json::Value;

use super::{Answer, conform::normalize};
use crate::{
    admission,
    object::Object,
    particular,
    registry::Resource,
    request::Target,
    schema::{FieldError, Problem},
    status::Status,
    strategies,
};

/// A revision that is none is something that the real server did not expect.
pub(super) fn check_revision(said: &str) -> Result<(), Status> {
    if said.is_empty() || said.parse::<u64>().is_ok() {
        return Ok(());
    }
    Err(Status::unexplained(format!(
        "strconv.ParseUint: parsing {said:?}: invalid syntax"
    )))
}

/// An object that takes the place of another must say its name.
pub(super) fn named(object: &Object, target: &Target) -> Result<(), Status> {
    if object.name().is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        )));
    }
    Ok(())
}

/// Puts an object where the request says, or refuses if it says another place itself.
pub(super) fn place(object: &mut Object, target: &Target) -> Result<(), Status> {
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
    if !target.name.is_empty() && *object.name() != *target.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            object.name(),
            target.name
        )));
    }
    Ok(())
}

/// What the server decides about a changed object, whatever the client said. Returns what may not be changed.
pub(super) fn prepare_update(object: &mut Object, old: &Object, target: &Target) -> Vec<FieldError> {
    let resource = &target.resource;
    let mut errors = immutable_metadata(object, old);
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
    if matches!(&*target.subresource, "status" | "approval") {
        keep_all_but_status(object, old, resource);
    } else if resource.has_status() {
        keep_status(object, old);
    }
    if *target.subresource == *"finalize" {
        strategies::named(resource, object);
        return errors;
    }
    particular::prepare_update(resource, object, old);
    if target.subresource.is_empty() {
        admission::admit_update(resource, object);
    }
    errors.extend(added_finalizers(object, old, resource));
    normalize(object, resource);
    let counts = desired_differs(object, old, resource)
        || (target.subresource.is_empty() && strategies::metadata_counts(resource, object, old));
    if resource.strategy.generation && counts {
        object.set_meta("generation", next_generation(old));
    }
    errors
}

/// What the client says of metadata that is the server's alone, and says differently.
fn immutable_metadata(object: &Object, old: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for key in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let said = object
            .metadata()
            .get(key)
            .filter(|said| old.metadata().get(key) != Some(*said));
        if let Some(said) = said {
            // Two of the real server's checks look at it.
            let problem = Problem::Invalid(said.clone(), "field is immutable".into());
            errors.extend(vec![FieldError::new(format!("metadata.{key}"), problem); 2]);
        }
    }
    errors
}

/// A write to the object leaves its status alone.
fn keep_status(object: &mut Object, old: &Object) {
    match old.fields().get("status") {
        Some(status) => object.fields_mut().insert("status".into(), status.clone()),
        None => object.fields_mut().remove("status"),
    };
}

/// A write to the status leaves the rest alone. Built-in kinds let it touch most of the metadata too.
fn keep_all_but_status(object: &mut Object, old: &Object, resource: &Resource) {
    let status = object.fields_mut().remove("status");
    let metadata = object.fields()["metadata"].clone();
    object.fields_mut().clone_from(old.fields());
    match status {
        Some(status) => object.fields_mut().insert("status".into(), status),
        None => object.fields_mut().remove("status"),
    };
    if resource.custom {
        return;
    }
    object.fields_mut().insert("metadata".into(), metadata);
    particular::keep_on_status(resource, object, old);
}

/// An object that is being deleted gets no new finalizers.
fn added_finalizers(object: &Object, old: &Object, resource: &Resource) -> Vec<FieldError> {
    let added = object
        .finalizers()
        .filter(|f| !old.finalizers().any(|known| known == *f));
    let listed: Vec<_> = added.map(|f| format!("{f:?}")).collect();
    if listed.is_empty() || !old.is_deleting() {
        return Vec::new();
    }
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        listed.join(", ")
    );
    let error = FieldError::new("metadata.finalizers", Problem::Forbidden(why));
    // The real server checks this for all kinds, and once more for each built-in one.
    vec![error; if resource.custom { 1 } else { 2 }]
}

/// Whether the state that the object asks for differs: everything but metadata and, where it is a part of its own, status.
pub(super) fn desired_differs(object: &Object, old: &Object, resource: &Resource) -> bool {
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

/// What would have been written. A new object has no revision yet, a changed one keeps its old one.
pub(super) fn dry(code: u16, object: Object, warnings: Vec<String>) -> Answer {
    Answer::Object {
        code,
        json: object.into_value().to_string().into(),
        warnings,
    }
}

/// The number of the next desired state.
pub(super) fn next_generation(old: &Object) -> i64 {
    let generation = old.metadata().get("generation").and_then(Value::as_i64);
    generation.unwrap_or(0) + 1
}

//! What becomes of a definition's objects on their way in: what their schema drops, fills in and refuses.

use std::collections::HashSet;

use serde_json::Value;

use super::embedded::{Malformed, check_embedded, coerce_embedded, metadata_of};
use crate::{
    naming,
    object::Object,
    registry::Resource,
    schema::{FieldError, Problem, Source, check_lists, drop_nulls, fill_defaults, prune_object, validate},
    trail::Trail,
    validation,
};

/// What of an object a request writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything, or everything but the status.
    Whole,
    /// The status alone.
    Status,
}

/// What the errors say when they kept the rules from being looked at.
const RULES_NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

/// The finalizers that need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["foregroundDeletion", "kubernetes", "orphan"];

/// Takes a tree as an object of the kind: drops what its schema does not know, and fills in what is absent. Returns the
/// paths of what was dropped, or why it is no such object.
pub(crate) fn accept(resource: &Resource, value: &mut Value, source: Source) -> Result<Vec<String>, String> {
    let fields = value.as_object_mut().ok_or("not an object")?;
    let mut unknown = Vec::new();
    // Whatever the kind, metadata is one of Go's structs.
    if let Some(metadata) = fields.get_mut("metadata") {
        let found = metadata_of(metadata, Malformed::Refused)?;
        unknown.extend(found.into_iter().map(|path| format!("metadata.{path}")));
    }
    let Some(schema) = &resource.schema else {
        return Ok(unknown);
    };
    let schema = schema.view();
    unknown.extend(prune_object(schema, fields));
    // A null that was applied was meant.
    if source == Source::Json {
        drop_nulls(schema, fields);
    }
    unknown.extend(coerce_embedded(schema, fields, Malformed::Refused)?);
    fill_defaults(schema, fields);
    fields.values_mut().for_each(write_whole);
    Ok(unknown)
}

/// Writes `1.0` as `1`, as Go does: its floats have no other form.
fn write_whole(value: &mut Value) {
    const MOST: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            if float.fract() == 0.0 && float.abs() <= MOST {
                #[expect(clippy::cast_possible_truncation, reason = "whole, and exact in both types")]
                let whole = float as i64;
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(write_whole),
        Value::Object(fields) => fields.values_mut().for_each(write_whole),
        _ => {}
    }
}

/// What is wrong with an object that is about to be written, over another one or not.
pub(crate) fn check(
    resource: &Resource,
    object: &Object,
    old: Option<&Object>,
    part: Part,
) -> Vec<FieldError> {
    let mut errors = validation::metadata(object, resource);
    let Some(schema) = &resource.schema else {
        return errors;
    };
    let view = schema.view();
    let whole = |object: &Object| Value::Object(object.fields().clone());
    match part {
        Part::Whole => {
            let before = old.map(whole);
            errors.extend(validate(view, &whole(object), before.as_ref(), ""));
            errors.extend(check_replicas(resource, object));
        }
        Part::Status => {
            if let (Some(schema), Some(status)) = (view.property("status"), object.fields().get("status")) {
                let before = old.and_then(|old| old.fields().get("status"));
                errors.extend(validate(schema, status, before, "status"));
            }
        }
    }
    errors.extend(check_scale_status(resource, object));
    if part == Part::Whole {
        errors.extend(check_embedded(view, object.fields(), &Trail::Root, false));
    }
    // Lists are forgiven as a whole, not item by item.
    if old.is_none_or(|old| check_lists(view, old.fields()).is_empty()) {
        errors.extend(check_lists(view, object.fields()));
    }
    if schema.has_rules() && errors.iter().any(hides_rules) {
        let problem = Problem::Invalid(Value::Null, RULES_NOT_CHECKED.to_owned());
        errors.push(FieldError::new("<nil>", problem));
    }
    errors
}

/// Whether the real server looks at no rule of an object that has this error.
fn hides_rules(error: &FieldError) -> bool {
    matches!(
        error.problem,
        Problem::NotSupported(..)
            | Problem::Required(_)
            | Problem::TooLong(_)
            | Problem::TooMany(..)
            | Problem::WrongType(..)
    )
}

fn check_replicas(resource: &Resource, object: &Object) -> Option<FieldError> {
    check_number(object, &resource.scale.as_ref()?.wanted)
}

fn check_scale_status(resource: &Resource, object: &Object) -> Vec<FieldError> {
    let Some(paths) = &resource.scale else {
        return Vec::new();
    };
    let selector = paths.selector.as_ref().and_then(|path| {
        let value = find(object, path, "string", Value::is_string).err()?;
        Some(FieldError::new(dotted(path), Problem::Invalid("".into(), value)))
    });
    check_number(object, &paths.actual)
        .into_iter()
        .chain(selector)
        .collect()
}

/// A number of replicas, which must fit 32 bits and not be negative.
fn check_number(object: &Object, path: &str) -> Option<FieldError> {
    let invalid =
        |value: i64, why: String| Some(FieldError::new(dotted(path), Problem::Invalid(value.into(), why)));
    match find(object, path, "int64", Value::is_i64) {
        Err(why) => invalid(0, why),
        Ok(None) => None,
        Ok(Some(value)) => {
            let number = value.as_i64().unwrap_or_default();
            if number < 0 {
                invalid(number, "should be a non-negative integer".to_owned())
            } else if number > i64::from(i32::MAX) {
                invalid(number, format!("should be less than or equal to {}", i32::MAX))
            } else {
                None
            }
        }
    }
}

/// What stands at a JSON pointer, or why it cannot be there, in Go's words.
pub(crate) fn find<'a>(
    object: &'a Object,
    pointer: &str,
    kind: &str,
    fits: impl Fn(&Value) -> bool,
) -> Result<Option<&'a Value>, String> {
    let parts: Vec<_> = pointer.trim_start_matches('/').split('/').collect();
    let mut place: Option<&Value> = None;
    for (index, part) in parts.iter().enumerate() {
        let fields = match place {
            None => object.fields(),
            Some(Value::Object(fields)) => fields,
            Some(other) => {
                let path = format!(".{}", parts[..index].join("."));
                return Err(mismatch(&path, other, "map[string]interface{}"));
            }
        };
        match fields.get(*part) {
            Some(value) => place = Some(value),
            None => return Ok(None),
        }
    }
    match place {
        Some(value) if !fits(value) => Err(mismatch(&dotted(pointer), value, kind)),
        found => Ok(found),
    }
}

fn mismatch(path: &str, value: &Value, wanted: &str) -> String {
    let kind = match value {
        Value::Null => "<nil>",
        other => crate::golang::type_of(other),
    };
    format!(
        "{path} accessor error: {} is of the type {kind}, expected {wanted}",
        crate::golang::printed(value)
    )
}

fn dotted(pointer: &str) -> String {
    pointer.replace('/', ".")
}

/// What a client is told about finalizers that it adds.
pub(crate) fn finalizer_warnings(object: &Object, old: Option<&Object>) -> Vec<String> {
    let known: HashSet<_> = old.into_iter().flat_map(Object::finalizers).collect();
    let mut added: Vec<_> = object.finalizers().filter(|name| !known.contains(name)).collect();
    added.sort_unstable();
    added.dedup();
    let mut warnings = Vec::new();
    for name in added {
        let field = "metadata.finalizers";
        warnings.extend(
            naming::qualified(name)
                .into_iter()
                .map(|why| format!("{field}: {name:?}: {why}")),
        );
        if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
            let path = if name.contains('.') {
                " including a path (/)"
            } else {
                ""
            };
            warnings.push(format!(
                "{field}: {name:?}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
            ));
        }
    }
    warnings
}

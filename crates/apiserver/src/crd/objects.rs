//! Pruning, defaulting and validation of custom resources.

use std::{collections::HashSet, sync::atomic::Ordering};

use serde_json::Value;
use windlass_api::naming;
use windlass_cel::rules::{PER_OBJECT_LIMIT, Reason, Validation, Violation};

use super::embedded::{OnMalformed, check_embedded, coerce_embedded, coerce_metadata};
use crate::{
    field_path::FieldPath,
    object::Object,
    registry::Resource,
    schema::{FieldError, Problem, Source, check_lists, drop_nulls, fill_defaults, prune_object, validate},
    validation,
    warnings::Warnings,
};

/// The part of an object that a request writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything, or everything but the status.
    Whole,
    /// The status only.
    Status,
}

/// Added to the errors if they prevented the CEL rules from being evaluated.
const RULES_NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

/// Finalizers that need no domain prefix.
const STANDARD_FINALIZERS: [&str; 3] = ["foregroundDeletion", "kubernetes", "orphan"];

/// Prunes and defaults an object. Returns the paths of pruned fields, or why it is malformed.
pub(crate) fn prune_and_default(
    resource: &Resource,
    value: &mut Value,
    source: Source,
) -> Result<Vec<String>, String> {
    let fields = value.as_object_mut().ok_or("not an object")?;
    let mut unknown = Vec::new();
    // Metadata is a Go struct, whatever the kind.
    if let Some(metadata) = fields.get_mut("metadata") {
        let found = coerce_metadata(metadata, OnMalformed::Reject)?;
        unknown.extend(found.into_iter().map(|path| format!("metadata.{path}")));
    }
    let Some(schema) = &resource.schema else {
        return Ok(unknown);
    };
    let schema = schema.view();
    unknown.extend(prune_object(schema, fields));
    // In an applied object, a null is intentional.
    if source == Source::Json {
        drop_nulls(schema, fields);
    }
    unknown.extend(coerce_embedded(schema, fields, OnMalformed::Reject)?);
    fill_defaults(schema, fields);
    fields.values_mut().for_each(normalize_floats);
    Ok(unknown)
}

/// Writes whole floats as integers (`1.0` as `1`), like Go.
fn normalize_floats(value: &mut Value) {
    const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            if float.fract() == 0.0 && float.abs() <= MAX_EXACT_INTEGER {
                #[expect(clippy::cast_possible_truncation, reason = "whole, and exact in both types")]
                let whole = float as i64;
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize_floats),
        Value::Object(fields) => fields.values_mut().for_each(normalize_floats),
        _ => {}
    }
}

/// Validates an object before it is written; `old` is the object it replaces. Violated rules of unchanged values become
/// warnings.
pub(crate) fn check(
    resource: &Resource,
    object: &Object,
    old: Option<&Object>,
    part: Part,
    warnings: &mut Warnings,
) -> Vec<FieldError> {
    let mut errors = validation::check_metadata(object, resource);
    let Some(schema) = &resource.schema else {
        return errors;
    };
    let view = schema.view();
    match part {
        Part::Whole => {
            errors.extend(validate(view, object.tree(), old.map(Object::tree), ""));
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
        errors.extend(check_embedded(view, object.fields(), &FieldPath::Root, false));
    }
    // If any list of the old object was invalid already, no list is checked: ratcheting is not per item.
    if old.is_none_or(|old| check_lists(view, old.fields()).is_empty()) {
        errors.extend(check_lists(view, object.fields()));
    }
    if resource.rules().is_some() {
        if errors.iter().any(skips_rules) {
            let problem = Problem::Invalid(Value::Null, RULES_NOT_CHECKED.to_owned());
            errors.push(FieldError::new("<nil>", problem));
        } else {
            errors.extend(check_rules(resource, object, old, warnings));
        }
    }
    errors
}

/// Evaluates the validation rules, for a write to any part of the object.
pub(crate) fn check_rules(
    resource: &Resource,
    object: &Object,
    old: Option<&Object>,
    warnings: &mut Warnings,
) -> Vec<FieldError> {
    let Some(rules) = resource.rules() else {
        return Vec::new();
    };
    let validation = match old {
        Some(old) => Validation::update(object.tree(), old.tree()),
        None => Validation::create(object.tree()),
    };
    let outcome = rules.root().validate(&validation);
    if let Some(crd) = &resource.crd {
        let cost = PER_OBJECT_LIMIT - outcome.remaining_budget.unwrap_or(0).min(PER_OBJECT_LIMIT);
        crd.rules_cost.fetch_max(cost, Ordering::Relaxed);
    }
    warnings.extend(outcome.warnings.into_iter().map(|warning| {
        let warning = violation(warning);
        format!("{}: {}", warning.field, warning.message())
    }));
    outcome.violations.into_iter().map(violation).collect()
}

/// A violated rule as an error of its field.
pub(super) fn violation(violation: Violation) -> FieldError {
    let Violation {
        field,
        reason,
        value,
        message,
    } = violation;
    let problem = match (reason, value) {
        (Reason::Invalid, Some(value)) => Problem::Invalid(value, message),
        (Reason::Invalid, None) => Problem::InvalidText(String::new(), message),
        (Reason::Forbidden, _) => Problem::Forbidden(message),
        (Reason::Required, _) => Problem::Required(message),
        (Reason::Duplicate, Some(value)) => Problem::Duplicate(value),
        (Reason::Duplicate, None) => Problem::DuplicateText(String::new()),
    };
    let field = if field.is_empty() {
        "<nil>".to_owned()
    } else {
        field
    };
    FieldError::new(field, problem)
}

/// Whether the real server skips CEL rules for an object with this error.
fn skips_rules(error: &FieldError) -> bool {
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
    check_replica_count(object, &resource.scale.as_ref()?.spec_replicas)
}

fn check_scale_status(resource: &Resource, object: &Object) -> Vec<FieldError> {
    let Some(paths) = &resource.scale else {
        return Vec::new();
    };
    let selector = paths.selector.as_ref().and_then(|path| {
        let value = find_typed(object, path, "string", Value::is_string).err()?;
        Some(FieldError::new(dotted(path), Problem::Invalid("".into(), value)))
    });
    check_replica_count(object, &paths.status_replicas)
        .into_iter()
        .chain(selector)
        .collect()
}

/// Checks that a replica count fits 32 bits and is not negative.
fn check_replica_count(object: &Object, path: &str) -> Option<FieldError> {
    let invalid =
        |value: i64, why: String| Some(FieldError::new(dotted(path), Problem::Invalid(value.into(), why)));
    match find_typed(object, path, "int64", Value::is_i64) {
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

/// Returns the value at a JSON pointer, or Go's message if it has the wrong type.
pub(crate) fn find_typed<'a>(
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
        crate::golang::format_value(value)
    )
}

fn dotted(pointer: &str) -> String {
    pointer.replace('/', ".")
}

/// Warnings about newly added finalizers.
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

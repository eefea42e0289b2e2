//! Validates the defaults in a schema against the schema.

use serde_json::Value;
use windlass_cel::rules::{PER_OBJECT_LIMIT, Part, Validation};

use super::ErrorList;
use crate::{
    crd::{
        embedded::{OnMalformed, check_embedded, coerce_embedded},
        objects,
    },
    field_path::FieldPath,
    schema::{FieldError, Problem, Schema, SchemaView, prune, prune_object, validate},
};

/// Checks the defaults of a schema, also with its rules.
pub(super) fn check(
    built: &Schema,
    document: &Value,
    rules: Option<Part<'_>>,
    path: &str,
    errors: &mut ErrorList,
) {
    let mut budget = Some(PER_OBJECT_LIMIT);
    walk(built.view(), document, rules, path, true, &mut budget, errors);
}

/// `budget` is what is left for the rules of all defaults; nothing is checked after it ran out.
fn walk(
    schema: SchemaView<'_>,
    document: &Value,
    rules: Option<Part<'_>>,
    path: &str,
    is_resource: bool,
    budget: &mut Option<u64>,
    errors: &mut ErrorList,
) {
    let default = &document["default"];
    if !default.is_null() {
        let path = format!("{path}.default");
        let is_valid = check_default(schema, default, &path, is_resource, errors);
        if let Some(rules) = rules.filter(|_| is_valid) {
            check_rules(rules, default, &path, budget, errors);
        }
    }
    if budget.is_none() {
        return;
    }
    if let Some(items) = schema.items() {
        walk(
            items,
            &document["items"],
            rules.and_then(|rules| rules.items()),
            &format!("{path}.items"),
            items.node().embedded,
            budget,
            errors,
        );
    }
    for (name, inner) in document["properties"].as_object().into_iter().flatten() {
        if budget.is_none() {
            return;
        }
        if let Some(property) = schema.property(name) {
            let path = format!("{path}.properties[{name}]");
            let rules = rules.and_then(|rules| rules.property(name));
            let is_resource = property.node().embedded;
            walk(property, inner, rules, &path, is_resource, budget, errors);
        }
    }
}

/// Evaluates the rules for a default as an unchanged value, and as a new one.
fn check_rules(
    rules: Part<'_>,
    default: &Value,
    path: &str,
    budget: &mut Option<u64>,
    errors: &mut ErrorList,
) {
    let Some(limit) = *budget else { return };
    let new = Validation {
        path,
        budget: limit,
        ..Validation::create(default)
    };
    let unchanged = Validation {
        old: Some(default),
        ..new.clone()
    };
    for validation in [unchanged, new] {
        let outcome = rules.validate(&validation);
        *budget = (*budget)
            .zip(outcome.remaining_budget)
            .map(|(one, other)| one.min(other));
        let is_good = outcome.violations.is_empty();
        errors
            .0
            .extend(outcome.violations.into_iter().map(objects::violation));
        if !is_good {
            return;
        }
    }
}

/// Returns whether the default is valid but for unknown fields.
fn check_default(
    schema: SchemaView<'_>,
    default: &Value,
    path: &str,
    is_resource: bool,
    errors: &mut ErrorList,
) -> bool {
    let mut pruned = default.clone();
    match &mut pruned {
        Value::Object(fields) if is_resource => {
            prune_object(schema, fields);
        }
        other => {
            prune(schema, other);
        }
    }
    if pruned != *default {
        errors.invalid(path, default.clone(), "must not have unknown fields");
    }
    if let Value::Object(fields) = default {
        if let Err(why) = coerce_embedded(schema, &mut fields.clone(), OnMalformed::Reject) {
            errors.0.push(parse_field_error(path, &why));
            return false;
        }
        let embedded = check_embedded(schema, fields, &FieldPath::from_root(path), is_resource);
        if !embedded.is_empty() {
            errors.0.extend(embedded);
            return false;
        }
    }
    let found = validate(schema, default, None, path);
    let is_valid = found.is_empty();
    errors.0.extend(found);
    is_valid
}

/// Splits a message that contains its field: `spec.kind: Invalid value: 5: must be a string`.
fn parse_field_error(path: &str, why: &str) -> FieldError {
    let (field, rest) = why.split_once(": ").unwrap_or(("", why));
    let rest = rest.strip_prefix("Invalid value: ").unwrap_or(rest);
    let (value, why) = rest.rsplit_once(": ").unwrap_or(("null", rest));
    FieldError::new(
        format!("{path}.{field}"),
        Problem::InvalidText(value.to_owned(), why.to_owned()),
    )
}

//! Validates the defaults in a schema against the schema.

use serde_json::Value;

use super::ErrorList;
use crate::{
    crd::embedded::{OnMalformed, check_embedded, coerce_embedded},
    field_path::FieldPath,
    schema::{FieldError, Problem, Schema, SchemaView, prune, prune_object, validate},
};

pub(super) fn check(built: &Schema, document: &Value, path: &str, errors: &mut ErrorList) {
    walk(built.view(), document, path, true, errors);
}

fn walk(schema: SchemaView<'_>, document: &Value, path: &str, is_resource: bool, errors: &mut ErrorList) {
    if !document["default"].is_null() {
        check_default(
            schema,
            &document["default"],
            &format!("{path}.default"),
            is_resource,
            errors,
        );
    }
    if let Some(items) = schema.items() {
        walk(
            items,
            &document["items"],
            &format!("{path}.items"),
            items.node().embedded,
            errors,
        );
    }
    for (name, inner) in document["properties"].as_object().into_iter().flatten() {
        if let Some(property) = schema.property(name) {
            let path = format!("{path}.properties[{name}]");
            walk(property, inner, &path, property.node().embedded, errors);
        }
    }
}

fn check_default(
    schema: SchemaView<'_>,
    default: &Value,
    path: &str,
    is_resource: bool,
    errors: &mut ErrorList,
) {
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
            return;
        }
        let embedded = check_embedded(schema, fields, &FieldPath::from_root(path), is_resource);
        if !embedded.is_empty() {
            errors.0.extend(embedded);
            return;
        }
    }
    errors.0.extend(validate(schema, default, None, path));
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

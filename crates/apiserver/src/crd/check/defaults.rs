//! Whether the defaults in a schema are values that it allows.

use serde_json::Value;

use super::Findings;
use crate::{
    crd::embedded::{Malformed, check_embedded, coerce_embedded},
    schema::{FieldError, Problem, Schema, View, prune, prune_object, validate},
    trail::Trail,
};

pub(super) fn check(built: &Schema, document: &Value, path: &str, findings: &mut Findings) {
    walk(built.view(), document, path, true, findings);
}

fn walk(schema: View<'_>, document: &Value, path: &str, is_resource: bool, findings: &mut Findings) {
    if !document["default"].is_null() {
        check_default(
            schema,
            &document["default"],
            &format!("{path}.default"),
            is_resource,
            findings,
        );
    }
    if let Some(items) = schema.items() {
        walk(
            items,
            &document["items"],
            &format!("{path}.items"),
            items.facts().embedded,
            findings,
        );
    }
    for (name, inner) in document["properties"].as_object().into_iter().flatten() {
        if let Some(property) = schema.property(name) {
            let path = format!("{path}.properties[{name}]");
            walk(property, inner, &path, property.facts().embedded, findings);
        }
    }
}

fn check_default(schema: View<'_>, default: &Value, path: &str, is_resource: bool, findings: &mut Findings) {
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
        findings.invalid(path, default.clone(), "must not have unknown fields");
    }
    if let Value::Object(fields) = default {
        if let Err(why) = coerce_embedded(schema, &mut fields.clone(), Malformed::Refused) {
            findings.0.push(refused(path, &why));
            return;
        }
        let errors = check_embedded(schema, fields, &Trail::from_root(path), is_resource);
        if !errors.is_empty() {
            findings.0.extend(errors);
            return;
        }
    }
    findings.0.extend(validate(schema, default, None, path));
}

/// A refusal that says its field itself: `spec.kind: Invalid value: 5: must be a string`.
fn refused(path: &str, why: &str) -> FieldError {
    let (field, rest) = why.split_once(": ").unwrap_or(("", why));
    let rest = rest.strip_prefix("Invalid value: ").unwrap_or(rest);
    let (value, why) = rest.rsplit_once(": ").unwrap_or(("null", rest));
    FieldError::new(
        format!("{path}.{field}"),
        Problem::InvalidText(value.to_owned(), why.to_owned()),
    )
}

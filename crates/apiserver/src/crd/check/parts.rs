//! Validation of a CRD beside its schema: subresources, columns, selectable fields, conversion, CEL rules.

use std::collections::HashSet;

use serde_json::Value;
use windlass_api::naming;
use windlass_cel::rules::is_valid_field_path;

use super::{
    super::{list, text},
    ErrorList,
};
use crate::{schema::Problem, webhook::client_config_problems};

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];
const RULE_REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];
/// Maximum number of selectable fields.
const MAX_SELECTABLE_FIELDS: usize = 8;

pub(super) fn check_subresources(subresources: &Value, path: &str, errors: &mut ErrorList) {
    let scale = &subresources["scale"];
    if scale.is_null() {
        return;
    }
    for (key, roots, why) in [
        (
            "specReplicasPath",
            &[".spec."][..],
            "should be a json path under .spec",
        ),
        (
            "statusReplicasPath",
            &[".status."][..],
            "should be a json path under .status",
        ),
        (
            "labelSelectorPath",
            &[".spec.", ".status."][..],
            "should be a json path under either .spec or .status",
        ),
    ] {
        let (given, field) = (text(&scale[key]), format!("{path}.scale.{key}"));
        if given.is_empty() {
            if key != "labelSelectorPath" {
                errors.required(field, "");
            }
        } else if !given.starts_with('.') {
            errors.invalid(field, given, "must be a simple json path starting with .");
        } else if !roots.iter().any(|root| given.starts_with(root)) {
            errors.invalid(field, given, why);
        }
    }
}

pub(super) fn check_columns(columns: &Value, path: &str, errors: &mut ErrorList) {
    for (index, column) in list(columns).iter().enumerate() {
        let path = format!("{path}[{index}]");
        if text(&column["name"]).is_empty() {
            errors.required(format!("{path}.name"), "");
        }
        let kind = text(&column["type"]);
        let types = format!("must be one of {}", COLUMN_TYPES.join(","));
        if kind.is_empty() {
            errors.required(format!("{path}.type"), &types);
        } else if !COLUMN_TYPES.contains(&kind) {
            errors.invalid(format!("{path}.type"), kind, types);
        }
        let format = text(&column["format"]);
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let why = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.invalid(format!("{path}.format"), format, why);
        }
        let place = text(&column["jsonPath"]);
        if place.is_empty() {
            errors.required(format!("{path}.JSONPath"), "");
        } else if !place.starts_with('.') {
            let why = "must be a simple json path starting with .";
            errors.invalid(format!("{path}.JSONPath"), place, why);
        }
    }
}

pub(super) fn check_selectable(fields: &Value, schema: &Value, path: &str, errors: &mut ErrorList) {
    let mut seen = HashSet::new();
    for (index, field) in list(fields).iter().enumerate() {
        let (given, path) = (text(&field["jsonPath"]), format!("{path}[{index}].jsonPath"));
        if given.is_empty() {
            errors.required(path, "");
            continue;
        }
        let (names, found) = match resolve_path(given, schema) {
            Ok(found) => found,
            Err(why) => {
                errors.invalid(path, given, format!("is an invalid path: {why}"));
                continue;
            }
        };
        if names.first().is_some_and(|name| name == "metadata") {
            errors.invalid(&*path, given, "must not point to fields in metadata");
        }
        if !matches!(text(&found["type"]), "string" | "boolean" | "integer") {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.invalid(&*path, given, why);
        }
        let place = names.join(".");
        if !seen.insert(place) {
            errors.add(path, Problem::Duplicate(given.into()));
        }
    }
    if seen.len() > MAX_SELECTABLE_FIELDS {
        errors.add(path, Problem::TooMany(seen.len(), MAX_SELECTABLE_FIELDS as u64));
    }
}

/// Resolves a simple JSON path in a schema.
fn resolve_path<'a>(path: &str, schema: &'a Value) -> Result<(Vec<String>, &'a Value), String> {
    let mut names = Vec::new();
    let mut place = schema;
    let mut rest = path;
    while !rest.is_empty() {
        match rest.as_bytes()[0] {
            b'[' => return Err("array notation is not allowed".to_owned()),
            b'.' => {}
            _ => {
                let end = rest.find(['.', '[', ']']).unwrap_or(rest.len()).max(1);
                return Err(format!("expected [ or . but got: {}", &rest[..end]));
            }
        }
        rest = &rest[1..];
        if rest.is_empty() {
            return Err("unexpected end of JSON path".to_owned());
        }
        // A delimiter counts as a name here.
        let end = rest.find(['.', '[', ']']).unwrap_or(rest.len()).max(1);
        let (name, more) = rest.split_at(end);
        let missing = || "does not refer to a valid field".to_owned();
        place = match (place["properties"].as_object(), &place["additionalProperties"]) {
            (Some(properties), _) => properties.get(name).ok_or_else(missing)?,
            (None, Value::Null) => return Err(missing()),
            (None, additional) => additional,
        };
        names.push(name.to_owned());
        rest = more;
    }
    Ok((names, place))
}

pub(super) fn check_conversion(spec: &Value, errors: &mut ErrorList) {
    let conversion = &spec["conversion"];
    let path = "spec.conversion";
    let strategy = text(&conversion["strategy"]);
    if conversion.is_null() {
        return;
    }
    if strategy != "None" && spec["preserveUnknownFields"] == true {
        let why = "must be None if spec.preserveUnknownFields is true";
        errors.invalid(format!("{path}.strategy"), strategy, why);
    }
    match strategy {
        "" => errors.required(format!("{path}.strategy"), ""),
        "None" | "Webhook" => {}
        other => errors.unsupported(format!("{path}.strategy"), other, &["None", "Webhook"]),
    }
    let (client, reviews) = (
        &conversion["webhook"]["clientConfig"],
        list(&conversion["webhook"]["conversionReviewVersions"]),
    );
    if strategy != "Webhook" {
        let why = "should not be set when strategy is not set to Webhook";
        if !client.is_null() {
            errors.forbidden(format!("{path}.webhookClientConfig"), why);
        }
        if !reviews.is_empty() {
            errors.forbidden(format!("{path}.conversionReviewVersions"), why);
        }
        return;
    }
    let field = format!("{path}.webhookClientConfig");
    if client.is_null() {
        errors.required(field, "required when strategy is set to Webhook");
    } else {
        for (path, problem) in client_config_problems(client) {
            errors.add(format!("{field}{path}"), problem);
        }
    }
    check_reviews(reviews, &format!("{path}.conversionReviewVersions"), errors);
}

fn check_reviews(versions: &[Value], path: &str, errors: &mut ErrorList) {
    if versions.is_empty() {
        errors.required(path, "");
        return;
    }
    let mut seen = HashSet::new();
    for (index, version) in versions.iter().enumerate() {
        let (name, path) = (text(version), format!("{path}[{index}]"));
        if !seen.insert(version) {
            errors.invalid(path, name, "duplicate version");
            continue;
        }
        for why in naming::label_1035(name) {
            errors.invalid(&*path, name, why);
        }
    }
    if !versions
        .iter()
        .any(|version| matches!(text(version), "v1" | "v1beta1"))
    {
        errors.invalid(
            path,
            versions.to_vec(),
            "must include at least one of v1, v1beta1",
        );
    }
}

/// Validates the fields of a CEL rule, but not its expression.
pub(super) fn check_rules(schema: &Value, path: &str, errors: &mut ErrorList) {
    for (index, rule) in list(&schema["x-kubernetes-validations"]).iter().enumerate() {
        let path = format!("{path}.x-kubernetes-validations[{index}]");
        let given = |key: &str| text(&rule[key]);
        let has_breaks = |text: &str| text.contains(['\n', '\r']);
        let (expression, message) = (given("rule").trim(), given("message").trim());
        if expression.is_empty() {
            errors.required(format!("{path}.rule"), "rule is not specified");
        } else if !given("message").is_empty() && message.is_empty() {
            errors.invalid(
                format!("{path}.message"),
                given("message"),
                "must be non-empty if specified",
            );
        } else if has_breaks(message) {
            errors.invalid(
                format!("{path}.message"),
                given("message"),
                "must not contain line breaks",
            );
        } else if has_breaks(expression) && message.is_empty() {
            let why = "message must be specified if rule contains line breaks";
            errors.required(format!("{path}.message"), why);
        }
        if !given("messageExpression").is_empty() && given("messageExpression").trim().is_empty() {
            let why = "messageExpression must be non-empty if specified";
            errors.required(format!("{path}.messageExpression"), why);
        }
        if let Some(reason) = rule["reason"]
            .as_str()
            .filter(|reason| !RULE_REASONS.contains(reason))
        {
            errors.unsupported(format!("{path}.reason"), reason, &RULE_REASONS);
        }
        if !given("fieldPath").is_empty() && given("fieldPath").trim().is_empty() {
            errors.invalid(
                format!("{path}.fieldPath"),
                given("fieldPath"),
                "must be non-empty if specified",
            );
        }
        if has_breaks(given("fieldPath")) {
            errors.invalid(
                format!("{path}.fieldPath"),
                given("fieldPath"),
                "must not contain line breaks",
            );
        }
        if !given("fieldPath").is_empty() && !is_valid_field_path(given("fieldPath"), schema) {
            errors.invalid(
                format!("{path}.fieldPath"),
                given("fieldPath"),
                "must be a valid path",
            );
        }
    }
}

/// Validates the deprecation warning of a version.
pub(super) fn deprecation_problems(deprecated: bool, warning: &str) -> Vec<String> {
    if !deprecated {
        return vec!["can only be set for deprecated versions".to_owned()];
    }
    let mut problems = Vec::new();
    if warning.len() > 256 {
        problems.push("must be <= 256 characters long".to_owned());
    }
    if warning.is_empty() {
        problems.push("must not be an empty string".to_owned());
    }
    let unprintable = warning
        .char_indices()
        .find(|(_, c)| c.is_control() || (c.is_whitespace() && *c != ' '));
    if let Some((at, _)) = unprintable {
        problems.push(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        ));
    }
    problems
}

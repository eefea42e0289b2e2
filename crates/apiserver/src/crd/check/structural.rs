//! Checks that a schema is structural: it specifies every field once, outside of `allOf`, `anyOf`, `oneOf` and `not`.
//! These may only restrict values further.

use std::ops::{Deref, DerefMut};

use serde_json::{Map, Value, json};

use super::{
    super::{list, text},
    ErrorList,
};
use crate::schema::{FieldError, Patterns};

/// The position of a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Returns the errors of a schema that is not structural, sorted.
pub(super) fn check(schema: &Value, path: &str, patterns: &mut Patterns) -> Vec<FieldError> {
    let mut found = Findings {
        errors: ErrorList::default(),
        patterns,
    };
    check_invariants(schema, Level::Root, path, &mut found);
    check_completeness(schema, Some(schema), path, path, &mut found);
    let mut errors = found.errors.0;
    errors.sort_by_cached_key(|error| format!("{}: {}", error.field, error.message()));
    errors
}

/// The errors of a schema, and the patterns of its CRD.
struct Findings<'a> {
    errors: ErrorList,
    patterns: &'a mut Patterns,
}

impl Deref for Findings<'_> {
    type Target = ErrorList;

    fn deref(&self) -> &ErrorList {
        &self.errors
    }
}

impl DerefMut for Findings<'_> {
    fn deref_mut(&mut self) -> &mut ErrorList {
        &mut self.errors
    }
}

/// Why a schema cannot be converted to a structural one at all; it is not checked further then.
pub(super) fn structural_error(schema: &Value) -> Option<String> {
    let unsupported = [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ];
    if let Some((_, name)) = unsupported.iter().find(|(key, _)| is_set(&schema[*key])) {
        return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        return Some(
            "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined".to_owned(),
        );
    }
    if schema["items"].is_array() {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    let nested = ["allOf", "anyOf", "oneOf"]
        .into_iter()
        .flat_map(|key| list(&schema[key]));
    let single = ["not", "items", "additionalProperties"].map(|key| &schema[key]);
    let properties = schema["properties"].as_object().into_iter().flat_map(Map::values);
    nested
        .chain(single)
        .chain(properties)
        .filter(|schema| schema.is_object())
        .find_map(structural_error)
}

fn is_set(value: &Value) -> bool {
    !matches!(value, Value::Null) && *value != json!("") && *value != json!({}) && *value != json!([])
}

fn check_invariants(schema: &Value, level: Level, path: &str, errors: &mut Findings<'_>) {
    let kind = text(&schema["type"]);
    let flag = |key: &str| schema[key] == true;
    if kind == "array" && !schema["items"].is_object() {
        errors.required(format!("{path}.items"), "must be specified");
    }
    if schema["items"].is_object() {
        check_invariants(&schema["items"], Level::Item, &format!("{path}.items"), errors);
    }
    let properties = schema["properties"].as_object();
    for (name, property) in properties.into_iter().flatten() {
        check_invariants(
            property,
            Level::Field,
            &format!("{path}.properties[{name}]"),
            errors,
        );
    }
    let additional = &schema["additionalProperties"];
    if !additional.is_null() {
        if level == Level::Root {
            errors.forbidden(
                format!("{path}.additionalProperties"),
                "must not be used at the root",
            );
        }
        if additional.is_object() {
            check_invariants(
                additional,
                Level::Field,
                &format!("{path}.additionalProperties"),
                errors,
            );
        }
    }
    let (preserves, embedded, int_or_string) = (
        flag("x-kubernetes-preserve-unknown-fields"),
        flag("x-kubernetes-embedded-resource"),
        flag("x-kubernetes-int-or-string"),
    );
    for (key, set) in [
        ("x-kubernetes-preserve-unknown-fields", preserves),
        ("x-kubernetes-embedded-resource", embedded),
    ] {
        if int_or_string && set {
            let why = "must be false if x-kubernetes-int-or-string is true";
            errors.invalid(format!("{path}.{key}"), true, why);
        }
    }
    let skip_first = list(&schema["allOf"])
        .first()
        .is_some_and(|first| is_int_or_string(&first["anyOf"]));
    check_value_validations(
        schema,
        is_int_or_string(&schema["anyOf"]),
        skip_first,
        path,
        errors,
    );
    check_kind(schema, level, path, errors);
    if embedded && !additional.is_null() {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        errors.forbidden(format!("{path}.additionalProperties"), why);
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.invalid(format!("{path}.type"), kind, "must be object at the root");
    }
    if level == Level::Root || embedded {
        for key in ["kind", "apiVersion"] {
            if let Some(property) = properties.and_then(|fields| fields.get(key))
                && property["type"] != "string"
            {
                let field = format!("{path}.properties[{key}].type");
                errors.invalid(field, text(&property["type"]), "must be string");
            }
        }
    }
    if let Some(metadata) = properties.and_then(|fields| fields.get("metadata")) {
        let path = format!("{path}.properties[metadata]");
        if (level == Level::Root || embedded) && metadata["type"] != "object" {
            errors.invalid(format!("{path}.type"), text(&metadata["type"]), "must be object");
        }
        if level == Level::Root && !restricts_only_names(metadata) {
            errors.forbidden(
                path,
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            );
        }
    }
    if embedded && !preserves && properties.is_none_or(Map::is_empty) {
        errors.required(
            format!("{path}.properties"),
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        );
    }
}

fn check_kind(schema: &Value, level: Level, path: &str, errors: &mut Findings<'_>) {
    let kind = text(&schema["type"]);
    let flag = |key: &str| schema[key] == true;
    let field = format!("{path}.type");
    if flag("x-kubernetes-embedded-resource") && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        if kind.is_empty() {
            errors.required(field, why);
        } else {
            errors.invalid(field, kind, why);
        }
    } else if kind.is_empty()
        && !flag("x-kubernetes-int-or-string")
        && !flag("x-kubernetes-preserve-unknown-fields")
    {
        errors.required(
            field,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        );
    }
}

/// Whether a schema of metadata restricts at most the names.
fn restricts_only_names(metadata: &Value) -> bool {
    metadata
        .as_object()
        .into_iter()
        .flatten()
        .all(|(key, value)| match &**key {
            "type" | "default" => true,
            "properties" => value.as_object().is_some_and(|fields| {
                fields
                    .keys()
                    .all(|name| matches!(&**name, "name" | "generateName"))
            }),
            _ => !is_set(value) || *value == false,
        })
}

/// The `anyOf` with which an int-or-string may be written out.
fn is_int_or_string(any_of: &Value) -> bool {
    *any_of == json!([{"type": "integer"}, {"type": "string"}])
}

fn check_value_validations(
    schema: &Value,
    skip_any_of: bool,
    skip_first: bool,
    path: &str,
    errors: &mut Findings<'_>,
) {
    if !skip_any_of {
        for (index, nested) in list(&schema["anyOf"]).iter().enumerate() {
            check_nested_value_validations(nested, false, &format!("{path}.anyOf[{index}]"), errors);
        }
    }
    for (index, nested) in list(&schema["allOf"]).iter().enumerate() {
        check_nested_value_validations(
            nested,
            skip_first && index == 0,
            &format!("{path}.allOf[{index}]"),
            errors,
        );
    }
    for (index, nested) in list(&schema["oneOf"]).iter().enumerate() {
        check_nested_value_validations(nested, false, &format!("{path}.oneOf[{index}]"), errors);
    }
    if schema["not"].is_object() {
        check_nested_value_validations(&schema["not"], false, &format!("{path}.not"), errors);
    }
    let expression = text(&schema["pattern"]);
    if !expression.is_empty()
        && let Err(why) = errors.patterns.compile(expression)
    {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        errors.invalid(format!("{path}.pattern"), expression, why);
    }
}

/// Rejects what is not allowed inside `allOf`, `anyOf`, `oneOf` and `not`.
fn check_nested_value_validations(schema: &Value, skip_any_of: bool, path: &str, errors: &mut Findings<'_>) {
    check_value_validations(schema, skip_any_of, false, path, errors);
    if schema["items"].is_object() {
        check_nested_value_validations(&schema["items"], false, &format!("{path}.items"), errors);
    }
    let properties = schema["properties"].as_object();
    for (name, property) in properties.into_iter().flatten() {
        check_nested_value_validations(property, false, &format!("{path}.properties[{name}]"), errors);
    }
    let additional = &schema["additionalProperties"];
    for (key, wrong, must) in [
        ("type", is_set(&schema["type"]), "empty"),
        (
            "additionalProperties",
            additional.is_object() || *additional == true,
            "undefined",
        ),
        ("default", !schema["default"].is_null(), "undefined"),
        ("title", is_set(&schema["title"]), "empty"),
        ("description", is_set(&schema["description"]), "empty"),
        ("nullable", schema["nullable"] == true, "false"),
        (
            "x-kubernetes-preserve-unknown-fields",
            schema["x-kubernetes-preserve-unknown-fields"] == true,
            "false",
        ),
        (
            "x-kubernetes-embedded-resource",
            schema["x-kubernetes-embedded-resource"] == true,
            "false",
        ),
        (
            "x-kubernetes-int-or-string",
            schema["x-kubernetes-int-or-string"] == true,
            "false",
        ),
        (
            "x-kubernetes-list-map-keys",
            is_set(&schema["x-kubernetes-list-map-keys"]),
            "empty",
        ),
        (
            "x-kubernetes-list-type",
            !schema["x-kubernetes-list-type"].is_null(),
            "undefined",
        ),
        (
            "x-kubernetes-map-type",
            !schema["x-kubernetes-map-type"].is_null(),
            "undefined",
        ),
        (
            "x-kubernetes-validations",
            is_set(&schema["x-kubernetes-validations"]),
            "empty",
        ),
    ] {
        if wrong {
            errors.forbidden(
                format!("{path}.{key}"),
                format!("must be {must} to be structural"),
            );
        }
    }
    if properties.is_some_and(|fields| fields.contains_key("metadata")) {
        errors.forbidden(
            format!("{path}.properties[metadata]"),
            "must not be specified in a nested context",
        );
    }
}

/// Checks that everything a nested schema restricts is also in `specified`, the schema it restricts.
fn check_completeness(
    nested: &Value,
    specified: Option<&Value>,
    specified_path: &str,
    path: &str,
    errors: &mut Findings<'_>,
) {
    let lists = ["allOf", "anyOf", "oneOf"];
    if nested["not"].is_object() {
        check_specified(
            &nested["not"],
            specified,
            specified_path,
            &format!("{path}.not"),
            errors,
        );
    }
    for key in lists {
        for (index, inner) in list(&nested[key]).iter().enumerate() {
            check_specified(
                inner,
                specified,
                specified_path,
                &format!("{path}.{key}[{index}]"),
                errors,
            );
        }
    }
}

fn check_specified(
    nested: &Value,
    specified: Option<&Value>,
    specified_path: &str,
    path: &str,
    errors: &mut Findings<'_>,
) {
    let Some(specified) = specified else {
        errors.required(specified_path, &format!("because it is defined in {path}"));
        return;
    };
    check_completeness(nested, Some(specified), specified_path, path, errors);
    if nested["items"].is_object() {
        let items = Some(&specified["items"]).filter(|items| items.is_object());
        check_specified(
            &nested["items"],
            items,
            &format!("{specified_path}.items"),
            &format!("{path}.items"),
            errors,
        );
    }
    for (name, property) in nested["properties"].as_object().into_iter().flatten() {
        let (specified_path, path) = (
            format!("{specified_path}.properties[{name}]"),
            format!("{path}.properties[{name}]"),
        );
        check_specified(
            property,
            specified["properties"].get(name),
            &specified_path,
            &path,
            errors,
        );
    }
}

//! Restrictions of CRD schemas beyond OpenAPI, and constraints between the extensions.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{
    super::{list, text},
    ErrorList, go_json, parts,
    rules::{RuleErrors, Scope},
};
use crate::schema::Problem;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Limit on the keys of a list that its errors quote; errors beyond it are dropped.
const MAX_QUOTED_KEYS: usize = 256;

/// The fields allowed at the root of a schema if the status subresource is enabled, in Go's names.
const ROOT_FIELDS_WITH_STATUS: [&str; 22] = [
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];

/// Properties of the schema's position.
#[derive(Clone, Copy, Default)]
struct Position<'a> {
    is_root: bool,
    /// Within the kind or the metadata of a resource.
    inside_meta: bool,
    /// Why defaults are not allowed.
    no_defaults: Option<&'a str>,
    /// The rules at this position, if they are checked.
    rules: Option<Scope<'a>>,
    /// The path of a list above whose items have no old values.
    uncorrelatable: Option<&'a str>,
}

/// Checks a schema, and its rules if they are given: where the rest of the schema is valid.
pub(super) fn check(schema: &Value, path: &str, rules: Option<Scope<'_>>, errors: &mut ErrorList) {
    let place = Position {
        is_root: true,
        rules,
        ..Position::default()
    };
    let mut found = Found {
        errors,
        rules: RuleErrors::default(),
    };
    walk(schema, path, place, &mut found);
    found.rules.finish(path, found.errors);
}

/// The errors of a schema, and separately those of its rules, which follow them.
struct Found<'a> {
    errors: &'a mut ErrorList,
    rules: RuleErrors,
}

/// With a status subresource, the status is validated against its own part of the schema, so root-level constraints
/// would be lost.
pub(super) fn check_root_with_status(schema: &Value, path: &str, errors: &mut ErrorList) {
    for (go, key) in go_json::fields() {
        let value = &schema[key];
        if matches!(value, Value::Null | Value::Bool(false)) || *value == json!("") {
            continue;
        }
        if go == "Type" {
            if value != "object" {
                let why = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
                errors.invalid(format!("{path}.type"), value.clone(), why);
                break;
            }
        } else if !ROOT_FIELDS_WITH_STATUS.contains(&go) {
            let why = format!(
                "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                ROOT_FIELDS_WITH_STATUS.join(" ")
            );
            errors.add(path, Problem::InvalidText(go_json::schema(schema), why));
            break;
        }
    }
}

fn walk(schema: &Value, path: &str, place: Position<'_>, found: &mut Found<'_>) {
    if !schema.is_object() {
        return;
    }
    let known = found.errors.0.len();
    check_supported(schema, path, place, found.errors);
    if schema["uniqueItems"] == true {
        found.errors.forbidden(
            format!("{path}.uniqueItems"),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        );
    }
    let inner = Position {
        is_root: false,
        ..place
    };
    // There are no rules in what only restricts a value.
    let restricting = Position { rules: None, ..inner };
    let additional = &schema["additionalProperties"];
    let properties = schema["properties"]
        .as_object()
        .filter(|fields| !fields.is_empty());
    if !additional.is_null() {
        if properties.is_some() && *additional != true {
            found.errors.forbidden(
                format!("{path}.additionalProperties"),
                "additionalProperties and properties are mutual exclusive",
            );
        }
        let no_defaults = if place.inside_meta {
            Some("inside additionalProperties applying to object metadata")
        } else {
            place.no_defaults
        };
        walk(
            additional,
            &format!("{path}.additionalProperties"),
            Position {
                no_defaults,
                rules: place.rules.map(|rules| rules.child(schema, |part| part.values())),
                ..inner
            },
            found,
        );
    }
    let is_resource = place.is_root || schema["x-kubernetes-embedded-resource"] == true;
    for (name, property) in properties.into_iter().flatten() {
        let is_meta = is_resource && matches!(&**name, "metadata" | "kind" | "apiVersion");
        let why = format!("in top-level {name}");
        let place = Position {
            inside_meta: place.inside_meta || is_meta,
            no_defaults: if is_meta && place.is_root {
                Some(&why)
            } else {
                place.no_defaults
            },
            is_root: false,
            rules: place
                .rules
                .map(|rules| rules.child(schema, |part| part.property(name))),
            uncorrelatable: place.uncorrelatable,
        };
        walk(property, &format!("{path}.properties[{name}]"), place, found);
    }
    walk_restrictions(schema, path, restricting, found);
    let of_items = Position {
        rules: place.rules.map(|rules| rules.child(schema, |part| part.items())),
        uncorrelatable: place
            .uncorrelatable
            .or((schema["x-kubernetes-list-type"] != "map").then_some(path)),
        ..inner
    };
    match &schema["items"] {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, &format!("{path}.items[{index}]"), of_items, found);
            }
        }
        items => walk(items, &format!("{path}.items"), of_items, found),
    }
    for (name, dependency) in schema["dependencies"].as_object().into_iter().flatten() {
        walk(
            dependency,
            &format!("{path}.dependencies[{name}]"),
            restricting,
            found,
        );
    }
    check_extensions(schema, path, found.errors);
    check_keys(schema, path, found.errors);
    parts::check_rules(schema, path, found.errors);
    // Not if the schema here or below has errors: an expression may depend on what is wrong.
    if let Some(rules) = place.rules.filter(|_| found.errors.0.len() == known) {
        found.rules.check(schema, path, &rules, place.uncorrelatable);
    }
}

/// Walks the schemas that restrict the same value.
fn walk_restrictions(schema: &Value, path: &str, restricting: Position<'_>, found: &mut Found<'_>) {
    walk(&schema["not"], &format!("{path}.not"), restricting, found);
    for key in ["allOf", "oneOf", "anyOf"] {
        for (index, nested) in list(&schema[key]).iter().enumerate() {
            walk(nested, &format!("{path}.{key}[{index}]"), restricting, found);
        }
    }
    for (name, definition) in schema["definitions"].as_object().into_iter().flatten() {
        walk(
            definition,
            &format!("{path}.definitions[{name}]"),
            restricting,
            found,
        );
    }
}

fn check_supported(schema: &Value, path: &str, place: Position<'_>, errors: &mut ErrorList) {
    let kind = text(&schema["type"]);
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.unsupported(format!("{path}.type"), kind, &TYPES);
    }
    if let Some(why) = place.no_defaults.filter(|_| !schema["default"].is_null()) {
        errors.forbidden(format!("{path}.default"), format!("must not be set {why}"));
    }
    for key in [
        "id",
        "additionalItems",
        "patternProperties",
        "definitions",
        "dependencies",
        "$ref",
    ] {
        let value = &schema[key];
        if !value.is_null() && *value != json!("") && *value != json!({}) {
            errors.forbidden(format!("{path}.{key}"), format!("{key} is not supported"));
        }
    }
    if kind == "null" {
        errors.forbidden(
            format!("{path}.type"),
            "type cannot be set to null, use nullable as an alternative",
        );
    }
    if schema["items"].as_array().is_some_and(|items| !items.is_empty()) {
        errors.forbidden(
            format!("{path}.items"),
            "items must be a schema object and not an array",
        );
    }
    if place.inside_meta && schema["x-kubernetes-embedded-resource"] == true {
        let field = format!("{path}.x-kubernetes-embedded-resource");
        errors.forbidden(field, "must not be used inside of resource meta");
    }
}

fn check_extensions(schema: &Value, path: &str, errors: &mut ErrorList) {
    let kind = text(&schema["type"]);
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let field = format!("{path}.x-kubernetes-preserve-unknown-fields");
        errors.invalid(field, false, "must be true or undefined");
    }
    for (key, wanted, choices) in [
        ("x-kubernetes-map-type", "object", &["atomic", "granular"][..]),
        ("x-kubernetes-list-type", "array", &["atomic", "set", "map"][..]),
    ] {
        let Some(given) = schema[key].as_str() else {
            continue;
        };
        let why = format!("must be {wanted} if {key} is specified");
        if kind.is_empty() {
            errors.required(format!("{path}.type"), &why);
        } else if kind != wanted {
            errors.invalid(format!("{path}.type"), kind, why);
        } else if given == "set" {
            check_set(&schema["items"], path, errors);
        }
        if !choices.contains(&given) {
            errors.unsupported(format!("{path}.{key}"), given, choices);
        }
    }
}

/// The items of a set must be atomic.
fn check_set(items: &Value, path: &str, errors: &mut ErrorList) {
    let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list_type = &items["x-kubernetes-list-type"];
    match text(&items["type"]) {
        "array" if !list_type.is_null() && list_type != "atomic" => {
            let field = format!("{path}.items.x-kubernetes-list-type");
            errors.invalid(field, list_type.clone(), why);
        }
        "object" if items["x-kubernetes-map-type"] != "atomic" => {
            let field = format!("{path}.items.x-kubernetes-map-type");
            errors.invalid(field, list_type.clone(), why);
        }
        _ => {}
    }
}

/// Checks the requirements of a list with `x-kubernetes-list-type: map`.
fn check_keys(schema: &Value, path: &str, errors: &mut ErrorList) {
    let keys = list(&schema["x-kubernetes-list-map-keys"]);
    let list_type = schema["x-kubernetes-list-type"].as_str();
    let items = &schema["items"];
    if !keys.is_empty() && list_type != Some("map") {
        let field = format!("{path}.x-kubernetes-list-type");
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            None => errors.required(field, why),
            Some(other) => errors.invalid(field, other, why),
        }
    }
    if list_type == Some("map") {
        let field = format!("{path}.x-kubernetes-list-map-keys");
        if keys.is_empty() {
            errors.required(&*field, "must not be empty if x-kubernetes-list-type is map");
        }
        if items.is_null() {
            let why = "must have a schema if x-kubernetes-list-type is map";
            errors.required(format!("{path}.items"), why);
        } else if items.is_object() && items["type"] != "object" {
            let why = "must be object if parent array's x-kubernetes-list-type is map";
            errors.invalid(format!("{path}.items.type"), text(&items["type"]), why);
        } else if items.is_object() {
            let (mut seen, mut quoted) = (HashSet::new(), 0);
            // Each error quotes all keys.
            let mut quote = |why: &str, errors: &mut ErrorList| {
                if quoted <= MAX_QUOTED_KEYS {
                    quoted += keys.len();
                    errors.invalid(&*field, keys.to_vec(), why);
                }
            };
            for key in keys {
                match items["properties"].get(text(key)) {
                    Some(property) if matches!(text(&property["type"]), "array" | "object") => {
                        let field = format!("{path}.items.properties[{}].type", text(key));
                        let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                        errors.invalid(field, text(&items["type"]), why);
                    }
                    Some(_) => {}
                    None => quote("entries must all be names of item properties", errors),
                }
                if !seen.insert(key) {
                    quote("must not contain duplicate entries", errors);
                }
            }
        }
    }
    if let Some(list_type @ ("set" | "map")) = list_type.filter(|_| items.is_object()) {
        if items["nullable"] == true {
            let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
            errors.forbidden(format!("{path}.items.nullable"), why);
        }
        let required: HashSet<_> = list(&items["required"]).iter().collect();
        for key in keys.iter().filter(|_| list_type == "map") {
            let Some(property) = items["properties"].get(text(key)) else {
                continue;
            };
            let field = format!("{path}.items.properties[{}]", text(key));
            if !required.contains(key) && property["default"].is_null() {
                let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                errors.required(format!("{field}.default"), why);
            }
            if property["nullable"] == true {
                let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                errors.forbidden(format!("{field}.nullable"), why);
            }
        }
    }
}

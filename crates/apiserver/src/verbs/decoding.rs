//! Decodes a request body into an object: checks its kind, drops unknown fields, fills in defaults.

use serde_json::{Map, Value};

use super::FieldValidation;
use crate::{
    crd, fields, golang, json,
    kinds::{self, Write},
    media::{self, Encoding},
    object::{ManagedFields, Object},
    registry::{self, Resource, is_built_in_kind},
    schema::{self, FieldError, Problem, Schema, Source},
    status::Status,
    warnings::Warnings,
    yaml,
};

/// Decodes a body as an object of the resource's kind and drops unknown fields. Returns it with the warnings.
pub(crate) fn decode(
    resource: &Resource,
    body: &[u8],
    encoding: Encoding,
    validation: FieldValidation,
) -> Result<(Object, Warnings), Status> {
    decode_update("", resource, body, encoding, validation)
}

/// Like [`decode`], for a body that may contain the stored managed fields unchanged.
pub(super) fn decode_update(
    managed_fields: &str,
    resource: &Resource,
    body: &[u8],
    encoding: Encoding,
    validation: FieldValidation,
) -> Result<(Object, Warnings), Status> {
    let returned = match encoding {
        Encoding::Json => fields::read_with_unchanged_managed_fields(body, managed_fields),
        _ => None,
    };
    let is_returned = returned.is_some();
    let (value, duplicates) = match returned {
        Some((value, paths)) => (value, media::duplicate_field_messages(paths)),
        None => media::read_object(body, encoding, resource)?,
    };
    let value = check_and_set_kind(value, body, resource)?;
    let (mut object, unknown) =
        to_object(value, resource, Source::Json).map_err(|why| cannot_be_handled(resource, &why))?;
    if is_returned {
        object.set_managed_fields(ManagedFields::from_stored(managed_fields.to_owned()));
    }
    let duplicates = match (encoding, validation) {
        (Encoding::Yaml, FieldValidation::Strict) if !duplicates.is_empty() => {
            vec![yaml::strict_error(&duplicates)]
        }
        _ => duplicates,
    };
    let problems = match encoding {
        // Custom resources are first read as a tree, and pruned afterwards.
        Encoding::Json if !resource.is_custom => {
            problems_in_order(resource.schema.as_ref(), body, duplicates, unknown)
        }
        _ => all_problems(duplicates, unknown),
    };
    let warnings =
        apply_field_validation(problems, validation).map_err(|why| cannot_be_handled(resource, &why))?;
    Ok((object, warnings))
}

/// Messages about the duplicate and unknown fields of a JSON body, as many and in the order that the real server reports.
fn problems_in_order(
    schema: Option<&Schema>,
    body: &[u8],
    duplicates: Vec<String>,
    unknown: Vec<String>,
) -> Vec<String> {
    match schema {
        // The order matters, or the duplicate may be inside of an unknown field.
        Some(schema) if !duplicates.is_empty() || unknown.len() > 1 => {
            schema::problems_in_order(schema.view(), body)
        }
        _ => all_problems(duplicates, unknown),
    }
}

/// Messages about duplicate fields, then about unknown ones, as many as the real server reports.
pub(super) fn all_problems(duplicates: Vec<String>, unknown: Vec<String>) -> Vec<String> {
    let unknown = unknown.into_iter().map(|path| format!("unknown field {path:?}"));
    json::first_problems(duplicates.into_iter().chain(unknown))
}

/// Converts a JSON tree into an object of the kind: drops unknown fields and fills in defaults. Returns it with the paths
/// of unknown fields, or the decoding error.
pub(crate) fn to_object(
    mut value: Value,
    resource: &Resource,
    source: Source,
) -> Result<(Object, Vec<String>), String> {
    // Go's encoder drops an empty list, but this one resets the managed fields.
    let forgets = value["metadata"].get("managedFields") == Some(&Value::Array(Vec::new()));
    let unknown = if resource.is_custom {
        crd::prune_and_default(resource, &mut value, source)?
    } else {
        match &resource.schema {
            Some(schema) => schema::decode(schema.view(), &mut value, source)?,
            None => Vec::new(),
        }
    };
    let mut object =
        Object::new(value).ok_or("json: cannot unmarshal into an object with metadata".to_owned())?;
    if forgets {
        object.set_managed_fields(ManagedFields::Submitted(Value::Array(Vec::new())));
    }
    kinds::apply_defaults(resource, &mut object);
    Ok((object, unknown))
}

/// Decodes the body of a subresource whose kind is not a resource, with the same field validation.
pub(crate) fn decode_subresource(
    (group, kind): (&str, &str),
    body: &[u8],
    encoding: Encoding,
    validation: FieldValidation,
) -> Result<(Value, Warnings), Status> {
    let (mut value, duplicates) = media::read(body, encoding, kind)?;
    check_body_kind(&value, group, kind)?;
    let refuse = |why: String| {
        Status::bad_request(format!(
            "{kind} in version \"v1\" cannot be handled as a {kind}: {why}"
        ))
    };
    let schema = registry::subresource_schema(kind);
    let unknown = schema::decode(schema.view(), &mut value, Source::Json).map_err(refuse)?;
    let problems = match encoding {
        Encoding::Json => problems_in_order(Some(schema), body, duplicates, unknown),
        _ => all_problems(duplicates, unknown),
    };
    let warnings = apply_field_validation(problems, validation).map_err(refuse)?;
    Ok((value, warnings))
}

/// Restores the form that Go's encoder gives an object of a built-in kind, after the server has changed it.
pub(crate) fn normalize(object: &mut Object, resource: &Resource) {
    let Some(schema) = resource.schema.as_ref().filter(|_| !resource.is_custom) else {
        return;
    };
    let mut value = Value::Object(std::mem::take(object.fields_mut()));
    schema::renormalize(schema.view(), &mut value);
    if let Value::Object(fields) = value {
        *object.fields_mut() = fields;
    }
}

/// Applies `fieldValidation` to problems with fields: returns the warnings, or the strict decoding error.
pub(super) fn apply_field_validation(
    problems: Vec<String>,
    validation: FieldValidation,
) -> Result<Warnings, String> {
    match validation {
        FieldValidation::Strict if !problems.is_empty() => {
            Err(format!("strict decoding error: {}", problems.join(", ")))
        }
        FieldValidation::Warn => Ok(problems.into()),
        _ => Ok(Warnings::default()),
    }
}

/// Validates an object that is about to be written; `old` is the one it replaces.
pub(super) fn check(
    resource: &Resource,
    subresource: &str,
    object: &Object,
    old: Option<&Object>,
    warnings: &mut Warnings,
) -> Vec<FieldError> {
    let write = Write {
        resource,
        object,
        old,
    };
    resource.strategy.validate_object(&write, subresource, warnings)
}

/// Go's message for a value that is not an object, where it expects `apiVersion` and `kind`.
pub(super) fn not_a_struct(value: &Value) -> String {
    format!(
        "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
         \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
        golang::json_type(value)
    )
}

/// Checks the `kind` and `apiVersion` of a decoded body, and sets them where they are absent.
fn check_and_set_kind(mut value: Value, body: &[u8], resource: &Resource) -> Result<Value, Status> {
    if value.is_null() {
        value = Value::Object(Map::new());
    }
    let Value::Object(fields) = &value else {
        return Err(media::unrecognized(body, &resource.kind, &not_a_struct(&value)));
    };
    let mut type_fields = [("kind", ""), ("apiVersion", "")];
    for (key, text) in &mut type_fields {
        *text = match fields.get(*key) {
            None | Some(Value::Null) => "",
            Some(Value::String(text)) => text,
            Some(other) => {
                let why = format!(
                    "json: cannot unmarshal {} into Go struct field .{key} of type string",
                    golang::json_type(other)
                );
                return Err(media::unrecognized(body, &resource.kind, &why));
            }
        };
    }
    let [(_, kind), (_, version)] = type_fields;
    if resource.is_custom {
        check_custom_kind(kind, version, fields, body, resource)?;
    }
    if version.matches('/').count() > 1 {
        return Err(media::malformed_version(body, &resource.kind, version));
    }
    let own = resource.api_version();
    if let Err(why) = check_kind(kind, version, resource) {
        let (group, short) = split_api_version(if version.is_empty() { &own } else { version });
        // The real server has another message where only the version differs and is known.
        return Err(Status::bad_request(
            if (kind.is_empty() || *kind == *resource.kind)
                && (resource.is_custom || is_built_in_kind(group, short, &resource.kind))
            {
                format!(
                    "the API version in the data ({version}) does not match the expected API version ({own})"
                )
            } else {
                let kind = if kind.is_empty() { &resource.kind } else { kind };
                format!(
                    "{kind} in version {short:?} cannot be handled as a {}: {why}",
                    resource.kind
                )
            },
        ));
    }
    value["kind"] = resource.kind.to_string().into();
    value["apiVersion"] = resource.api_version().into();
    Ok(value)
}

/// A custom resource must have `kind` and `apiVersion`, and the right kind.
fn check_custom_kind(
    kind: &str,
    version: &str,
    fields: &Map<String, Value>,
    body: &[u8],
    resource: &Resource,
) -> Result<(), Status> {
    if kind.is_empty() {
        return Err(media::missing_kind(body, &resource.kind));
    }
    if version.is_empty() {
        return Err(Status::bad_request(format!(
            "the API version in the data () does not match the expected API version ({})",
            resource.api_version()
        )));
    }
    if *kind != *resource.kind && version == resource.api_version() {
        let name = fields
            .get("metadata")
            .map_or("", |metadata| metadata["name"].as_str().unwrap_or_default());
        return Err(wrong_custom_kind(kind, name, resource));
    }
    Ok(())
}

/// The error for a custom resource with another kind of its group.
pub(super) fn wrong_custom_kind(kind: &str, name: &str, resource: &Resource) -> Status {
    let problem = Problem::Invalid(kind.into(), format!("must be {}", resource.kind));
    Status::invalid(&resource.group, kind, name, &[FieldError::new("kind", problem)])
}

/// Rejects another kind or version. Either may be empty.
pub(super) fn check_kind(kind: &str, version: &str, resource: &Resource) -> Result<(), String> {
    let own = resource.api_version();
    let kind = if kind.is_empty() { &resource.kind } else { kind };
    let api_version = if version.is_empty() { &own } else { version };
    if *kind == *resource.kind && api_version == own {
        return Ok(());
    }
    let (group, short) = split_api_version(api_version);
    Err(if resource.is_custom || is_built_in_kind(group, short, kind) {
        unknown_conversion(api_version, kind, (&resource.group, &resource.kind))
    } else {
        unregistered_kind(api_version, kind)
    })
}

/// The message for an object of a known kind that is not the expected one.
fn unknown_conversion(api_version: &str, kind: &str, (group, own): (&str, &str)) -> String {
    // The real server's internal package is named after the first part of the group.
    let internal = match group.split_once('.') {
        None if group.is_empty() => "core",
        Some((first, rest)) if rest.ends_with("k8s.io") => first,
        _ => group,
    };
    let api_version = api_version.replace('/', ".");
    format!("converting ({api_version}.{kind}) to ({internal}.{own}): unknown conversion")
}

fn unregistered_kind(api_version: &str, kind: &str) -> String {
    format!(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
    )
}

/// Rejects the body of a subresource with another kind. Kind and version may be empty.
fn check_body_kind(body: &Value, group: &str, own: &str) -> Result<(), Status> {
    let text = |key: &str| body[key].as_str().unwrap_or_default();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    let (body_group, short) = split_api_version(api_version);
    if (kind.is_empty() || kind == own) && (api_version.is_empty() || body_group == group) {
        return Ok(());
    }
    let kind = if kind.is_empty() { own } else { kind };
    let why = if is_built_in_kind(body_group, short, kind) {
        unknown_conversion(api_version, kind, (group, own))
    } else {
        unregistered_kind(api_version, kind)
    };
    Err(Status::bad_request(format!(
        "{kind} in version {short:?} cannot be handled as a {own}: {why}"
    )))
}

/// Splits `apps/v1` into group and version.
fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

fn cannot_be_handled(resource: &Resource, why: &str) -> Status {
    Status::bad_request(format!(
        "{0} in version {1:?} cannot be handled as a {0}: {why}",
        resource.kind, &*resource.version
    ))
}

//! From a body to an object that may be written: its kind, its fields, its rules.

use serde_json::Value;

use super::FieldValidation;
use crate::{
    media::{self, Encoding},
    object::Object,
    particular,
    registry::{Resource, object_meta},
    schema::{FieldError, Problem, fill_defaults, prune, validate},
    status::Status,
    validation,
};

/// Reads a body as an object of the target's kind, and drops what its schema does not know.
pub(super) fn decode(
    resource: &Resource,
    body: &[u8],
    encoding: Encoding,
    validation: FieldValidation,
) -> Result<(Object, Vec<String>), Status> {
    let value = media::decode_object(body, encoding, resource)?;
    let object = as_kind(value, resource)?;
    conform(object, resource, validation)
}

/// Drops unknown fields, with a warning or a refusal as the client wishes, and fills in defaults.
pub(super) fn conform(
    object: Object,
    resource: &Resource,
    validation: FieldValidation,
) -> Result<(Object, Vec<String>), Status> {
    let mut value = object.into_value();
    let mut metadata = value["metadata"].take();
    let mut unknown = prune(object_meta().view(), &mut metadata);
    for path in &mut unknown {
        path.insert_str(0, "metadata.");
    }
    if let Some(schema) = &resource.schema {
        // Kind and version are checked by whoever decodes; a CRD's schema need not describe them.
        let head = ["apiVersion", "kind"].map(|key| (key, value[key].take()));
        let fields = value.as_object_mut().expect("was an object");
        for key in ["apiVersion", "kind", "metadata"] {
            fields.remove(key);
        }
        unknown.extend(prune(schema.view(), &mut value));
        if resource.custom {
            fill_defaults(schema.view(), &mut value);
        }
        for (key, text) in head {
            value[key] = text;
        }
    }
    value["metadata"] = metadata;
    let object = Object::new(value).expect("was an object with metadata");
    let named = |path: &String| format!("unknown field {path:?}");
    match validation {
        FieldValidation::Strict if !unknown.is_empty() => {
            let all: Vec<_> = unknown.iter().map(named).collect();
            Err(cannot_be_handled(
                resource,
                &format!("strict decoding error: {}", all.join(", ")),
            ))
        }
        FieldValidation::Warn => Ok((object, unknown.iter().map(named).collect())),
        _ => Ok((object, Vec::new())),
    }
}

/// What is wrong with an object that is about to be written.
pub(super) fn check(object: &Object, resource: &Resource) -> Vec<FieldError> {
    let mut errors = validation::metadata(object);
    if let Some(schema) = resource.schema.as_ref().filter(|_| resource.custom) {
        let root = schema.view();
        for name in root
            .facts()
            .required
            .iter()
            .filter(|name| !object.fields().contains_key(&***name))
        {
            errors.push(FieldError::new(&**name, Problem::Required(String::new())));
        }
        for (name, field) in object.fields().iter().filter(|(name, _)| *name != "metadata") {
            if let Some(property) = root.property(name) {
                errors.extend(validate(property, field, name));
            }
        }
    }
    errors.extend(particular::check(resource, object));
    errors
}

/// Takes a decoded body as an object of the resource's kind; what does not say its kind is given it.
pub(super) fn as_kind(value: Value, resource: &Resource) -> Result<Object, Status> {
    let mut object = Object::new(value)
        .ok_or_else(|| cannot_be_handled(resource, "json: cannot unmarshal into an object with metadata"))?;
    let said = |key: &str| {
        object
            .fields()
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (kind, version) = (said("kind"), said("apiVersion"));
    if !kind.is_empty() && *kind != *resource.kind {
        let group = if resource.group.is_empty() {
            "core"
        } else {
            &resource.group
        };
        return Err(Status::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {}: converting ({version}.{kind}) to ({group}.{}): unknown conversion",
            &*resource.version, resource.kind, resource.kind
        )));
    }
    if !version.is_empty() && version != resource.api_version() {
        return Err(Status::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({})",
            resource.api_version()
        )));
    }
    object
        .fields_mut()
        .insert("kind".into(), resource.kind.to_string().into());
    object
        .fields_mut()
        .insert("apiVersion".into(), resource.api_version().into());
    Ok(object)
}

fn cannot_be_handled(resource: &Resource, why: &str) -> Status {
    Status::bad_request(format!(
        "{0} in version {1:?} cannot be handled as a {0}: {why}",
        resource.kind, &*resource.version
    ))
}

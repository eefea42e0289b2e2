//! From a body to an object that may be written: its kind, its fields, its rules.

use serde_json::{Map, Value};

use super::FieldValidation;
use crate::{
    crd, defaults, fields, golang, json,
    media::{self, Encoding},
    object::{Account, Object},
    registry::{self, Resource, is_kind},
    schema::{self, FieldError, Problem, Source},
    status::Status,
    strategies, validation, yaml,
};

/// Reads a body as an object of the target's kind, and drops what its schema does not know.
pub(crate) fn decode(
    resource: &Resource,
    body: &[u8],
    encoding: Encoding,
    validation: FieldValidation,
) -> Result<(Object, Vec<String>), Status> {
    decode_over("", resource, body, encoding, validation)
}

/// As [`decode`], of a body that may send back an account that is known.
pub(super) fn decode_over(
    account: &str,
    resource: &Resource,
    body: &[u8],
    encoding: Encoding,
    validation: FieldValidation,
) -> Result<(Object, Vec<String>), Status> {
    let returned = match encoding {
        Encoding::Json => fields::read_returned(body, account),
        _ => None,
    };
    let is_returned = returned.is_some();
    let (value, twice) = match returned {
        Some((value, paths)) => (value, media::repeated(paths)),
        None => media::read_object(body, encoding, resource)?,
    };
    let value = as_kind(value, body, resource)?;
    let (mut object, unknown) =
        conform(value, resource, Source::Json).map_err(|why| cannot_be_handled(resource, &why))?;
    if is_returned {
        object.set_account(Account::kept(account.to_owned()));
    }
    let twice = match (encoding, validation) {
        (Encoding::Yaml, FieldValidation::Strict) if !twice.is_empty() => vec![yaml::strictly(&twice)],
        _ => twice,
    };
    let problems = json::first_problems(twice.into_iter().chain(unknown));
    let warnings = judge(problems, validation).map_err(|why| cannot_be_handled(resource, &why))?;
    Ok((object, warnings))
}

/// Takes a tree as an object of the kind: drops unknown fields and fills in defaults. Returns what the client may want
/// to know of, or why it is no such object.
pub(super) fn conform(
    mut value: Value,
    resource: &Resource,
    source: Source,
) -> Result<(Object, Vec<String>), String> {
    // An empty list is no list to Go's encoder, but here it has a meaning.
    let forgets = value["metadata"].get("managedFields") == Some(&Value::Array(Vec::new()));
    let mut unknown = if resource.custom {
        crd::accept(resource, &mut value, source)?
    } else {
        match &resource.schema {
            Some(schema) => schema::decode(schema.view(), &mut value, source)?,
            None => Vec::new(),
        }
    };
    let mut object =
        Object::new(value).ok_or("json: cannot unmarshal into an object with metadata".to_owned())?;
    if forgets {
        object.set_account(Account::Said(Value::Array(Vec::new())));
    }
    defaults::fill(resource, &mut object);
    strategies::default(resource, &mut object);
    if !resource.custom {
        unknown.sort_unstable();
    }
    Ok((object, told(unknown)))
}

/// What is said of fields that no schema has.
fn told(mut unknown: Vec<String>) -> Vec<String> {
    for path in &mut unknown {
        *path = format!("unknown field {path:?}");
    }
    unknown
}

/// Reads the body of a subresource, whose kind is served nowhere else, as strictly as any object.
pub(crate) fn decode_part(
    (group, kind): (&str, &str),
    body: &[u8],
    encoding: Encoding,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), Status> {
    let (mut value, twice) = media::read(body, encoding, kind)?;
    check_body_kind(&value, group, kind)?;
    let refuse = |why: String| {
        Status::bad_request(format!(
            "{kind} in version \"v1\" cannot be handled as a {kind}: {why}"
        ))
    };
    let unknown = schema::decode(registry::part(kind).view(), &mut value, Source::Json).map_err(refuse)?;
    let problems = twice.into_iter().chain(told(unknown)).collect();
    let warnings = judge(problems, validation).map_err(refuse)?;
    Ok((value, warnings))
}

/// Brings a built-in kind's object back into the form that Go gives it, after the server has changed it.
pub(crate) fn normalize(object: &mut Object, resource: &Resource) {
    let Some(schema) = resource.schema.as_ref().filter(|_| !resource.custom) else {
        return;
    };
    let mut value = Value::Object(std::mem::take(object.fields_mut()));
    schema::tidy(schema.view(), &mut value);
    if let Value::Object(fields) = value {
        *object.fields_mut() = fields;
    }
}

/// What becomes of the problems with fields: warnings, nothing, or the refusal.
pub(super) fn judge(problems: Vec<String>, validation: FieldValidation) -> Result<Vec<String>, String> {
    match validation {
        FieldValidation::Strict if !problems.is_empty() => {
            Err(format!("strict decoding error: {}", problems.join(", ")))
        }
        FieldValidation::Warn => Ok(problems),
        _ => Ok(Vec::new()),
    }
}

/// What is wrong with an object that is about to be written, over another one or not.
pub(super) fn check(
    resource: &Resource,
    subresource: &str,
    object: &Object,
    old: Option<&Object>,
) -> Vec<FieldError> {
    let is_status = subresource == "status";
    if resource.custom {
        let part = if is_status {
            crd::Part::Status
        } else {
            crd::Part::Whole
        };
        return crd::check_object(resource, object, old, part);
    }
    let mut errors = validation::metadata(object, resource);
    if crd::is_definition(resource) {
        errors.extend(if is_status {
            crd::check_status(object)
        } else {
            crd::check(object, old)
        });
    }
    errors
}

/// What Go says of something that is no object where it looks for kind and version.
pub(super) fn no_struct(value: &Value) -> String {
    format!(
        "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
         \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
        golang::json_type(value)
    )
}

/// Takes a decoded body as one of the resource's kind; what does not say its kind is given it.
fn as_kind(mut value: Value, body: &[u8], resource: &Resource) -> Result<Value, Status> {
    if value.is_null() {
        value = Value::Object(Map::new());
    }
    let Value::Object(fields) = &value else {
        return Err(media::unrecognized(body, &resource.kind, &no_struct(&value)));
    };
    let mut said = [("kind", ""), ("apiVersion", "")];
    for (key, text) in &mut said {
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
    let [(_, kind), (_, version)] = said;
    if resource.custom {
        check_custom_kind(kind, version, fields, body, resource)?;
    }
    if version.matches('/').count() > 1 {
        return Err(media::malformed_version(body, &resource.kind, version));
    }
    let own = resource.api_version();
    if let Err(why) = check_kind(kind, version, resource) {
        let (group, short) = split(if version.is_empty() { &own } else { version });
        // Where only the version is another one, and known, the real server says it in other words.
        return Err(Status::bad_request(
            if (kind.is_empty() || *kind == *resource.kind)
                && (resource.custom || is_kind(group, short, &resource.kind))
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

/// An object of a custom kind must say its kind, and the right one.
fn check_custom_kind(
    kind: &str,
    version: &str,
    fields: &Map<String, Value>,
    body: &[u8],
    resource: &Resource,
) -> Result<(), Status> {
    if kind.is_empty() {
        return Err(media::without_kind(body, &resource.kind));
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

/// The refusal of a custom object that says it is of another kind of its group.
pub(super) fn wrong_custom_kind(kind: &str, name: &str, resource: &Resource) -> Status {
    let problem = Problem::Invalid(kind.into(), format!("must be {}", resource.kind));
    Status::invalid(&resource.group, kind, name, &[FieldError::new("kind", problem)])
}

/// Refuses what says that it is of another kind or version; saying nothing is fine.
pub(super) fn check_kind(kind: &str, version: &str, resource: &Resource) -> Result<(), String> {
    let own = resource.api_version();
    let kind = if kind.is_empty() { &resource.kind } else { kind };
    let said = if version.is_empty() { &own } else { version };
    if *kind == *resource.kind && said == own {
        return Ok(());
    }
    let (group, short) = split(said);
    Err(if resource.custom || is_kind(group, short, kind) {
        unlike(said, kind, (&resource.group, &resource.kind))
    } else {
        unregistered(said, kind)
    })
}

/// Why an object of one kind cannot be taken as one of another.
fn unlike(said: &str, kind: &str, (group, own): (&str, &str)) -> String {
    // The real server's own package of a group is called by the first part of its name.
    let internal = match group.split_once('.') {
        None if group.is_empty() => "core",
        Some((first, rest)) if rest.ends_with("k8s.io") => first,
        _ => group,
    };
    let said = said.replace('/', ".");
    format!("converting ({said}.{kind}) to ({internal}.{own}): unknown conversion")
}

fn unregistered(said: &str, kind: &str) -> String {
    format!("no kind {kind:?} is registered for version {said:?} in scheme \"pkg/runtime/scheme.go:111\"")
}

/// Refuses the body of a subresource that says it is of another kind; saying nothing is fine.
fn check_body_kind(body: &Value, group: &str, own: &str) -> Result<(), Status> {
    let text = |key: &str| body[key].as_str().unwrap_or_default();
    let (kind, said) = (text("kind"), text("apiVersion"));
    let (of, short) = split(said);
    if (kind.is_empty() || kind == own) && (said.is_empty() || of == group) {
        return Ok(());
    }
    let kind = if kind.is_empty() { own } else { kind };
    let why = if is_kind(of, short, kind) {
        unlike(said, kind, (group, own))
    } else {
        unregistered(said, kind)
    };
    Err(Status::bad_request(format!(
        "{kind} in version {short:?} cannot be handled as a {own}: {why}"
    )))
}

/// The group and the version of `apps/v1`.
fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

fn cannot_be_handled(resource: &Resource, why: &str) -> Status {
    Status::bad_request(format!(
        "{0} in version {1:?} cannot be handled as a {0}: {why}",
        resource.kind, &*resource.version
    ))
}

//! The forms in which objects travel.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

use crate::{json, protobuf, registry::Resource, status::Status, view::Form, yaml};

/// What bodies may be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
    /// Bodies only: answers are never in it, and clients that send it take JSON too.
    Protobuf,
}

const BODY_TYPES: [&str; 3] = ["application/json", "application/yaml", protobuf::MEDIA_TYPE];
const ANSWER_TYPES: [&str; 2] = ["application/json", "application/yaml"];

impl Encoding {
    /// The encoding of a request's body. JSON where none is named, as the real server has it.
    pub(crate) fn of_body(headers: &HeaderMap) -> Result<Self, Status> {
        match media_type(headers, http::header::CONTENT_TYPE) {
            "" | "application/json" => Ok(Self::Json),
            "application/yaml" => Ok(Self::Yaml),
            protobuf::MEDIA_TYPE => Ok(Self::Protobuf),
            _ => Err(Status::unsupported_media_type(&BODY_TYPES)),
        }
    }

    /// The encoding that a client would like the answer in.
    pub(crate) fn of_answer(headers: &HeaderMap, resource: &Resource, watch: bool) -> Result<Self, Status> {
        let Some(accept) = headers
            .get(http::header::ACCEPT)
            .and_then(|value| value.to_str().ok())
        else {
            return Ok(Self::Json);
        };
        // Parameters such as `as=Table` ask for another view of the object, which there must be.
        let mut only_the_form = false;
        for offer in accept.split(',') {
            let encoding = match offer.split(';').next().unwrap_or_default().trim() {
                "application/json" | "*/*" | "" => Self::Json,
                "application/yaml" => Self::Yaml,
                _ => continue,
            };
            if !matches!(Form::of(offer), Form::Unknown) {
                return Ok(encoding);
            }
            only_the_form = true;
        }
        // Named as the real server names them, whose answers come in protobuf too.
        let mut offered = vec![
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
        ];
        if watch {
            offered.extend([
                "application/json;stream=watch",
                "application/vnd.kubernetes.protobuf;stream=watch",
            ]);
        }
        offered.retain(|kind| !resource.custom || !kind.contains("protobuf"));
        Err(if only_the_form {
            let offered = offered.join(", ");
            Status::wrong_shape(&format!("only the following media types are accepted: {offered}"))
        } else {
            Status::not_acceptable(&offered)
        })
    }

    /// The encoding of a refusal, which every client gets in some form.
    pub(crate) fn of_refusal(headers: &HeaderMap) -> Self {
        match media_type(headers, http::header::ACCEPT) {
            "application/yaml" => Self::Yaml,
            _ => Self::Json,
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => protobuf::MEDIA_TYPE,
        }
    }

    /// JSON bytes in this encoding.
    pub(crate) fn encode(self, json: Bytes) -> Result<Bytes, Status> {
        match self {
            Self::Json => Ok(json),
            Self::Yaml => {
                let value: Value = json::parse_bytes(&json).map_err(|e| Status::internal(e.to_string()))?;
                Ok(yaml::to_text(&value).into())
            }
            Self::Protobuf => Err(Status::not_acceptable(&ANSWER_TYPES)),
        }
    }
}

/// The media type that a header names, without its parameters.
pub(crate) fn media_type(headers: &HeaderMap, header: http::HeaderName) -> &str {
    let value = headers
        .get(header)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// Reads a body; `kind` is what the refusal calls the thing that was expected.
pub(crate) fn decode(body: &[u8], encoding: Encoding, kind: &str) -> Result<Value, Status> {
    read(body, encoding, kind).map(|(value, _)| value)
}

/// As [`decode`], with what is said of fields that the body holds more than once.
pub(crate) fn read(body: &[u8], encoding: Encoding, kind: &str) -> Result<(Value, Vec<String>), Status> {
    match encoding {
        Encoding::Json => {
            let (value, paths) = json::read(body).map_err(|why| unrecognized(body, kind, &why))?;
            Ok((value, repeated(paths)))
        }
        Encoding::Yaml => yaml::read(body).map_err(|why| refused(body, kind, &why)),
        Encoding::Protobuf => decode_protobuf(body, "", kind).map(|value| (value, Vec::new())),
    }
}

/// What is said of the fields that JSON holds more than once.
pub(crate) fn repeated(paths: Vec<String>) -> Vec<String> {
    let told = paths.into_iter().map(|path| format!("duplicate field {path:?}"));
    told.collect()
}

/// Reads the options of a deletion, whose refusals are shorter than those of objects.
pub(crate) fn decode_options(body: &[u8], encoding: Encoding) -> Result<Value, Status> {
    const KIND: &str = "DeleteOptions";
    let value = match encoding {
        Encoding::Json => json::read(body).map(|(value, _)| value).map_err(|why| {
            Status::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
        })?,
        Encoding::Yaml => yaml::read(body)
            .map(|(value, _)| value)
            .map_err(Status::bad_request)?,
        Encoding::Protobuf => decode(body, encoding, KIND)?,
    };
    match value["kind"].as_str() {
        None | Some("" | KIND) => Ok(value),
        Some(kind) => {
            let version = value["apiVersion"].as_str().unwrap_or_default();
            Err(Status::bad_request(format!(
                "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
            )))
        }
    }
}

/// Reads the body of a write to `resource`, with what is said of fields that it holds more than once.
pub(crate) fn read_object(
    body: &[u8],
    encoding: Encoding,
    resource: &Resource,
) -> Result<(Value, Vec<String>), Status> {
    match encoding {
        // No struct, no protobuf. The real server says so for other types; at this one it breaks the connection.
        Encoding::Protobuf if resource.custom => Err(Status::unsupported_media_type(&ANSWER_TYPES)),
        Encoding::Protobuf => {
            decode_protobuf(body, &resource.api_version(), &resource.kind).map(|value| (value, Vec::new()))
        }
        _ => read(body, encoding, &resource.kind),
    }
}

/// `api_version` is that of a body which does not say its own.
fn decode_protobuf(body: &[u8], api_version: &str, expected: &str) -> Result<Value, Status> {
    const OPTIONS: &str = "DeleteOptions";
    let result = protobuf::decode(body, api_version, expected).and_then(|value| {
        let said = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        if expected == OPTIONS && value["kind"] != OPTIONS {
            return Err(protobuf::Error::UnknownKind {
                api_version: said("apiVersion"),
                kind: said("kind"),
            });
        }
        Ok(value)
    });
    result.map_err(|error| {
        use protobuf::Error::{Envelope, Object, UnknownKind};
        Status::bad_request(match &error {
            _ if expected == OPTIONS => error.to_string(),
            Envelope(_) => format!(
                "the object provided is unrecognized (must be of type {expected}): {error} ({})",
                summary(body)
            ),
            UnknownKind { api_version, kind }
            | Object {
                api_version, kind, ..
            } => {
                let version = api_version.rsplit('/').next().unwrap_or_default();
                format!("{kind} in version {version:?} cannot be handled as a {expected}: {error}")
            }
        })
    })
}

/// The refusal of a body that does not say what it is.
pub(crate) fn unrecognized(body: &[u8], kind: &str, why: &str) -> Status {
    refused(
        body,
        kind,
        &format!("couldn't get version/kind; json parse error: {why}"),
    )
}

/// The refusal of a body that names a version as no version can be named.
pub(crate) fn malformed_version(body: &[u8], kind: &str, version: &str) -> Status {
    refused(body, kind, &format!("unexpected GroupVersion string: {version}"))
}

/// The refusal of a body that should say its kind, and does not.
pub(crate) fn without_kind(body: &[u8], kind: &str) -> Status {
    let whole = String::from_utf8_lossy(body);
    refused(body, kind, &format!("Object 'Kind' is missing in '{whole}'"))
}

fn refused(body: &[u8], kind: &str, why: &str) -> Status {
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({})",
        summary(body)
    ))
}

/// The beginning of a body as the real server quotes it: as hex where it is no JSON object.
fn summary(body: &[u8]) -> String {
    const QUOTED: usize = 30;
    let (head, more) = match body.get(..QUOTED) {
        Some(head) if body.len() > QUOTED => (head, " ..."),
        _ => (body, ""),
    };
    let shown = match head {
        [] => "<empty>".to_owned(),
        [b'{', ..] => String::from_utf8_lossy(head).into_owned(),
        _ => {
            let digits = head.iter().flat_map(|byte| [byte >> 4, byte & 15]);
            digits
                .filter_map(|digit| char::from_digit(digit.into(), 16))
                .collect()
        }
    };
    format!("{shown}{more}")
}

//! The forms in which objects travel.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

use crate::{protobuf, registry::Resource, status::Status, yaml};

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
    pub(crate) fn of_answer(headers: &HeaderMap) -> Result<Self, Status> {
        let Some(accept) = headers
            .get(http::header::ACCEPT)
            .and_then(|value| value.to_str().ok())
        else {
            return Ok(Self::Json);
        };
        // Parameters such as `as=Table` ask for another view of the object; without it the plain object is an answer.
        let offers = accept
            .split(',')
            .map(|part| part.split(';').next().unwrap_or_default().trim());
        for offer in offers {
            match offer {
                "application/json" | "*/*" | "application/*" | "" => return Ok(Self::Json),
                "application/yaml" => return Ok(Self::Yaml),
                _ => {}
            }
        }
        Err(Status::not_acceptable(&ANSWER_TYPES))
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
                let value: Value =
                    serde_json::from_slice(&json).map_err(|e| Status::internal(e.to_string()))?;
                let text = serde_yaml_ng::to_string(&value).map_err(|e| Status::internal(e.to_string()))?;
                Ok(text.into())
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
    match encoding {
        Encoding::Json => serde_json::from_slice(body).map_err(|error| {
            let why = if error.is_eof() {
                "unexpected end of JSON input".into()
            } else {
                error.to_string()
            };
            unrecognized(body, kind, &why)
        }),
        Encoding::Yaml => yaml::decode(body).map_err(|why| unrecognized(body, kind, &why)),
        Encoding::Protobuf => decode_protobuf(body, "", kind),
    }
}

/// Reads the body of a write to `resource`.
pub(crate) fn decode_object(body: &[u8], encoding: Encoding, resource: &Resource) -> Result<Value, Status> {
    match encoding {
        // No struct, no protobuf. The real server says so for other types; at this one it breaks the connection.
        Encoding::Protobuf if resource.custom => Err(Status::unsupported_media_type(&ANSWER_TYPES)),
        Encoding::Protobuf => decode_protobuf(body, &resource.api_version(), &resource.kind),
        _ => decode(body, encoding, &resource.kind),
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
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {why} ({})",
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
        _ => head.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    format!("{shown}{more}")
}

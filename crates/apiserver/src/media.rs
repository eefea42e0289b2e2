//! Encodings of request and response bodies.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use serde_json::Value;

use crate::{
    json, protobuf, registry::Resource, request::Target, status::Status, view::Representation, yaml,
};

/// The encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
    /// For requests only. Clients that send it accept JSON, too.
    Protobuf,
}

/// What most clients accept, and nothing else.
pub(crate) const PLAIN_JSON: &str = "application/json";

const BODY_TYPES: [&str; 3] = ["application/json", "application/yaml", protobuf::MEDIA_TYPE];
const RESPONSE_TYPES: [&str; 2] = ["application/json", "application/yaml"];

impl Encoding {
    /// The encoding of a request's body; JSON without a content type, as in the real server.
    pub(crate) fn of_request(headers: &HeaderMap) -> Result<Self, Status> {
        match media_type(headers, http::header::CONTENT_TYPE) {
            "" | "application/json" => Ok(Self::Json),
            "application/yaml" => Ok(Self::Yaml),
            protobuf::MEDIA_TYPE => Ok(Self::Protobuf),
            _ => Err(Status::unsupported_media_type(&BODY_TYPES)),
        }
    }

    /// The encoding that a client accepts for the response.
    pub(crate) fn of_response(headers: &HeaderMap, target: &Target, watch: bool) -> Result<Self, Status> {
        let Some(accept) = headers
            .get(http::header::ACCEPT)
            .and_then(|value| value.to_str().ok())
        else {
            return Ok(Self::Json);
        };
        if accept == PLAIN_JSON {
            return Ok(Self::Json);
        }
        // Parameters such as `as=Table` ask for another representation, which must exist.
        let mut only_the_form = false;
        for offer in accept.split(',') {
            let encoding = match offer.split(';').next().unwrap_or_default().trim() {
                "application/json" | "*/*" | "" => Self::Json,
                "application/yaml" => Self::Yaml,
                _ => continue,
            };
            if !matches!(Representation::of(offer, target), Representation::Unknown) {
                return Ok(encoding);
            }
            only_the_form = true;
        }
        // As in the real server's message, which supports protobuf too.
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
        offered.retain(|kind| !target.resource.is_custom || !kind.contains("protobuf"));
        Err(if only_the_form {
            let offered = offered.join(", ");
            Status::unsupported_representation(&format!(
                "only the following media types are accepted: {offered}"
            ))
        } else {
            Status::not_acceptable(&offered)
        })
    }

    /// The encoding of an error: JSON if the client accepts none of ours. An error has no other representation, so offers
    /// of tables and the like do not count.
    pub(crate) fn of_error(headers: &HeaderMap) -> Self {
        let accept = headers
            .get(http::header::ACCEPT)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let plain = accept
            .split(',')
            .filter(|offer| matches!(Representation::parse(offer), Representation::Object));
        let mut encodings =
            plain.filter_map(|offer| match offer.split(';').next().unwrap_or_default().trim() {
                "application/json" | "*/*" | "" => Some(Self::Json),
                "application/yaml" => Some(Self::Yaml),
                _ => None,
            });
        encodings.next().unwrap_or(Self::Json)
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => protobuf::MEDIA_TYPE,
        }
    }

    /// The content type as a header's value, without checking it each time.
    pub(crate) fn header_value(self) -> HeaderValue {
        match self {
            Self::Json => const { HeaderValue::from_static("application/json") },
            Self::Yaml => const { HeaderValue::from_static("application/yaml") },
            Self::Protobuf => const { HeaderValue::from_static(protobuf::MEDIA_TYPE) },
        }
    }

    /// Converts JSON to this encoding.
    pub(crate) fn encode(self, json: Bytes) -> Result<Bytes, Status> {
        match self {
            Self::Json => Ok(json),
            Self::Yaml => {
                let value: Value = json::parse_bytes(&json).map_err(|e| Status::internal(e.to_string()))?;
                Ok(yaml::to_yaml(&value).into())
            }
            Self::Protobuf => Err(Status::not_acceptable(&RESPONSE_TYPES)),
        }
    }
}

/// The media type in a header, without its parameters.
pub(crate) fn media_type(headers: &HeaderMap, header: http::HeaderName) -> &str {
    let value = headers
        .get(header)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// Decodes a body; `kind` is the expected kind in error messages.
pub(crate) fn decode(body: &[u8], encoding: Encoding, kind: &str) -> Result<Value, Status> {
    read(body, encoding, kind).map(|(value, _)| value)
}

/// Like [`decode`], and also returns messages about duplicate fields.
pub(crate) fn read(body: &[u8], encoding: Encoding, kind: &str) -> Result<(Value, Vec<String>), Status> {
    match encoding {
        Encoding::Json => {
            let (value, paths) = json::read(body).map_err(|why| unrecognized(body, kind, &why))?;
            Ok((value, duplicate_field_messages(paths)))
        }
        Encoding::Yaml => yaml::read(body).map_err(|why| unrecognized_object(body, kind, &why)),
        Encoding::Protobuf => decode_protobuf(body, "", kind).map(|value| (value, Vec::new())),
    }
}

/// Messages about duplicate fields in JSON.
pub(crate) fn duplicate_field_messages(paths: Vec<String>) -> Vec<String> {
    let messages = paths.into_iter().map(|path| format!("duplicate field {path:?}"));
    messages.collect()
}

/// Decodes the options of a deletion, which have shorter error messages than objects.
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

/// Decodes the body of a write to `resource`. Also returns messages about duplicate fields.
pub(crate) fn read_object(
    body: &[u8],
    encoding: Encoding,
    resource: &Resource,
) -> Result<(Value, Vec<String>), Status> {
    match encoding {
        // Custom resources do not support protobuf. The real server has this error for other types; for protobuf it
        // closes the connection.
        Encoding::Protobuf if resource.is_custom => Err(Status::unsupported_media_type(&RESPONSE_TYPES)),
        Encoding::Protobuf => {
            decode_protobuf(body, &resource.api_version(), &resource.kind).map(|value| (value, Vec::new()))
        }
        _ => read(body, encoding, &resource.kind),
    }
}

/// `api_version` is the default for a body without one.
fn decode_protobuf(body: &[u8], api_version: &str, expected: &str) -> Result<Value, Status> {
    const OPTIONS: &str = "DeleteOptions";
    let result = protobuf::decode(body, api_version, expected).and_then(|value| {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        if expected == OPTIONS && value["kind"] != OPTIONS {
            return Err(protobuf::Error::UnknownKind {
                api_version: text("apiVersion"),
                kind: text("kind"),
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

/// The error for a body without a readable `kind` and `apiVersion`.
pub(crate) fn unrecognized(body: &[u8], kind: &str, why: &str) -> Status {
    unrecognized_object(
        body,
        kind,
        &format!("couldn't get version/kind; json parse error: {why}"),
    )
}

/// The error for a body with a malformed `apiVersion`.
pub(crate) fn malformed_version(body: &[u8], kind: &str, version: &str) -> Status {
    unrecognized_object(body, kind, &format!("unexpected GroupVersion string: {version}"))
}

/// The error for a body without the required `kind`.
pub(crate) fn missing_kind(body: &[u8], kind: &str) -> Status {
    let whole = String::from_utf8_lossy(body);
    unrecognized_object(body, kind, &format!("Object 'Kind' is missing in '{whole}'"))
}

fn unrecognized_object(body: &[u8], kind: &str, why: &str) -> Status {
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({})",
        summary(body)
    ))
}

/// The beginning of a body as the real server quotes it: as hex unless it is a JSON object.
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

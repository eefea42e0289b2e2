//! Decodes protobuf request bodies to the JSON of the same object.
//!
//! ```text
//!   "k8s\0" | envelope: apiVersion, kind, raw ──► Descriptors of the kind ──► fields by number ──► JSON tree
//! ```
//!
//! kubectl and client-go's typed clients send protobuf; responses are JSON, which all of them accept. The tree is the
//! one that Go's JSON encoder writes for the Go object: how it writes zeros, pointers and empty lists is recorded for
//! each field in the descriptors, not guessed from the wire.
//!
//! The decoder is our own because of the descriptors: 17 KB of reduced data with facts that `.proto` files lack. A
//! protobuf library would need code or full descriptors for five hundred messages, and would still not handle JSON
//! names, inlined structs and zeros.
//!
//! Bodies are untrusted. Nesting (`MAX_DEPTH`) and the number of values (`MAX_VALUES`) are bounded, lengths are checked
//! before anything is allocated, and nothing panics.

mod descriptors;
mod leaf;
mod transcode;
mod wire;

use serde_json::Value;
use thiserror::Error;

use descriptors::Descriptors;
use transcode::Transcoder;
use wire::{Reader, Wire};

/// The content type of protobuf bodies.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The prefix of every body.
const MAGIC: &[u8] = b"k8s\0";

/// Limit on the nesting of objects, lists and maps: slightly below that of JSON, with which the object is read again.
const MAX_DEPTH: usize = 120;

/// Limit on the number of values. Two bytes can encode an empty message that is large in memory; with this limit no
/// body costs more than the worst JSON of the maximum size (an object for every eight of 3 MiB).
const MAX_VALUES: usize = 400_000;

/// Why a body cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The envelope is invalid.
    #[error("{0}")]
    Envelope(Fault),
    /// The kind is unknown.
    #[error(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
    )]
    UnknownKind {
        /// As given in the body.
        api_version: String,
        /// As given in the body.
        kind: String,
    },
    /// The kind is known, but the object is invalid.
    #[error("{fault}")]
    Object {
        /// As given in the body.
        api_version: String,
        /// As given in the body.
        kind: String,
        /// What is invalid.
        fault: Fault,
    },
}

/// What is invalid about the bytes, with the real server's message if it has one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// Empty body.
    #[error("empty data")]
    Empty,
    /// Not protobuf: the prefix is missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    MissingPrefix,
    /// Nothing after the prefix.
    #[error("empty body")]
    EmptyBody,
    /// The body ends within a value.
    #[error("unexpected EOF")]
    Eof,
    /// An integer of more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// An end of group without a start.
    #[error("proto: unexpected end of group")]
    EndGroup,
    /// An invalid field number.
    #[error("proto: illegal tag")]
    IllegalTag,
    /// An unknown wire type.
    #[error("proto: illegal wireType {0}")]
    UnknownWireType(u8),
    /// The wire type does not match the field.
    #[error("proto: wrong wireType = {kind} for field {field}")]
    WrongWireType {
        /// The wire type.
        kind: u8,
        /// The field's JSON name.
        field: Box<str>,
    },
    /// A time outside of RFC 3339's range.
    #[error("time out of range")]
    TimeOutOfRange,
    /// A floating point number that JSON cannot represent.
    #[error("unsupported value: not a finite number")]
    NotFinite,
    /// Invalid embedded JSON.
    #[error("invalid JSON inside: {0}")]
    Json(String),
    /// Nested too deep.
    #[error("nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
    /// Too many values.
    #[error("more than {MAX_VALUES} values")]
    TooManyValues,
}

/// Decodes a body to the JSON tree of its object, with `apiVersion` and `kind`.
///
/// The two arguments are used if the body does not contain them. A body of another kind is decoded as that kind if it
/// is served.
///
/// ```
/// // A ConfigMap named `a`: the envelope's type and raw bytes; in them `metadata`, in it `name`.
/// let body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x05\x0a\x03\x0a\x01a";
/// let object = windlass_apiserver::protobuf::decode(body, "v1", "ConfigMap")?;
/// assert_eq!(object["metadata"]["name"], "a");
/// # Ok::<_, windlass_apiserver::protobuf::Error>(())
/// ```
pub fn decode(body: &[u8], api_version: &str, kind: &str) -> Result<Value, Error> {
    let mut envelope = Envelope::open(body).map_err(Error::Envelope)?;
    if envelope.kind.is_empty() {
        kind.clone_into(&mut envelope.kind);
    }
    if envelope.api_version.is_empty() {
        api_version.clone_into(&mut envelope.api_version);
    }
    let Envelope {
        api_version,
        kind,
        raw,
    } = envelope;
    let descriptors = Descriptors::built_in();
    let Some(message) = descriptors.find_kind(&api_version, &kind) else {
        return Err(Error::UnknownKind { api_version, kind });
    };
    match Transcoder::new(descriptors).object(raw, message) {
        Ok(mut fields) => {
            fields.insert("apiVersion".into(), api_version.into());
            fields.insert("kind".into(), kind.into());
            Ok(fields.into())
        }
        Err(fault) => Err(Error::Object {
            api_version,
            kind,
            fault,
        }),
    }
}

/// The envelope of every object: Kubernetes' `runtime.Unknown`.
#[derive(Default)]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn open(body: &'a [u8]) -> Result<Self, Fault> {
        let fields = match body.strip_prefix(MAGIC) {
            _ if body.is_empty() => return Err(Fault::Empty),
            None => return Err(Fault::MissingPrefix),
            Some([]) => return Err(Fault::EmptyBody),
            Some(fields) => fields,
        };
        let mut envelope = Self::default();
        let mut reader = Reader::new(fields);
        // The real server ignores content type and encoding (3 and 4) too.
        while let Some((number, wire)) = reader.next_field()? {
            match number {
                1 => envelope.read_type(bytes(wire, "typeMeta")?)?,
                2 => envelope.raw = bytes(wire, "raw")?,
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, message: &[u8]) -> Result<(), Fault> {
        let mut reader = Reader::new(message);
        while let Some((number, wire)) = reader.next_field()? {
            let (place, field) = match number {
                1 => (&mut self.api_version, "apiVersion"),
                2 => (&mut self.kind, "kind"),
                _ => continue,
            };
            *place = String::from_utf8_lossy(bytes(wire, field)?).into_owned();
        }
        Ok(())
    }
}

fn bytes<'a>(wire: Wire<'a>, field: &str) -> Result<&'a [u8], Fault> {
    match wire {
        Wire::Bytes(bytes) => Ok(bytes),
        other => Err(wrong_wire_type(other, field)),
    }
}

fn wrong_wire_type(wire: Wire<'_>, field: &str) -> Fault {
    Fault::WrongWireType {
        kind: wire.kind(),
        field: field.into(),
    }
}

#[cfg(test)]
mod tests;

//! Request bodies in protobuf, read as the JSON that the same object would have been sent as.
//!
//! ```text
//!   "k8s\0" | envelope: apiVersion, kind, raw ──► Descriptors of the kind ──► fields by number ──► JSON tree
//! ```
//!
//! kubectl and client-go's typed clients send objects so; answers are JSON, which all of them take. The tree is the one
//! that Go's JSON encoder makes of the Go object: what it writes for zeros, pointers and empty lists is a fact of each
//! field in the descriptors, not a guess from the wire.
//!
//! The reader is our own, because the descriptors are: a reduced form of 17 KB with the facts that a `.proto` file
//! does not have, where a protobuf library wants code or full descriptors for half a thousand messages and would still
//! leave JSON names, inlined structs and zeros to us.
//!
//! A body can be anything. Nesting (`MAX_DEPTH`) and the number of values (`MAX_VALUES`) are bounded, lengths are
//! checked before anything is allocated, and nothing panics.

mod descriptors;
mod leaf;
mod transcode;
mod wire;

use serde_json::Value;
use thiserror::Error;

use descriptors::Descriptors;
use transcode::Transcoder;
use wire::{Reader, Wire};

/// The content type of such bodies.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What every body begins with.
const MAGIC: &[u8] = b"k8s\0";

/// How deep objects, lists and maps may be nested: a little less than JSON may be where the object is read again.
const MAX_DEPTH: usize = 120;

/// How many values a body may become. Two bytes can stand for an empty message that is large in memory; with this bound
/// no body costs more than the worst JSON of the size that is read at all (an object for every eight of 3 MiB).
const MAX_VALUES: usize = 400_000;

/// Why a body is no object.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// It could not be found out what it is.
    #[error("{0}")]
    Envelope(Fault),
    /// It is of a kind that is not known.
    #[error(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
    )]
    UnknownKind {
        /// As the body has it.
        api_version: String,
        /// As the body has it.
        kind: String,
    },
    /// It is of a known kind, and broken.
    #[error("{fault}")]
    Object {
        /// As the body has it.
        api_version: String,
        /// As the body has it.
        kind: String,
        /// What is broken.
        fault: Fault,
    },
}

/// What is wrong with some bytes; where the real server has a text for it, it is that.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// No bytes at all.
    #[error("empty data")]
    Empty,
    /// Something else than protobuf.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoMagic,
    /// Nothing after the first four bytes.
    #[error("empty body")]
    EmptyBody,
    /// It ends in the middle of a value.
    #[error("unexpected EOF")]
    Eof,
    /// A number of more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// The end of a group that never began.
    #[error("proto: unexpected end of group")]
    EndGroup,
    /// A field number that cannot be.
    #[error("proto: illegal tag")]
    IllegalTag,
    /// A wire type that does not exist.
    #[error("proto: illegal wireType {0}")]
    UnknownWire(u8),
    /// A value of another type than its field.
    #[error("proto: wrong wireType = {kind} for field {field}")]
    WrongWire {
        /// What the wire has.
        kind: u8,
        /// The field's JSON name.
        field: Box<str>,
    },
    /// A time that RFC 3339 cannot say.
    #[error("time out of range")]
    Time,
    /// A floating point number that JSON cannot say.
    #[error("unsupported value: not a finite number")]
    NotFinite,
    /// Bytes that should be JSON.
    #[error("invalid JSON inside: {0}")]
    Json(String),
    /// Nested deeper than is stored.
    #[error("nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
    /// More values than are read.
    #[error("more than {MAX_VALUES} values")]
    TooMany,
}

/// Reads a body as the JSON tree of its object, with `apiVersion` and `kind`.
///
/// These two are what the caller expects, and hold where the body does not say; a body that says something else is read
/// as that, if it is a served kind.
///
/// ```
/// // A ConfigMap called `a`: the envelope's type and raw bytes, in them `metadata`, in it `name`.
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
    let descriptors = Descriptors::shipped();
    let Some(message) = descriptors.of_kind(&api_version, &kind) else {
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

/// What stands around every object: Kubernetes' `runtime.Unknown`.
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
            None => return Err(Fault::NoMagic),
            Some([]) => return Err(Fault::EmptyBody),
            Some(fields) => fields,
        };
        let mut envelope = Self::default();
        let mut reader = Reader::new(fields);
        // Its content type and encoding, 3 and 4, are not looked at by the real server either.
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
        other => Err(wrong(other, field)),
    }
}

fn wrong(wire: Wire<'_>, field: &str) -> Fault {
    Fault::WrongWire {
        kind: wire.kind(),
        field: field.into(),
    }
}

#[cfg(test)]
mod tests;

//! Encodes JSON as protobuf with the server's own descriptors, and mutates fields of protobuf messages.

use std::{collections::HashMap, io::Read, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use fastrand::Rng;
use serde::Deserialize;
use serde_json::Value;

/// Prefix of every protobuf body.
const MAGIC: &[u8] = b"k8s\0";

/// The message descriptors that `windlass-apiserver` ships: messages by name, their fields by number.
#[derive(Deserialize)]
pub(crate) struct Descriptors {
    /// `apps/v1/Deployment` → the name of its message.
    kinds: HashMap<String, String>,
    /// Number → JSON name, type and rule.
    messages: HashMap<String, HashMap<String, (String, String, String)>>,
    #[serde(default)]
    forms: HashMap<String, String>,
}

impl Descriptors {
    pub(crate) fn shipped() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/apiserver/data/protobuf.json.gz");
        let packed = std::fs::read(path).expect("it is in the repository");
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(&packed[..])
            .read_to_end(&mut text)
            .expect("it is gzip");
        serde_json::from_slice(&text).expect("it has this form")
    }

    /// Encodes an object as client-go does, without fields that the kind does not have. Returns `None` for unknown
    /// kinds.
    pub(crate) fn body(&self, api_version: &str, kind: &str, object: &Value) -> Option<Vec<u8>> {
        let message = self.kinds.get(&format!("{api_version}/{kind}"))?;
        let head = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        let raw = self.message(message, object);
        Some([MAGIC.to_vec(), field(1, &head), field(2, &raw)].concat())
    }

    fn message(&self, name: &str, object: &Value) -> Vec<u8> {
        let mut bytes = Vec::new();
        let Some(fields) = self.messages.get(name) else {
            return bytes;
        };
        if self.forms.get(name).is_some_and(|form| form == "list") {
            for (number, (_, kind, _)) in fields {
                bytes.extend(self.field(number, kind, object));
            }
            return bytes;
        }
        let mut numbers: Vec<_> = fields.iter().collect();
        numbers.sort();
        for (number, (json, kind, rule)) in numbers {
            let value = if rule == "inline" {
                Some(object)
            } else {
                object.get(json)
            };
            if let Some(value) = value.filter(|value| !value.is_null()) {
                bytes.extend(self.field(number, kind, value));
            }
        }
        bytes
    }

    fn field(&self, number: &str, kind: &str, value: &Value) -> Vec<u8> {
        let Ok(number) = number.parse() else {
            return Vec::new();
        };
        if let Some(kind) = kind.strip_prefix("[]") {
            let items = value.as_array().into_iter().flatten();
            return items
                .flat_map(|item| self.single_field(number, kind, item))
                .collect();
        }
        if let Some(kind) = kind.strip_prefix("map[string]") {
            let entries = value.as_object().into_iter().flatten();
            let entries = entries.map(|(key, value)| {
                let entry = [field(1, key.as_bytes()), self.single_field(2, kind, value)].concat();
                field(number, &entry)
            });
            return entries.flatten().collect();
        }
        self.single_field(number, kind.trim_start_matches('*'), value)
    }

    fn single_field(&self, number: u64, kind: &str, value: &Value) -> Vec<u8> {
        let text = || value.as_str().unwrap_or_default().as_bytes().to_vec();
        let varint = |value: u64| [tag(number, 0), self::varint(value)].concat();
        match kind {
            "string" => field(number, &text()),
            "bool" => varint(u64::from(value.as_bool().unwrap_or_default())),
            "int32" | "int64" => varint(value.as_i64().unwrap_or_default().cast_unsigned()),
            "float64" => [
                tag(number, 1),
                value.as_f64().unwrap_or_default().to_le_bytes().to_vec(),
            ]
            .concat(),
            "bytes" => field(number, &BASE64_STANDARD.decode(text()).unwrap_or_default()),
            "Quantity" => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                field(number, &field(1, text.as_bytes()))
            }
            "IntOrString" => {
                let inner = match value {
                    Value::String(text) => [vec![8, 1], field(3, text.as_bytes())].concat(),
                    other => {
                        let number = other.as_i64().unwrap_or_default().cast_unsigned();
                        [vec![8, 0, 16], self::varint(number)].concat()
                    }
                };
                field(number, &inner)
            }
            "Time" | "MicroTime" => {
                let seconds = value
                    .as_str()
                    .and_then(|text| text.parse::<jiff::Timestamp>().ok())
                    .map_or(0, jiff::Timestamp::as_second);
                field(number, &[vec![8], self::varint(seconds.cast_unsigned())].concat())
            }
            "JSON" => field(number, &field(1, value.to_string().as_bytes())),
            message => field(number, &self.message(message, value)),
        }
    }
}

fn tag(number: u64, wire: u64) -> Vec<u8> {
    varint(number << 3 | wire)
}

fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    let mut field = tag(number, 2);
    field.extend(varint(bytes.len() as u64));
    field.extend_from_slice(bytes);
    field
}

/// Encodes a varint.
fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = value.to_le_bytes()[0] & 127;
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 128);
    }
}

/// Mutates one field somewhere in a message and adjusts the enclosing lengths. Bytes that are not a message are mutated
/// as raw bytes.
pub(crate) fn mutate(message: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
    let (magic, rest) = message.split_at(if message.starts_with(MAGIC) {
        MAGIC.len()
    } else {
        0
    });
    [magic, &mutate_nested(rest, donor, rng, 0)].concat()
}

fn mutate_nested(message: &[u8], donor: &[u8], rng: &mut Rng, level: usize) -> Vec<u8> {
    let Some(mut fields) = fields(message).filter(|fields| !fields.is_empty()) else {
        return super::bytes::mutate(message, donor, rng);
    };
    let position = rng.usize(..fields.len());
    let (number, wire, value) = fields[position].clone();
    if wire == 2 && level < 12 && rng.u8(..5) > 0 {
        fields[position].2 = mutate_nested(&value, donor, rng, level + 1);
    } else {
        match rng.u8(..8) {
            0 => {
                fields.remove(position);
            }
            1 => fields.push((number, wire, value)),
            2 => fields[position].0 = rng.u64(1..20),
            3 => fields[position] = (number, 0, varint(rng.u64(..))),
            4 => fields[position] = (number, 2, super::dictionary::text(rng).into_bytes()),
            5 => {
                let more = fields[position].clone();
                fields.extend(vec![more; rng.usize(..200)]);
            }
            6 => fields.reverse(),
            _ => fields[position].2 = super::bytes::mutate(&value, donor, rng),
        }
    }
    let written = fields.into_iter().flat_map(|(number, wire, value)| match wire {
        2 => field(number, &value),
        wire => [tag(number, wire), value].concat(),
    });
    written.collect()
}

/// Returns number, wire type and bytes of each field, or `None` if the bytes are not a message.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, u64, Vec<u8>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = take_varint(&mut bytes)?;
        let (number, wire) = (tag >> 3, tag & 7);
        let length = match wire {
            0 => {
                let before = bytes;
                take_varint(&mut bytes)?;
                let length = before.len() - bytes.len();
                fields.push((number, wire, before[..length].to_vec()));
                continue;
            }
            1 => 8,
            2 => usize::try_from(take_varint(&mut bytes)?).ok()?,
            5 => 4,
            _ => return None,
        };
        fields.push((number, wire, bytes.get(..length)?.to_vec()));
        bytes = &bytes[length..];
    }
    Some(fields)
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for position in 0..10 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 127) << (7 * position).min(63);
        if byte & 128 == 0 {
            return Some(value);
        }
    }
    None
}

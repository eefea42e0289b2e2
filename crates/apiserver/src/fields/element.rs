//! One element of a field's path: a field name, the key of a list's item, or the item itself.

use std::{borrow::Cow, cmp::Ordering, fmt};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::{encode::needs_no_escaping, golang};

/// One element of a path into an object.
#[derive(Clone, Debug)]
pub(crate) enum PathElement<'a> {
    /// `f:spec`
    Field(Cow<'a, str>),
    /// `k:{"name":"x"}`, the fields sorted by name.
    Key(Vec<(Cow<'a, str>, Cow<'a, Value>)>),
    /// `v:"x"`
    Item(Cow<'a, Value>),
    /// `i:0`
    Index(i64),
}

impl<'a> PathElement<'a> {
    pub(super) fn field(name: &'a str) -> Self {
        Self::Field(Cow::Borrowed(name))
    }

    /// Parses an element of `fieldsV1`; none for an element type of a later version.
    pub(super) fn parse(text: Cow<'a, str>) -> Result<Option<Self>, String> {
        let (kind, rest) = match text.as_bytes() {
            [kind, b':', ..] => (*kind, &text[2..]),
            [_, _, ..] => return Err(format!("missing colon: {text}")),
            _ => return Err("key must be 2 characters long:".to_owned()),
        };
        let broken = |error: serde_json::Error| error.to_string();
        Ok(Some(match kind {
            b'f' => Self::Field(match text {
                Cow::Borrowed(text) => Cow::Borrowed(&text[2..]),
                Cow::Owned(mut text) => Cow::Owned(text.split_off(2)),
            }),
            b'v' => Self::Item(Cow::Owned(serde_json::from_str(rest).map_err(broken)?)),
            b'k' => Self::Key(serde_json::from_str::<KeyFields>(rest).map_err(broken)?.0),
            b'i' => Self::Index(rest.parse().map_err(|_| format!("not a number: {rest}"))?),
            _ => return Ok(None),
        }))
    }

    /// Writes the element as a quoted field name of `fieldsV1`.
    pub(super) fn write(&self, json: &mut Vec<u8>) {
        match self {
            Self::Field(name) => write_name(json, name),
            Self::Key(fields) => write_key(json, fields.iter().map(|(name, value)| (&**name, &**value))),
            Self::Item(value) => {
                json.extend_from_slice(b"\"v:");
                write_nested(json, value);
                json.push(b'"');
            }
            Self::Index(index) => json.extend_from_slice(format!("\"i:{index}\"").as_bytes()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Item(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

/// Writes the element of a field.
pub(super) fn write_name(json: &mut Vec<u8>, name: &str) {
    json.extend_from_slice(b"\"f:");
    write_escaped(json, name);
    json.push(b'"');
}

/// Writes the element of a field whose name needs no escaping.
pub(super) fn write_plain_name(json: &mut Vec<u8>, name: &str) {
    debug_assert!(needs_no_escaping(name), "{name}");
    json.reserve(name.len() + 8);
    json.extend_from_slice(b"\"f:");
    json.extend_from_slice(name.as_bytes());
    json.push(b'"');
}

/// Writes the element of an item with a key.
pub(super) fn write_key<'v>(json: &mut Vec<u8>, fields: impl Iterator<Item = (&'v str, &'v Value)>) {
    json.extend_from_slice(b"\"k:{");
    for (index, (name, value)) in fields.enumerate() {
        if index > 0 {
            json.push(b',');
        }
        write_nested_string(json, name);
        json.push(b':');
        write_nested(json, value);
    }
    json.extend_from_slice(b"}\"");
}

/// The fields of a key, sorted by name; the last of duplicates wins.
struct KeyFields(Vec<(Cow<'static, str>, Cow<'static, Value>)>);

impl<'de> Deserialize<'de> for KeyFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = KeyFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<KeyFields, M::Error> {
                let mut fields: Vec<(Cow<'static, str>, Cow<'static, Value>)> = Vec::with_capacity(1);
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    let entry = (Cow::Owned(name), Cow::Owned(value));
                    fields.push(entry);
                }
                if !fields.is_sorted_by(|(a, _), (b, _)| a < b) {
                    // Reversed, so that `dedup_by` keeps the last of duplicates.
                    fields.reverse();
                    fields.sort_by(|(a, _), (b, _)| a.cmp(b));
                    fields.dedup_by(|(a, _), (b, _)| a == b);
                }
                Ok(KeyFields(fields))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

fn write_json<T: serde::Serialize + ?Sized>(json: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(json, value).expect("writing to memory does not fail");
}

/// Writes escaped text without quotes.
fn write_escaped(json: &mut Vec<u8>, text: &str) {
    if needs_no_escaping(text) {
        json.extend_from_slice(text.as_bytes());
        return;
    }
    let mut quoted = Vec::with_capacity(text.len() + 8);
    write_json(&mut quoted, text);
    json.extend_from_slice(&quoted[1..quoted.len() - 1]);
}

/// Writes a value's JSON inside a JSON string.
fn write_nested(json: &mut Vec<u8>, value: &Value) {
    if let Value::String(text) = value {
        return write_nested_string(json, text);
    }
    let mut text = Vec::with_capacity(32);
    write_json(&mut text, value);
    write_escaped(json, std::str::from_utf8(&text).expect("JSON is text"));
}

/// Writes a text's JSON inside a JSON string: with escaped quotes, and everything else escaped twice.
fn write_nested_string(json: &mut Vec<u8>, text: &str) {
    if needs_no_escaping(text) {
        json.extend_from_slice(b"\\\"");
        json.extend_from_slice(text.as_bytes());
        json.extend_from_slice(b"\\\"");
        return;
    }
    let mut quoted = Vec::with_capacity(text.len() + 8);
    write_json(&mut quoted, text);
    write_escaped(json, std::str::from_utf8(&quoted).expect("JSON is text"));
}

impl Ord for PathElement<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                let pairs = a.iter().zip(b).map(|((name, value), (other, against))| {
                    name.cmp(other).then_with(|| compare_values(value, against))
                });
                pairs
                    .into_iter()
                    .find(|order| order.is_ne())
                    .unwrap_or_else(|| a.len().cmp(&b.len()))
            }
            (Self::Item(a), Self::Item(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement<'_> {}

/// Orders numbers before strings, booleans, lists, maps and null; numbers by their value.
pub(super) fn compare_values(a: &Value, b: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => {
                let (a, b) = (a.as_f64().unwrap_or_default(), b.as_f64().unwrap_or_default());
                a.total_cmp(&b)
            }
        },
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let pairs = a.iter().zip(b).map(|(a, b)| compare_values(a, b));
            let differing = pairs.into_iter().find(|order| order.is_ne());
            differing.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let pairs = a.iter().zip(b).map(|((key, value), (other, against))| {
                key.cmp(other).then_with(|| compare_values(value, against))
            });
            let differing = pairs.into_iter().find(|order| order.is_ne());
            differing.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

/// For error messages: `.spec`, `[name="x"]`, `[="x"]`.
impl fmt::Display for PathElement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                let fields: Vec<_> = fields
                    .iter()
                    .map(|(name, value)| format!("{name}={}", quoted(value)))
                    .collect();
                write!(f, "[{}]", fields.join(","))
            }
            Self::Item(value) => write!(f, "[={}]", quoted(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

fn quoted(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::String(text) => format!("{text:?}"),
        other => golang::format_value(other),
    }
}

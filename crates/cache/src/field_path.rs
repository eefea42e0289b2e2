//! Field paths, and reading a field's values from JSON without decoding the object.

use std::{borrow::Cow, fmt, str::FromStr};

use crate::scan::{Cursor, ScanError, unescape};

/// The path of a field, for indexes and field selectors: `spec.nodeName`, `metadata.labels['app.kubernetes.io/name']`.
///
/// A list on the path expands to its elements, so `spec.volumes.configMap.name` has one value for each such volume.
/// Numbers and booleans have their JSON form as value; an absent or `null` field has no value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldPath(Box<[Box<str>]>);

/// A string is not a field path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid field path `{0}`: write it like `spec.nodeName` or `metadata.labels['a.b/c']`")]
pub struct InvalidFieldPath(String);

impl From<&str> for InvalidFieldPath {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl FromStr for FieldPath {
    type Err = InvalidFieldPath;

    fn from_str(text: &str) -> Result<Self, InvalidFieldPath> {
        let invalid = || InvalidFieldPath(text.to_owned());
        let mut parts: Vec<Box<str>> = Vec::new();
        let mut rest = text.strip_prefix('.').unwrap_or(text);
        while !rest.is_empty() {
            if let Some(quoted) = rest.strip_prefix("['") {
                let (name, after) = quoted.split_once("']").ok_or_else(invalid)?;
                parts.push(name.into());
                rest = after;
            } else {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                if end == 0 {
                    return Err(invalid());
                }
                parts.push(rest[..end].into());
                rest = &rest[end..];
            }
            if let Some(after) = rest.strip_prefix('.') {
                if after.is_empty() {
                    return Err(invalid());
                }
                rest = after;
            }
        }
        if parts.is_empty() {
            return Err(invalid());
        }
        Ok(Self(parts.into()))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, part) in self.0.iter().enumerate() {
            if part.is_empty() || part.contains(['.', '[']) {
                write!(f, "['{part}']")?;
            } else {
                write!(f, "{}{part}", if number == 0 { "" } else { "." })?;
            }
        }
        Ok(())
    }
}

impl FieldPath {
    pub(crate) fn is_in_metadata(&self) -> bool {
        self.0.first().is_some_and(|part| &**part == "metadata")
    }

    /// Returns the field's values in an object's JSON; none if it is not valid.
    pub(crate) fn values(&self, text: &[u8]) -> Vec<Box<str>> {
        let mut found = Vec::new();
        if walk(&mut Cursor::new(text), &self.0, &mut found).is_err() {
            found.clear();
        }
        found
    }
}

fn walk(cursor: &mut Cursor<'_>, path: &[Box<str>], found: &mut Vec<Box<str>>) -> Result<(), ScanError> {
    match (cursor.peek()?, path) {
        (b'[', _) => cursor.elements(|cursor| walk(cursor, path, found)),
        (b'{', [part, rest @ ..]) => cursor.members(|cursor, name| {
            if name == part.as_bytes() {
                walk(cursor, rest, found)
            } else {
                cursor.skip()
            }
        }),
        (b'"', []) => {
            found.push(unescape(cursor.string()?)?.into());
            Ok(())
        }
        (first, []) if first != b'{' && first != b'n' => {
            let place = cursor.value_range()?;
            found.push(String::from_utf8_lossy(&cursor.text[place]).into());
            Ok(())
        }
        _ => cursor.skip(),
    }
}

/// Treats an absent value as empty, as the server does.
pub(crate) fn or_empty(values: Vec<Box<str>>) -> Vec<Cow<'static, str>> {
    if values.is_empty() {
        return vec![Cow::Borrowed("")];
    }
    values.into_iter().map(|value| Cow::Owned(value.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_path_finds_exactly_its_values() {
        let text = br#"{"metadata":{"labels":{"a.b/c":"x"}},"spec":{"nodeName":"n1","replicas":3,"on":true,"none":null,
            "volumes":[{"configMap":{"name":"one"}},{"secret":{"name":"no"}},{"configMap":{"name":"two"}}],"args":["p","q"]}}"#;
        let cases: &[(&str, &[&str])] = &[
            ("spec.nodeName", &["n1"]),
            (".spec.nodeName", &["n1"]),
            ("spec.replicas", &["3"]),
            ("spec.on", &["true"]),
            ("spec.none", &[]),
            ("spec.absent", &[]),
            ("spec.volumes", &[]),
            ("spec.volumes.configMap.name", &["one", "two"]),
            ("spec.args", &["p", "q"]),
            ("metadata.labels['a.b/c']", &["x"]),
        ];
        for (path, expected) in cases {
            let parsed: FieldPath = path.parse().expect("a path");
            let found = parsed.values(text);
            assert_eq!(
                found.iter().map(|value| &**value).collect::<Vec<_>>(),
                *expected,
                "{path}"
            );
            assert_eq!(parsed.to_string(), path.trim_start_matches('.'));
        }
        for wrong in ["", ".", "a..b", "a.", "a['b"] {
            assert!(wrong.parse::<FieldPath>().is_err(), "{wrong}");
        }
    }
}

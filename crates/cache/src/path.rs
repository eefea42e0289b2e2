//! A field's path, and its values in an object's JSON, without decoding the object.

use std::{borrow::Cow, fmt, str::FromStr};

use crate::scan::{Cursor, Trouble, unescape};

/// Where a field is, for indexes and field selectors: `spec.nodeName`, `metadata.labels['app.kubernetes.io/name']`.
///
/// A list on the way stands for each of its elements, so `spec.volumes.configMap.name` has as many values as there are
/// such volumes. Strings are taken as they are, numbers and booleans as JSON writes them; absent and `null` is nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldPath(Box<[Box<str>]>);

/// A text that is no path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a field path: write `spec.nodeName` or `metadata.labels['a.b/c']`")]
pub struct InvalidPath(String);

impl From<&str> for InvalidPath {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl FromStr for FieldPath {
    type Err = InvalidPath;

    fn from_str(text: &str) -> Result<Self, InvalidPath> {
        let invalid = || InvalidPath(text.to_owned());
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
    pub(crate) fn is_of_metadata(&self) -> bool {
        self.0.first().is_some_and(|part| &**part == "metadata")
    }

    /// The field's values in an object's text; none if the text is not JSON.
    pub(crate) fn values(&self, text: &[u8]) -> Vec<Box<str>> {
        let mut found = Vec::new();
        if walk(&mut Cursor::new(text), &self.0, &mut found).is_err() {
            found.clear();
        }
        found
    }
}

fn walk(cursor: &mut Cursor<'_>, path: &[Box<str>], found: &mut Vec<Box<str>>) -> Result<(), Trouble> {
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
            let place = cursor.place()?;
            found.push(String::from_utf8_lossy(&cursor.text[place]).into());
            Ok(())
        }
        _ => cursor.skip(),
    }
}

/// A value that is absent counts as empty, as it does on the server.
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
    fn a_path_finds_every_value_and_nothing_else() {
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

//! Reads JSON like the real server: the last of duplicate fields wins and is reported, and syntax errors have Go's messages.

mod fast_path;

use std::{collections::HashSet, fmt};

use serde::{
    Deserialize,
    de::{DeserializeSeed, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value, map::Entry};

use crate::{depth, field_path::FieldPath};

/// How many unknown or duplicate fields are reported, as in the real server, and the maximum length of their paths together.
const MAX_REPORTED: usize = 100;
const MAX_REPORTED_BYTES: usize = 64 * 1024;

/// The paths of unknown or duplicate fields, each once, up to a limit.
#[derive(Debug, Default)]
pub(crate) struct ReportedPaths {
    paths: Vec<String>,
    seen: HashSet<String>,
    length: usize,
}

impl ReportedPaths {
    /// Adds a path. It is not formatted if the limit is reached.
    pub(crate) fn add(&mut self, path: &FieldPath<'_>) {
        self.add_text(|| path.to_string());
    }

    /// Like [`Self::add`], for a path with more text.
    pub(crate) fn add_text(&mut self, path: impl FnOnce() -> String) {
        if self.paths.len() >= MAX_REPORTED || self.length >= MAX_REPORTED_BYTES {
            return;
        }
        let path = path();
        if self.seen.insert(path.clone()) {
            self.length += path.len();
            self.paths.push(path);
        }
    }

    /// Adds paths that are relative to another one.
    pub(crate) fn add_below(&mut self, place: &FieldPath<'_>, paths: &[String]) {
        for path in paths {
            self.add_text(|| format!("{place}.{path}"));
        }
    }

    pub(crate) fn into_sorted_paths(self) -> Vec<String> {
        let mut paths = self.paths;
        paths.sort_unstable();
        paths
    }

    pub(crate) fn into_paths(self) -> Vec<String> {
        self.paths
    }
}

/// The first problems with fields, as many as the real server reports.
pub(crate) fn first_problems(problems: impl Iterator<Item = String>) -> Vec<String> {
    problems.take(MAX_REPORTED).collect()
}

/// Reads a document. Returns it with the paths of duplicate fields, or Go's error message.
pub(crate) fn read(bytes: &[u8]) -> Result<(Value, Vec<String>), String> {
    let text = std::str::from_utf8(bytes);
    if let Some(value) = text.ok().and_then(|text| fast_path::read(text, depth::limit())) {
        return Ok((value, Vec::new()));
    }
    check_depth(bytes)?;
    let read = match text {
        // Valid UTF-8: strings are not checked again.
        Ok(text) => read_all(serde_json::Deserializer::from_str(text)),
        Err(_) => read_all(serde_json::Deserializer::from_slice(bytes)),
    };
    read.map_err(|error| go_message(&error, bytes))
}

/// Rejects documents that are too deep, with Go's message.
fn check_depth(bytes: &[u8]) -> Result<(), String> {
    let mut beyond = None;
    let depth = depth::scan(bytes, |bracket, depth| {
        if depth == depth::MAX + 1 {
            beyond = beyond.or(Some(char::from(bracket)));
        }
    });
    let refuse = |_| format!("invalid character {:?} exceeded max depth", beyond.unwrap_or('{'));
    depth::check(depth).map_err(refuse)
}

/// Reads JSON that this server has written.
pub(crate) fn parse<'de, T: Deserialize<'de>>(text: &'de str) -> serde_json::Result<T> {
    // Nearly every document is within serde_json's own limit, and then the depth need not be measured.
    serde_json::from_str(text).or_else(|error| {
        let depth = depth::of_json(text.as_bytes());
        if depth > depth::stored_limit() {
            // An object that has just become so deep: the request starts again with a large stack.
            depth::check(depth.min(depth::MAX)).ok();
            return Err(error);
        }
        let mut reader = serde_json::Deserializer::from_str(text);
        reader.disable_recursion_limit();
        let value = T::deserialize(&mut reader)?;
        reader.end()?;
        Ok(value)
    })
}

/// Like [`parse`], for bytes.
pub(crate) fn parse_bytes<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> serde_json::Result<T> {
    parse(std::str::from_utf8(bytes).map_err(serde::de::Error::custom)?)
}

/// Like [`parse`], for trees.
pub(crate) fn read_stored(text: &str) -> serde_json::Result<Value> {
    fast_path::read(text, depth::stored_limit()).map_or_else(|| parse(text), Ok)
}

/// Reads a document whose depth has been checked.
fn read_all<'de, R: serde_json::de::Read<'de>>(
    mut reader: serde_json::Deserializer<R>,
) -> serde_json::Result<(Value, Vec<String>)> {
    reader.disable_recursion_limit();
    let mut duplicates = ReportedPaths::default();
    let tree = TreeBuilder {
        path: &FieldPath::Root,
        duplicates: &mut duplicates,
    };
    let value = tree.deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, duplicates.into_paths()))
}

/// Go's message for a syntax error.
fn go_message(error: &serde_json::Error, bytes: &[u8]) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let text = error.to_string();
    let context = [
        ("trailing characters", "after top-level value"),
        ("expected value", "looking for beginning of value"),
        (
            "key must be a string",
            "looking for beginning of object key string",
        ),
        ("trailing comma", "looking for beginning of object key string"),
        ("expected `:`", "after object key"),
        ("expected `,` or `}`", "after object key:value pair"),
        ("expected `,` or `]`", "after array element"),
        ("control character", "in string literal"),
        ("invalid escape", "in string escape code"),
    ]
    .into_iter()
    .find(|(ours, _)| text.starts_with(ours));
    let offset = bytes
        .split(|byte| *byte == b'\n')
        .take(error.line().saturating_sub(1))
        .map(|line| line.len() + 1)
        .sum::<usize>()
        + error.column().saturating_sub(1);
    if text.starts_with("expected ident")
        && let Some(why) = go_literal_message(bytes, offset)
    {
        return why;
    }
    match (context, bytes.get(offset)) {
        (Some((_, context)), Some(byte)) => {
            // Go shows bytes beyond ASCII as Latin-1.
            format!("invalid character {:?} {context}", char::from(*byte))
        }
        _ => text,
    }
}

/// `invalid character 'o' in literal null (expecting 'u')`
fn go_literal_message(bytes: &[u8], near: usize) -> Option<String> {
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic();
    let head = bytes.get(..=near.min(bytes.len().checked_sub(1)?))?;
    let start = head
        .iter()
        .rposition(|byte| !is_letter(byte))
        .map_or(0, |offset| offset + 1);
    let literal = ["null", "true", "false"]
        .into_iter()
        .find(|literal| literal.as_bytes().first() == bytes.get(start))?;
    let (offset, wanted) = literal
        .bytes()
        .enumerate()
        .find(|(index, wanted)| bytes.get(start + index) != Some(wanted))?;
    let found = char::from(*bytes.get(start + offset)?);
    let wanted = char::from(wanted);
    Some(format!(
        "invalid character {found:?} in literal {literal} (expecting {wanted:?})"
    ))
}

/// Builds a tree, and records duplicate fields.
struct TreeBuilder<'a> {
    path: &'a FieldPath<'a>,
    duplicates: &'a mut ReportedPaths,
}

impl TreeBuilder<'_> {
    fn child<'b>(&'b mut self, path: &'b FieldPath<'b>) -> TreeBuilder<'b> {
        TreeBuilder {
            path,
            duplicates: self.duplicates,
        }
    }
}

impl<'de> DeserializeSeed<'de> for TreeBuilder<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TreeBuilder<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("number out of range"))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let path = self.path;
            let item = FieldPath::Index(path, items.len());
            match access.next_element_seed(self.child(&item))? {
                Some(item) => items.push(item),
                None => return Ok(items.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        // Each is recorded once, because paths can be long.
        let mut repeated = HashSet::new();
        while let Some(key) = access.next_key::<String>()? {
            let path = self.path;
            match fields.entry(key) {
                Entry::Vacant(free) => {
                    let field = FieldPath::Child(path, free.key());
                    let value = access.next_value_seed(self.child(&field))?;
                    free.insert(value);
                }
                Entry::Occupied(mut taken) => {
                    let field = FieldPath::Child(path, taken.key());
                    if repeated.insert(taken.key().clone()) {
                        self.duplicates.add(&field);
                    }
                    let value = access.next_value_seed(self.child(&field))?;
                    taken.insert(value);
                }
            }
        }
        Ok(fields.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn last_duplicate_field_wins_and_is_reported() {
        let (value, duplicates) =
            read(br#"{"a":{"b":1,"b":2,"b":3},"l":[{"c":1,"c":2}],"n":[1.5,null,-3,true,"\u00e9"]}"#)
                .expect("JSON");
        assert_eq!(
            value,
            json!({"a": {"b": 3}, "l": [{"c": 2}], "n": [1.5, null, -3, true, "é"]})
        );
        assert_eq!(duplicates, ["a.b", "l[0].c"]);
    }

    #[test]
    fn syntax_errors_have_the_messages_of_go() {
        for (text, why) in [
            ("", "unexpected end of JSON input"),
            ("{\"a\":", "unexpected end of JSON input"),
            ("{} trailing", "invalid character 't' after top-level value"),
            ("x", "invalid character 'x' looking for beginning of value"),
            (
                "{\"a\":x}",
                "invalid character 'x' looking for beginning of value",
            ),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            (
                "{\"a\":1 \"b\"}",
                "invalid character '\"' after object key:value pair",
            ),
            ("[1 2]", "invalid character '2' after array element"),
            (
                "{1:2}",
                "invalid character '1' looking for beginning of object key string",
            ),
        ] {
            assert_eq!(read(text.as_bytes()).unwrap_err(), why, "{text}");
        }
    }
}

//! Reading JSON as the real server does: it takes the last of two fields with one name and says so, and has words of
//! its own for what is no JSON.

mod quick;

use std::{collections::HashSet, fmt};

use serde::{
    Deserialize,
    de::{DeserializeSeed, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value, map::Entry};

use crate::{depth, trail::Trail};

/// The paths of fields that should not be there: how many of them are named, as in the real server, and how long they may
/// be together.
const NOTED: usize = 100;
const NOTED_BYTES: usize = 64 * 1024;

/// The paths of fields that should not be there, each once, up to a limit.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    paths: Vec<String>,
    seen: HashSet<String>,
    length: usize,
}

impl Noted {
    /// Takes note of a path. It is not written out if there is no room for it.
    pub(crate) fn note(&mut self, path: &Trail<'_>) {
        if self.paths.len() >= NOTED || self.length >= NOTED_BYTES {
            return;
        }
        let path = path.to_string();
        if self.seen.insert(path.clone()) {
            self.length += path.len();
            self.paths.push(path);
        }
    }

    pub(crate) fn into_paths(self) -> Vec<String> {
        self.paths
    }
}

/// The first of the problems with fields, as many as the real server names.
pub(crate) fn first_problems(problems: impl Iterator<Item = String>) -> Vec<String> {
    problems.take(NOTED).collect()
}

/// A document, and the paths of the fields that it holds more than once; or Go's words on why it is none.
pub(crate) fn read(bytes: &[u8]) -> Result<(Value, Vec<String>), String> {
    let text = std::str::from_utf8(bytes);
    if let Some(value) = text.ok().and_then(|text| quick::read(text, depth::limit())) {
        return Ok((value, Vec::new()));
    }
    check_depth(bytes)?;
    let read = match text {
        // Of what is known to be text as a whole, not every string is looked at again.
        Ok(text) => read_all(serde_json::Deserializer::from_str(text)),
        Err(_) => read_all(serde_json::Deserializer::from_slice(bytes)),
    };
    read.map_err(|error| in_go(&error, bytes))
}

/// Refuses what is too deep in Go's words.
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
    // Nearly everything is within serde_json's own limit, and then nothing has to be measured.
    serde_json::from_str(text).or_else(|error| {
        if depth::of_json(text.as_bytes()) > depth::own_limit() {
            return Err(error);
        }
        let mut reader = serde_json::Deserializer::from_str(text);
        reader.disable_recursion_limit();
        let value = T::deserialize(&mut reader)?;
        reader.end()?;
        Ok(value)
    })
}

/// As [`parse`], of bytes.
pub(crate) fn parse_bytes<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> serde_json::Result<T> {
    parse(std::str::from_utf8(bytes).map_err(serde::de::Error::custom)?)
}

/// As [`parse`], for trees.
pub(crate) fn read_own(text: &str) -> serde_json::Result<Value> {
    quick::read(text, depth::own_limit()).map_or_else(|| parse(text), Ok)
}

/// Reads a document whose depth has been checked.
fn read_all<'de, R: serde_json::de::Read<'de>>(
    mut reader: serde_json::Deserializer<R>,
) -> serde_json::Result<(Value, Vec<String>)> {
    reader.disable_recursion_limit();
    let mut duplicates = Noted::default();
    let tree = Tree {
        place: &Trail::Root,
        duplicates: &mut duplicates,
    };
    let value = tree.deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, duplicates.into_paths()))
}

/// What Go says of the first byte that does not fit.
fn in_go(error: &serde_json::Error, bytes: &[u8]) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let text = error.to_string();
    let place = [
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
        && let Some(why) = broken_literal(bytes, offset)
    {
        return why;
    }
    match (place, bytes.get(offset)) {
        (Some((_, place)), Some(byte)) => {
            // Go names bytes beyond ASCII as Latin-1.
            format!("invalid character {:?} {place}", char::from(*byte))
        }
        _ => text,
    }
}

/// `invalid character 'o' in literal null (expecting 'u')`
fn broken_literal(bytes: &[u8], near: usize) -> Option<String> {
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic();
    let head = bytes.get(..=near.min(bytes.len().checked_sub(1)?))?;
    let start = head
        .iter()
        .rposition(|byte| !is_letter(byte))
        .map_or(0, |place| place + 1);
    let literal = ["null", "true", "false"]
        .into_iter()
        .find(|literal| literal.as_bytes().first() == bytes.get(start))?;
    let (place, wanted) = literal
        .bytes()
        .enumerate()
        .find(|(index, wanted)| bytes.get(start + index) != Some(wanted))?;
    let found = char::from(*bytes.get(start + place)?);
    let wanted = char::from(wanted);
    Some(format!(
        "invalid character {found:?} in literal {literal} (expecting {wanted:?})"
    ))
}

/// Builds a tree, and notes what it meets twice.
struct Tree<'a> {
    place: &'a Trail<'a>,
    duplicates: &'a mut Noted,
}

impl Tree<'_> {
    fn inner<'b>(&'b mut self, place: &'b Trail<'b>) -> Tree<'b> {
        Tree {
            place,
            duplicates: self.duplicates,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
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
            let place = self.place;
            let item = Trail::Item(place, items.len());
            match access.next_element_seed(self.inner(&item))? {
                Some(item) => items.push(item),
                None => return Ok(items.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        // Each is named once, however often it is there: paths can be long.
        let mut repeated = HashSet::new();
        while let Some(key) = access.next_key::<String>()? {
            let place = self.place;
            match fields.entry(key) {
                Entry::Vacant(free) => {
                    let field = Trail::Field(place, free.key());
                    let value = access.next_value_seed(self.inner(&field))?;
                    free.insert(value);
                }
                Entry::Occupied(mut taken) => {
                    let field = Trail::Field(place, taken.key());
                    if repeated.insert(taken.key().clone()) {
                        self.duplicates.note(&field);
                    }
                    let value = access.next_value_seed(self.inner(&field))?;
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
    fn the_last_of_two_fields_counts_and_is_named() {
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
    fn what_is_no_json_is_told_in_gos_words() {
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

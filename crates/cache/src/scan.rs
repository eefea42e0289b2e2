//! One pass over an object's JSON: finds its end, its metadata, and the range of its `managedFields`.
//!
//! The scanner follows brackets and strings and reads only metadata. It does not validate the rest: decoding does.

use std::{borrow::Cow, ops::Range};

use memchr::memchr2;

/// Why a scan failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanError {
    /// The text is truncated; more may arrive.
    Incomplete,
    /// The text is not JSON of the expected shape.
    Malformed(&'static str),
}

/// Member names and most values are no longer than this.
const SHORT_STRING: usize = 32;

/// Number of bytes that are scanned together.
const WORD: usize = 8;

type Result<T> = std::result::Result<T, ScanError>;

/// The metadata of a scanned object.
#[derive(Debug, Default)]
pub(crate) struct ScannedObject<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) namespace: Cow<'a, str>,
    pub(crate) uid: Cow<'a, str>,
    pub(crate) resource_version: Cow<'a, str>,
    pub(crate) generation: i64,
    pub(crate) deleting: bool,
    /// Whether a bookmark marks the end of the initial events.
    pub(crate) initial_events_end: bool,
    pub(crate) labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// UIDs of all owners.
    pub(crate) owners: Vec<Cow<'a, str>>,
    /// The range of `managedFields` with its comma.
    pub(crate) managed_fields: Option<Range<usize>>,
    /// Empty if absent, as in list items.
    pub(crate) kind: Cow<'a, str>,
    pub(crate) has_api_version: bool,
}

/// A position in a text.
pub(crate) struct Cursor<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the next byte that is not white space.
    pub(crate) fn peek(&mut self) -> Result<u8> {
        while let Some(byte) = self.text.get(self.at) {
            if !byte.is_ascii_whitespace() {
                return Ok(*byte);
            }
            self.at += 1;
        }
        Err(ScanError::Incomplete)
    }

    pub(crate) fn expect(&mut self, byte: u8) -> Result<()> {
        if self.peek()? != byte {
            return Err(ScanError::Malformed("unexpected character"));
        }
        self.at += 1;
        Ok(())
    }

    /// Reads a string, without its quotes, still escaped.
    pub(crate) fn string(&mut self) -> Result<&'a [u8]> {
        self.expect(b'"')?;
        let start = self.at;
        // Most strings are short: calling the vectorised search costs more than it saves on them.
        while self.at < start + SHORT_STRING
            && let Some(word) = self.text.get(self.at..).and_then(<[u8]>::first_chunk::<WORD>)
        {
            match quote_or_escape(*word) {
                None => self.at += WORD,
                Some(place) if word[place] == b'"' => {
                    self.at += place + 1;
                    return Ok(&self.text[start..self.at - 1]);
                }
                Some(_) => break,
            }
        }
        self.rest_of_string(start)
    }

    fn rest_of_string(&mut self, start: usize) -> Result<&'a [u8]> {
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let found = memchr2(b'"', b'\\', rest).ok_or(ScanError::Incomplete)?;
            self.at += found;
            if self.text[self.at] == b'"' {
                self.at += 1;
                return Ok(&self.text[start..self.at - 1]);
            }
            self.at += 2;
        }
    }

    /// Skips one value.
    pub(crate) fn skip(&mut self) -> Result<()> {
        self.value_range().map(|_| ())
    }

    /// Skips one value and returns its range.
    pub(crate) fn value_range(&mut self) -> Result<Range<usize>> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => {
                self.string()?;
            }
            b'{' | b'[' => {
                let mut depth = 0_u32;
                loop {
                    match self.text.get(self.at).ok_or(ScanError::Incomplete)? {
                        b'"' => {
                            self.string()?;
                            continue;
                        }
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => depth -= 1,
                        _ => {}
                    }
                    self.at += 1;
                    if depth == 0 {
                        break;
                    }
                }
            }
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => {
                let rest = &self.text[self.at..];
                let end = rest
                    .iter()
                    .position(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, b'+' | b'-' | b'.'));
                self.at += end.ok_or(ScanError::Incomplete)?;
            }
            _ => return Err(ScanError::Malformed("expected a value")),
        }
        Ok(start..self.at)
    }

    /// Calls `act` with the name of each member. The cursor is at the value, which `act` must consume.
    pub(crate) fn members(&mut self, mut act: impl FnMut(&mut Self, &'a [u8]) -> Result<()>) -> Result<()> {
        self.members_until(|cursor, name| act(cursor, name).map(|()| false))
            .map(drop)
    }

    /// Like `members`, but stops when `act` returns true; returns whether it did.
    fn members_until(&mut self, mut act: impl FnMut(&mut Self, &'a [u8]) -> Result<bool>) -> Result<bool> {
        self.expect(b'{')?;
        if self.peek()? == b'}' {
            self.at += 1;
            return Ok(false);
        }
        loop {
            let name = self.string()?;
            self.expect(b':')?;
            if act(self, name)? {
                return Ok(true);
            }
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Ok(false);
                }
                _ => return Err(ScanError::Malformed("expected a comma or the end of an object")),
            }
        }
    }

    /// Calls `act` at each element of an array, which `act` must consume.
    pub(crate) fn elements(&mut self, mut act: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.expect(b'[')?;
        if self.peek()? == b']' {
            self.at += 1;
            return Ok(());
        }
        loop {
            act(self)?;
            match self.peek()? {
                b',' => self.at += 1,
                b']' => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(ScanError::Malformed("expected a comma or the end of an array")),
            }
        }
    }

    /// Reads a string; returns an empty one for a value of another type.
    pub(crate) fn text_value(&mut self) -> Result<Cow<'a, str>> {
        if self.peek()? == b'"' {
            return unescape(self.string()?);
        }
        self.skip()?;
        Ok(Cow::Borrowed(""))
    }

    /// Skips an object and reads its metadata.
    pub(crate) fn object(&mut self) -> Result<ScannedObject<'a>> {
        self.read_object(None)
    }

    /// Like `object`, for an object known to end at `end`: the part after its metadata is not scanned.
    pub(crate) fn object_until(&mut self, end: usize) -> Result<ScannedObject<'a>> {
        self.read_object(Some(end))
    }

    fn read_object(&mut self, end: Option<usize>) -> Result<ScannedObject<'a>> {
        let mut found = ScannedObject::default();
        let mut has_metadata = false;
        let start = {
            self.peek()?;
            self.at
        };
        let enough = self.members_until(|cursor, name| {
            match name {
                b"metadata" if cursor.peek()? == b'{' => {
                    metadata(cursor, &mut found, start)?;
                    has_metadata = true;
                }
                b"kind" => found.kind = cursor.text_value()?,
                b"apiVersion" => {
                    found.has_api_version = true;
                    cursor.skip()?;
                }
                _ => cursor.skip()?,
            }
            Ok(end.is_some() && has_metadata && found.has_api_version && !found.kind.is_empty())
        })?;
        if let Some(end) = end.filter(|_| enough) {
            // Its closing bracket must come after the metadata.
            if self.at >= end {
                return Err(ScanError::Incomplete);
            }
            self.at = end;
        }
        Ok(found)
    }
}

/// Returns the index of the first quote or backslash.
fn quote_or_escape(word: [u8; WORD]) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; WORD]);
    const TOPS: u64 = u64::from_le_bytes([0x80; WORD]);
    let word = u64::from_le_bytes(word);
    // The top bit of each byte that equals `byte`; a borrow may set more of them, but only above a true one.
    let is = |byte: u8| {
        let differing = word ^ (ONES * u64::from(byte));
        differing.wrapping_sub(ONES) & !differing & TOPS
    };
    let found = is(b'"') | is(b'\\');
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

fn metadata<'a>(cursor: &mut Cursor<'a>, found: &mut ScannedObject<'a>, start: usize) -> Result<()> {
    let mut previous_end = cursor.at + 1;
    let mut first = true;
    cursor.members(|cursor, name| {
        match name {
            b"name" => found.name = cursor.text_value()?,
            b"namespace" => found.namespace = cursor.text_value()?,
            b"uid" => found.uid = cursor.text_value()?,
            b"resourceVersion" => found.resource_version = cursor.text_value()?,
            b"generation" => {
                let place = cursor.value_range()?;
                let digits = std::str::from_utf8(&cursor.text[place]).unwrap_or_default();
                found.generation = digits.parse().unwrap_or_default();
            }
            b"deletionTimestamp" => found.deleting = !cursor.text_value()?.is_empty(),
            b"labels" if cursor.peek()? == b'{' => cursor.members(|cursor, name| {
                found.labels.push((unescape(name)?, cursor.text_value()?));
                Ok(())
            })?,
            b"annotations" if cursor.peek()? == b'{' => cursor.members(|cursor, name| {
                if name == b"k8s.io/initial-events-end" {
                    found.initial_events_end = cursor.text_value()? == "true";
                } else {
                    cursor.skip()?;
                }
                Ok(())
            })?,
            b"ownerReferences" if cursor.peek()? == b'[' => cursor.elements(|cursor| {
                cursor.members(|cursor, name| {
                    if name == b"uid" {
                        found.owners.push(cursor.text_value()?);
                    } else {
                        cursor.skip()?;
                    }
                    Ok(())
                })
            })?,
            b"managedFields" => {
                cursor.skip()?;
                // Include the preceding comma, or the following one if it is the first member.
                let mut end = cursor.at;
                if first && cursor.peek()? == b',' {
                    end = cursor.at + 1;
                }
                found.managed_fields = Some(previous_end - start..end - start);
            }
            _ => cursor.skip()?,
        }
        previous_end = cursor.at;
        first = false;
        Ok(())
    })
}

pub(crate) fn unescape(text: &[u8]) -> Result<Cow<'_, str>> {
    let plain = std::str::from_utf8(text).map_err(|_| ScanError::Malformed("a string is not UTF-8"))?;
    if !text.contains(&b'\\') {
        return Ok(Cow::Borrowed(plain));
    }
    serde_json::from_str::<String>(&format!("\"{plain}\""))
        .map(Cow::Owned)
        .map_err(|_| ScanError::Malformed("invalid escape in a string"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn scan(text: &str) -> Result<ScannedObject<'_>> {
        Cursor::new(text.as_bytes()).object()
    }

    #[test]
    fn metadata_is_read_at_any_position() {
        let text = r#"{ "spec" : {"a":"}\"{"}, "metadata":{"uid":"u","labels":{"a\/b":"c"},"ownerReferences":[{"name":"x","uid":"o"}],
            "generation":7,"name":"n","namespace":"s","resourceVersion":"12","deletionTimestamp":"now"}, "kind":"K" }"#;
        let found = scan(text).expect("an object");
        assert_eq!((&*found.name, &*found.namespace, &*found.uid), ("n", "s", "u"));
        assert_eq!(
            (&*found.resource_version, found.generation, found.deleting),
            ("12", 7, true)
        );
        assert_eq!(found.labels, [("a/b".into(), "c".into())]);
        assert_eq!(found.owners, ["o"]);
        assert!(found.kind == "K" && !found.has_api_version);
    }

    #[test]
    fn every_prefix_of_an_object_is_incomplete() {
        let text =
            r#"{"metadata":{"name":"a\"b","managedFields":[{}],"labels":{"x":"y"}},"n":[1,2.5,true,null]}"#;
        for end in 0..text.len() {
            assert_eq!(
                scan(&text[..end]).err(),
                Some(ScanError::Incomplete),
                "{}",
                &text[..end]
            );
        }
        assert!(scan(text).is_ok());
        for wrong in ["5", "[]", r#"{"a" 5}"#, r#"{"a":}"#, r#"{"a":5;"b":6}"#, "<html>"] {
            assert!(
                matches!(scan(wrong).err(), Some(ScanError::Malformed(_))),
                "{wrong}"
            );
        }
    }

    proptest! {
        #[test]
        fn quotes_and_escapes_are_found(word in prop::array::uniform8(prop_oneof![Just(b'"'), Just(b'\\'), any::<u8>(), Just(b'#'), Just(b'!')])) {
            let expected = word.iter().position(|byte| matches!(byte, b'"' | b'\\'));
            prop_assert_eq!(quote_or_escape(word), expected);
        }

        #[test]
        fn string_ends_at_its_closing_quote(text in "[a-z\"\\\\é]{0,80}", after in "[a-z\"]{0,9}") {
            let json = Value::String(text).to_string();
            let all = format!("{json}{after}");
            let mut cursor = Cursor::new(all.as_bytes());
            prop_assert_eq!(cursor.string(), Ok(&json.as_bytes()[1..json.len() - 1]));
            prop_assert_eq!(cursor.at, json.len());
        }

        /// Cutting `managedFields` out of the text is the same as removing it from the value.
        #[test]
        fn managed_fields_range_is_exact(before in 0..3_usize, after in 0..3_usize, spaces in "[ \n]{0,2}") {
            let mut metadata = serde_json::Map::new();
            let members: Vec<_> = (0..before).map(|n| (format!("a{n}"), json!({"x": [n, "]}\\\""]})))
                .chain([("managedFields".to_owned(), json!([{"f:a": {}}, {"f:b": "}"}]))])
                .chain((0..after).map(|n| (format!("z{n}"), json!(n)))).collect();
            let text: Vec<_> = members.iter().map(|(name, value)| format!("{spaces}\"{name}\"{spaces}:{spaces}{value}{spaces}")).collect();
            let text = format!("{{\"metadata\":{{{}}}}}", text.join(","));
            let cut = scan(&text).expect("an object").managed_fields.expect("they are there");
            let left = [&text[..cut.start], &text[cut.end..]].concat();
            metadata.extend(members);
            metadata.remove("managedFields");
            prop_assert_eq!(serde_json::from_str::<Value>(&left).expect("still JSON"), json!({ "metadata": metadata }));
        }
    }
}

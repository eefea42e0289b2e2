//! An account that a client sends back as it got it.
//!
//! Nearly every update does. A tree of the account costs more than one of all the rest of the object, so that it is looked
//! for in the text, compared with the one that is stored, and cut out before the text is read.

use memchr::{memchr2, memmem};
use serde_json::Value;

use super::managed::Written;
use crate::json;

/// Reads an object's JSON without its `metadata.managedFields`, as [`json::read`] would: where they say what is `stored`.
/// None where they say anything else, or nothing, or are not found at a glance: then the whole must be read.
pub(crate) fn read_returned(body: &[u8], stored: &str) -> Option<(Value, Vec<String>)> {
    if stored.is_empty() {
        return None;
    }
    let (rest, accounts) = cut(std::str::from_utf8(body).ok()?, "\"managedFields\":")?;
    let [account] = accounts[..] else {
        return None;
    };
    if !is_same(stored, account) {
        return None;
    }
    let (mut value, duplicates) = json::read(rest.as_bytes()).ok()?;
    let cut_out = value
        .get_mut("metadata")?
        .as_object_mut()?
        .remove("managedFields")?;
    // If it is not there, it stood in another place.
    cut_out.is_null().then_some((value, duplicates))
}

/// Whether two accounts are the same, but for the order in which the parts of an entry are written.
fn is_same(stored: &str, said: &str) -> bool {
    stored == said || as_stored(said).is_some_and(|said| said == stored.as_bytes())
}

/// An account as it would be stored, but for what its entries say of fields, which stays as it is written.
fn as_stored(said: &str) -> Option<Vec<u8>> {
    let (entries, fields) = cut(said, "\"fieldsV1\":")?;
    let entries: Vec<Written<'_>> = json::parse(&entries).ok()?;
    if entries.len() != fields.len() {
        return None;
    }
    let mut json = Vec::with_capacity(said.len());
    for (entry, fields) in entries.into_iter().zip(fields) {
        json.push(if json.is_empty() { b'[' } else { b',' });
        entry
            .understood()?
            .write_with(&mut json, |json| json.extend_from_slice(fields.as_bytes()));
    }
    json.push(b']');
    Some(json)
}

/// A text with `null` for every list and object that stands after a key, and these. The key comes with quotes and colon.
/// None where one of them has no end: nothing is looked at twice.
fn cut<'t>(text: &'t str, key: &str) -> Option<(String, Vec<&'t str>)> {
    let (mut rest, mut values) = (String::with_capacity(text.len()), Vec::new());
    let mut left = text;
    while let Some(place) = memmem::find(left.as_bytes(), key.as_bytes()) {
        // The end of a longer key.
        let escaped = left[..place].ends_with('\\');
        let (before, after) = left.split_at(place + key.len());
        rest.push_str(before);
        left = after;
        if !escaped && after.starts_with(['[', '{']) {
            let length = length(after)?;
            rest.push_str("null");
            values.push(&after[..length]);
            left = &after[length..];
        }
    }
    rest.push_str(left);
    Some((rest, values))
}

/// How long the list or object is that a text begins with; none if it has no end.
fn length(text: &str) -> Option<usize> {
    let text = text.as_bytes();
    let (mut depth, mut place) = (0_usize, 0);
    loop {
        match text.get(place)? {
            b'[' | b'{' => depth += 1,
            b']' | b'}' if depth == 1 => return Some(place + 1),
            b']' | b'}' => depth = depth.checked_sub(1)?,
            b'"' => place = end_of_string(text, place + 1)?,
            _ => {}
        }
        place += 1;
    }
}

/// Where the quote is that ends a string.
fn end_of_string(text: &[u8], mut place: usize) -> Option<usize> {
    loop {
        place += memchr2(b'"', b'\\', text.get(place..)?)?;
        if text[place] == b'"' {
            return Some(place);
        }
        place += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORED: &str = r#"[{"manager":"a","operation":"Update","apiVersion":"v1","time":"2020-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:a":{"k:{\"n\":\"]}\"}":{}}}},{"manager":"b","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:b":{}}}]"#;

    #[test]
    fn what_is_returned_is_left_out() {
        let reordered = r#"[ {"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:a":{"k:{\"n\":\"]}\"}":{}}},"manager":"a","operation":"Update","time":"2020-01-01T00:00:00Z"},{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:b":{}},"manager":"b","operation":"Apply"}]"#;
        for account in [STORED, reordered] {
            let body = format!(
                r#"{{"metadata":{{"a":"\"managedFields\":[","managedFields":{account},"b":1,"b":2}},"c":"}}"}}"#
            );
            let (mut whole, duplicates) = json::read(body.as_bytes()).expect("JSON");
            whole["metadata"]
                .as_object_mut()
                .expect("an object")
                .remove("managedFields");
            assert_eq!(
                read_returned(body.as_bytes(), STORED),
                Some((whole, duplicates)),
                "{body}"
            );
        }
    }

    #[test]
    fn what_says_anything_else_is_read_as_a_whole() {
        let object = |account: &str| format!(r#"{{"metadata":{{"managedFields":{account}}}}}"#);
        let twice = format!(r#"{{"metadata":{{"managedFields":{STORED},"managedFields":{STORED}}}}}"#);
        for body in [
            object("[]"),
            object("null"),
            object("7"),
            object("[{"),
            object(&STORED.replace("f:a", "f:c")),
            object(&STORED.replace("\"b\"", "\"c\"")),
            object(&STORED.replace("2020", "2021")),
            // What no entry has is to be told of.
            object(&STORED.replace("\"manager\":\"b\"", "\"manager\":\"b\",\"x\":1")),
            object(&STORED.replace("\"manager\":\"b\"", "\"manager\":\"b\",\"manager\":\"b\"")),
            object(STORED).replace("metadata", "data"),
            format!(r#"{{"metadata":{{}},"managedFields":{STORED}}}"#),
            format!("{}x", object(STORED)),
            r#"{"metadata":{}}"#.to_owned(),
            twice,
        ] {
            assert_eq!(read_returned(body.as_bytes(), STORED), None, "{body}");
        }
        assert_eq!(read_returned(object("[]").as_bytes(), ""), None);
    }
}

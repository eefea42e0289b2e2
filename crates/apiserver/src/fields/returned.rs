//! Reads an update whose managed fields are unchanged, as nearly always.
//!
//! Parsing the managed fields costs more than parsing the rest of the object. So they are found in the text, compared
//! with the stored ones, and cut out before the text is parsed.

use memchr::{memchr2, memmem};
use serde_json::Value;

use super::managed::EntryJson;
use crate::json;

/// Reads an object's JSON like [`json::read`], without its `metadata.managedFields`, if these equal the `stored` ones.
/// None if they differ, are absent or are not found by text search: then the whole body must be read.
pub(crate) fn read_with_unchanged_managed_fields(body: &[u8], stored: &str) -> Option<(Value, Vec<String>)> {
    if stored.is_empty() {
        return None;
    }
    let (rest, found) = cut_values(std::str::from_utf8(body).ok()?, "\"managedFields\":")?;
    let [managed_fields] = found[..] else {
        return None;
    };
    if !is_equivalent(stored, managed_fields) {
        return None;
    }
    let (mut value, duplicates) = json::read(rest.as_bytes()).ok()?;
    let cut_out = value
        .get_mut("metadata")?
        .as_object_mut()?
        .remove("managedFields")?;
    // If it is not null, the text that was cut out was at another path.
    cut_out.is_null().then_some((value, duplicates))
}

/// Whether managed fields are equal except for the order of an entry's keys.
fn is_equivalent(stored: &str, sent: &str) -> bool {
    stored == sent || to_stored_form(sent).is_some_and(|sent| sent == stored.as_bytes())
}

/// Managed fields in their stored form, except that `fieldsV1` stays as it was sent.
fn to_stored_form(sent: &str) -> Option<Vec<u8>> {
    let (entries, fields) = cut_values(sent, "\"fieldsV1\":")?;
    let entries: Vec<EntryJson<'_>> = json::parse(&entries).ok()?;
    if entries.len() != fields.len() {
        return None;
    }
    let mut json = Vec::with_capacity(sent.len());
    for (entry, fields) in entries.into_iter().zip(fields) {
        json.push(if json.is_empty() { b'[' } else { b',' });
        entry
            .into_entry()?
            .write_with(&mut json, |json| json.extend_from_slice(fields.as_bytes()));
    }
    json.push(b']');
    Some(json)
}

/// Replaces every list and object after a key by `null`, and returns the replaced ones too. `key` includes quotes and
/// colon. None if one of them has no end. Reads the text once.
fn cut_values<'t>(text: &'t str, key: &str) -> Option<(String, Vec<&'t str>)> {
    let (mut rest, mut values) = (String::with_capacity(text.len()), Vec::new());
    let mut left = text;
    while let Some(offset) = memmem::find(left.as_bytes(), key.as_bytes()) {
        // The quote may be part of a longer key.
        let escaped = left[..offset].ends_with('\\');
        let (before, after) = left.split_at(offset + key.len());
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

/// The length of the list or object at the beginning of a text; none if it has no end.
fn length(text: &str) -> Option<usize> {
    let text = text.as_bytes();
    let (mut depth, mut offset) = (0_usize, 0);
    loop {
        match text.get(offset)? {
            b'[' | b'{' => depth += 1,
            b']' | b'}' if depth == 1 => return Some(offset + 1),
            b']' | b'}' => depth = depth.checked_sub(1)?,
            b'"' => offset = end_of_string(text, offset + 1)?,
            _ => {}
        }
        offset += 1;
    }
}

/// The position of the quote that ends a string.
fn end_of_string(text: &[u8], mut offset: usize) -> Option<usize> {
    loop {
        offset += memchr2(b'"', b'\\', text.get(offset..)?)?;
        if text[offset] == b'"' {
            return Some(offset);
        }
        offset += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORED: &str = r#"[{"manager":"a","operation":"Update","apiVersion":"v1","time":"2020-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:a":{"k:{\"n\":\"]}\"}":{}}}},{"manager":"b","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:b":{}}}]"#;

    #[test]
    fn unchanged_managed_fields_are_left_out() {
        let reordered = r#"[ {"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:a":{"k:{\"n\":\"]}\"}":{}}},"manager":"a","operation":"Update","time":"2020-01-01T00:00:00Z"},{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:b":{}},"manager":"b","operation":"Apply"}]"#;
        for managed_fields in [STORED, reordered] {
            let body = format!(
                r#"{{"metadata":{{"a":"\"managedFields\":[","managedFields":{managed_fields},"b":1,"b":2}},"c":"}}"}}"#
            );
            let (mut whole, duplicates) = json::read(body.as_bytes()).expect("JSON");
            whole["metadata"]
                .as_object_mut()
                .expect("an object")
                .remove("managedFields");
            assert_eq!(
                read_with_unchanged_managed_fields(body.as_bytes(), STORED),
                Some((whole, duplicates)),
                "{body}"
            );
        }
    }

    #[test]
    fn other_managed_fields_are_not_cut_out() {
        let object = |managed_fields: &str| format!(r#"{{"metadata":{{"managedFields":{managed_fields}}}}}"#);
        let duplicated = format!(r#"{{"metadata":{{"managedFields":{STORED},"managedFields":{STORED}}}}}"#);
        for body in [
            object("[]"),
            object("null"),
            object("7"),
            object("[{"),
            object(&STORED.replace("f:a", "f:c")),
            object(&STORED.replace("\"b\"", "\"c\"")),
            object(&STORED.replace("2020", "2021")),
            // An unknown field must be reported.
            object(&STORED.replace("\"manager\":\"b\"", "\"manager\":\"b\",\"x\":1")),
            object(&STORED.replace("\"manager\":\"b\"", "\"manager\":\"b\",\"manager\":\"b\"")),
            object(STORED).replace("metadata", "data"),
            format!(r#"{{"metadata":{{}},"managedFields":{STORED}}}"#),
            format!("{}x", object(STORED)),
            r#"{"metadata":{}}"#.to_owned(),
            duplicated,
        ] {
            assert_eq!(
                read_with_unchanged_managed_fields(body.as_bytes(), STORED),
                None,
                "{body}"
            );
        }
        assert_eq!(
            read_with_unchanged_managed_fields(object("[]").as_bytes(), ""),
            None
        );
    }
}

//! Writing trees as JSON, byte for byte as `serde_json` does: an object is written whole with every write to it.

use serde_json::Value;

/// Appends a value.
pub(crate) fn write(json: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => json.extend_from_slice(b"null"),
        Value::Bool(true) => json.extend_from_slice(b"true"),
        Value::Bool(false) => json.extend_from_slice(b"false"),
        Value::Number(_) => serde_json::to_writer(json, value).expect("writing to memory does not fail"),
        Value::String(text) => write_text(json, text),
        Value::Array(items) => {
            json.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    json.push(b',');
                }
                write(json, item);
            }
            json.push(b']');
        }
        Value::Object(fields) => {
            json.push(b'{');
            for (index, (key, value)) in fields.iter().enumerate() {
                if index > 0 {
                    json.push(b',');
                }
                write_field(json, key, value);
            }
            json.push(b'}');
        }
    }
}

/// Appends a field, without a comma.
pub(crate) fn write_field(json: &mut Vec<u8>, key: &str, value: &Value) {
    write_text(json, key);
    json.push(b':');
    write(json, value);
}

/// Appends a string in quotes.
pub(crate) fn write_text(json: &mut Vec<u8>, text: &str) {
    if is_plain(text) {
        json.reserve(text.len() + 2);
        json.push(b'"');
        json.extend_from_slice(text.as_bytes());
        json.push(b'"');
    } else {
        serde_json::to_writer(json, text).expect("writing to memory does not fail");
    }
}

/// Whether a text stands in JSON as it is.
pub(crate) fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    let word = |word: &[u8; 8]| specials(u64::from_le_bytes(*word));
    // The last eight are looked at together, whether or not some of them were before.
    if let Some(last) = bytes.last_chunk() {
        let words = bytes.as_chunks().0.iter();
        return words.fold(word(last), |found, next| found | word(next)) == 0;
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let half = |half: &[u8; 4]| u64::from(u32::from_le_bytes(*half));
        return specials(half(first) | half(last) << 32) == 0;
    }
    bytes.iter().all(|byte| !matches!(byte, 0..b' ' | b'"' | b'\\'))
}

/// Of eight bytes of text, sets the top bit of the first that does not stand for itself in a string of JSON (a quote, a
/// backslash, a control character), and of none before it; nothing if all do.
pub(crate) fn specials(word: u64) -> u64 {
    /// A byte in all eight places.
    const fn all(byte: u8) -> u64 {
        u64::from_ne_bytes([byte; 8])
    }
    // What is subtracted borrows from the next byte only where it found something.
    let below = |word: u64, byte: u8| word.wrapping_sub(all(byte)) & !word & all(0x80);
    below(word ^ all(b'"'), 1) | below(word ^ all(b'\\'), 1) | below(word, b' ')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn written(value: &Value) -> String {
        let mut json = Vec::new();
        write(&mut json, value);
        String::from_utf8(json).expect("text")
    }

    #[test]
    fn trees_are_written_as_serde_json_writes_them() {
        let value = json!({"a": [null, true, false, -1, 1.5, 1e300, u64::MAX], "b": {}, "c": [], "\"é\n": {"x": "\\"}});
        assert_eq!(written(&value), value.to_string());
    }

    proptest! {
        #[test]
        fn texts_are_written_as_serde_json_writes_them(text in prop_oneof![any::<String>(), "[ -~]{0,40}", "[a-z\u{7f}\u{1f}\"]{0,20}"]) {
            let value = Value::from(text);
            prop_assert_eq!(written(&value), value.to_string());
        }
    }
}

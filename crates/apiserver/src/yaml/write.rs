//! Writes JSON trees as YAML that YAML 1.1 and 1.2 read as the same tree.

use std::fmt::Write;

use serde_json::Value;

use super::scalars;

/// Writes a value as a document.
pub(crate) fn to_yaml(value: &Value) -> String {
    let mut text = String::new();
    inline(value, 0, &mut text);
    text
}

/// Appends a value as the next item of a list at the left margin.
pub(crate) fn append_item(value: &Value, text: &mut String) {
    list_item(value, 0, text);
}

/// Maximum indentation; deeper values are written as JSON, which is YAML too. Indenting 10,000 levels would take a
/// hundred megabytes.
const MAX_INDENT: usize = 200;

/// The lines of a non-empty map or list.
fn block(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(fields) => {
            for (index, (key, value)) in fields.iter().enumerate() {
                // The first line may follow the dash of a list item.
                if index > 0 || text.is_empty() || text.ends_with('\n') {
                    pad(indent, text);
                }
                string(key, text);
                text.push(':');
                match value {
                    _ if indent > MAX_INDENT => {
                        text.push(' ');
                        inline(value, indent, text);
                    }
                    Value::Object(inner) if !inner.is_empty() => {
                        text.push('\n');
                        block(value, indent + 2, text);
                    }
                    Value::Array(inner) if !inner.is_empty() => {
                        text.push('\n');
                        block(value, indent, text);
                    }
                    other => {
                        text.push(' ');
                        scalar(other, text);
                        text.push('\n');
                    }
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| list_item(item, indent, text)),
        _ => {}
    }
}

/// Writes an item of a list.
fn list_item(value: &Value, indent: usize, text: &mut String) {
    if text.is_empty() || text.ends_with('\n') {
        pad(indent, text);
    }
    text.push_str("- ");
    inline(value, indent + 2, text);
}

/// Writes a value at the end of the current line.
fn inline(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(_) | Value::Array(_) if indent > MAX_INDENT => {
            let _ = writeln!(text, "{value}");
        }
        Value::Object(fields) if !fields.is_empty() => block(value, indent, text),
        Value::Array(items) if !items.is_empty() => block(value, indent, text),
        other => {
            scalar(other, text);
            text.push('\n');
        }
    }
}

fn pad(indent: usize, text: &mut String) {
    text.extend(std::iter::repeat_n(' ', indent));
}

fn scalar(value: &Value, text: &mut String) {
    match value {
        Value::String(word) => string(word, text),
        Value::Object(_) => text.push_str("{}"),
        Value::Array(_) => text.push_str("[]"),
        other => {
            let _ = write!(text, "{other}");
        }
    }
}

/// Writes a string, quoted unless it is unambiguous.
fn string(word: &str, text: &mut String) {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '/' | '.' | '-' | '(' | ')');
    if word.chars().all(is_plain) && !word.starts_with(['-', '.']) && scalars::is_always_string(word) {
        text.push_str(word);
        return;
    }
    text.push('"');
    for c in word.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            '\r' => text.push_str("\\r"),
            // Not printable, or a line break.
            '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, json};

    use super::*;

    #[test]
    fn maps_and_lists_are_written_as_blocks() {
        let value = json!({
            "a": {"b": [1, {"c": "yes", "d": []}, ["x", "y"]]},
            "e": {},
            "f": null,
            "g": "two\nlines",
        });
        assert_eq!(
            to_yaml(&value),
            "a:\n  b:\n  - 1\n  - c: \"yes\"\n    d: []\n  - - x\n    - \"y\"\ne: {}\nf: null\ng: \"two\\nlines\"\n"
        );
        assert_eq!(to_yaml(&json!("on")), "\"on\"\n");
    }

    fn trees() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~]{0,12}".prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            prop::sample::select(vec![
                "yes", "1:30", "0x1f", "~", "", "<<", "1e3", "-", "...", "---", "é"
            ])
            .prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec(("[ -~]{0,8}", inner), 0..5)
                    .prop_map(|fields| Value::from(fields.into_iter().collect::<Map<_, _>>())),
            ]
        })
    }

    proptest! {
        #[test]
        fn written_yaml_reads_back(value in trees()) {
            let text = to_yaml(&value);
            let read = super::super::read(text.as_bytes()).map(|(value, _)| value);
            prop_assert_eq!(read, Ok(value.clone()), "{}", text);
            // A YAML 1.2 parser reads the same.
            prop_assert_eq!(serde_yaml_ng::from_str::<Value>(&text).ok(), Some(value), "{}", text);
        }
    }
}

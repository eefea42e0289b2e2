//! Formats values like Go, because the real server's messages quote them.

use std::fmt::Write;

use serde_json::Value;
use windlass_api::field_error::format_number;

/// A value as `%v` prints it: `map[a:1 b:[x y]]`.
pub(crate) fn format_value(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    text
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&format_number(number)),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push_str("map[");
            for (index, (key, value)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                write_value(out, value);
            }
            out.push(']');
        }
    }
}

/// A text as `%q` prints it.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\'' => quoted.push('\''),
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\0'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(quoted, "\\x{:02x}", u32::from(letter));
            }
            // What Rust escapes is not printable either.
            _ if letter.escape_debug().len() > 1 => {
                let code = u32::from(letter);
                let _ = if code > 0xffff {
                    write!(quoted, "\\U{code:08x}")
                } else {
                    write!(quoted, "\\u{code:04x}")
                };
            }
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// Go's name of the dynamic type of a decoded JSON value.
pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// The name of a value's type in errors of Go's JSON decoder.
pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_quoted_like_in_go() {
        for (text, expected) in [
            ("a'b\"c\\", r#""a'b\"c\\""#),
            (
                "\u{1}\t\u{7f}é\u{200b}\u{e0001}",
                r#""\x01\t\x7fé\u200b\U000e0001""#,
            ),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }

    #[test]
    fn values_are_formatted_like_go() {
        for (value, text) in [
            (
                json!({"b": [1, "x", null], "a": true}),
                "map[a:true b:[1 x <nil>]]",
            ),
            (json!(1.5), "1.5"),
            (json!(1e21), "1e+21"),
            (json!(0.00001), "1e-05"),
            (json!([]), "[]"),
        ] {
            assert_eq!(format_value(&value), text);
        }
    }
}

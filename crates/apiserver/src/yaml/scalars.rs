//! Resolution of plain scalars: `yes` is true, `0x10` is 16, `1_000` is 1,000, and `1:30` is a string.
//!
//! The rules are those of the real server's library: mostly YAML 1.1, partly Go.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Number, Value};

static FLOAT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$").expect("a constant")
});

/// The value of a scalar with a core tag (`int`, `str`, …); an empty tag resolves by the text.
pub(super) fn resolve(tag: &str, text: &str) -> Result<Value, String> {
    let word = match tag {
        "" | "bool" | "int" | "float" | "null" => PlainScalar::parse(text),
        _ => return Ok(text.into()),
    };
    match (tag, word.tag()) {
        ("", _) | ("float", "int") => word.value(text),
        (wanted, found) if wanted == found => word.value(text),
        (wanted, found) => Err(format!("yaml: cannot decode !!{found} `{text}` as a !!{wanted}")),
    }
}

/// Whether a plain scalar is a string in every version of YAML.
pub(super) fn is_always_string(word: &str) -> bool {
    matches!(PlainScalar::parse(word), PlainScalar::Text)
        && !word.starts_with(|first: char| first.is_ascii_digit())
}

/// Converts a map key to a JSON key.
pub(super) fn map_key(key: &Value, value: &Value) -> Result<String, String> {
    match key {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(word) => Ok(word.to_string()),
        Value::Null => Err(format!(
            "unsupported map key of type: %!s(<nil>), key: <nil>, value: {}",
            format_as_go(value)
        )),
        _ => Err(format!("yaml: invalid map key: {}", format_as_go(key))),
    }
}

/// Formats a value like Go's `%#v`.
fn format_as_go(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(format_as_go).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|(key, value)| format!("{key:?}:{}", format_as_go(value)))
                .collect();
            format!("map[interface {{}}]interface {{}}{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

enum PlainScalar {
    Bool(bool),
    Null,
    Int(Number),
    Float(f64),
    Text,
}

impl PlainScalar {
    fn parse(text: &str) -> Self {
        match text {
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
                return Self::Bool(true);
            }
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
                return Self::Bool(false);
            }
            "" | "~" | "null" | "Null" | "NULL" => return Self::Null,
            ".nan" | ".NaN" | ".NAN" => return Self::Float(f64::NAN),
            ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Self::Float(f64::INFINITY),
            "-.inf" | "-.Inf" | "-.INF" => return Self::Float(f64::NEG_INFINITY),
            _ => {}
        }
        if !text.starts_with(|first: char| matches!(first, '0'..='9' | '+' | '-' | '.')) {
            return Self::Text;
        }
        let plain = text.replace('_', "");
        if let Some(number) = integer(&plain) {
            return Self::Int(number);
        }
        let float = Some(plain)
            .filter(|plain| FLOAT.is_match(plain))
            .and_then(|plain| plain.parse::<f64>().ok())
            .filter(|float| float.is_finite());
        float.map_or(Self::Text, Self::Float)
    }

    fn tag(&self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::Null => "null",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Text => "str",
        }
    }

    fn value(self, text: &str) -> Result<Value, String> {
        match self {
            Self::Bool(word) => Ok(word.into()),
            Self::Null => Ok(Value::Null),
            Self::Int(number) => Ok(number.into()),
            Self::Float(float) => number(float),
            Self::Text => Ok(text.into()),
        }
    }
}

/// Parses an integer like Go, in the base of its prefix.
fn integer(text: &str) -> Option<Number> {
    let digits = text.trim_start_matches(['+', '-']);
    if text.len() - digits.len() > 1 {
        return None;
    }
    let prefix = digits.get(..2).map(str::to_ascii_lowercase);
    let (digits, base) = match prefix.as_deref() {
        Some("0x") => (&digits[2..], 16),
        Some("0o") => (&digits[2..], 8),
        Some("0b") => (&digits[2..], 2),
        Some(_) if digits.starts_with('0') => (&digits[1..], 8),
        _ => (digits, 10),
    };
    // Rust would accept a second sign here.
    if !digits.starts_with(|first: char| first.is_digit(base)) {
        return None;
    }
    if text.starts_with('-') {
        return i64::from_str_radix(&format!("-{digits}"), base)
            .ok()
            .map(Number::from);
    }
    let number = u64::from_str_radix(digits, base).ok()?;
    // Go accepts more than 63 bits only without a sign.
    (!text.starts_with('+') || i64::try_from(number).is_ok()).then(|| number.into())
}

/// Converts a float via JSON, where 1.0 and 1 are the same.
fn number(float: f64) -> Result<Value, String> {
    /// Integers below this are exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if float.fract() == 0.0 && float.abs() < EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "whole and small")]
        return Ok((float as i64).into());
    }
    Number::from_f64(float).map(Value::Number).ok_or_else(|| {
        let name = match float {
            f64::INFINITY => "+Inf",
            f64::NEG_INFINITY => "-Inf",
            _ => "NaN",
        };
        format!("json: unsupported value: {name}")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_scalars_resolve_as_in_go() {
        for (text, value) in [
            ("yes", json!(true)),
            ("OFF", json!(false)),
            ("y", json!(true)),
            ("oN", json!("oN")),
            ("~", json!(null)),
            ("", json!(null)),
            ("010", json!(8)),
            ("08", json!(8)),
            ("0o10", json!(8)),
            ("0x1F", json!(31)),
            ("-0b11", json!(-3)),
            ("1_000", json!(1000)),
            ("+5", json!(5)),
            ("--5", json!("--5")),
            ("1.0", json!(1)),
            ("1e3", json!(1000)),
            (".5", json!(0.5)),
            (".", json!(".")),
            ("1:30", json!("1:30")),
            ("190:20:30", json!("190:20:30")),
            ("2001-01-01", json!("2001-01-01")),
            ("1e999", json!("1e999")),
            ("18446744073709551615", json!(u64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("0x", json!("0x")),
            ("-", json!("-")),
            ("é", json!("é")),
        ] {
            assert_eq!(resolve("", text), Ok(value), "{text}");
        }
        assert!(resolve("", ".nan").is_err());
    }

    #[test]
    fn tag_decides_the_type_or_is_rejected() {
        assert_eq!(resolve("str", "yes"), Ok(json!("yes")));
        assert_eq!(resolve("float", "1"), Ok(json!(1)));
        assert_eq!(
            resolve("int", "x").unwrap_err(),
            "yaml: cannot decode !!str `x` as a !!int"
        );
    }
}

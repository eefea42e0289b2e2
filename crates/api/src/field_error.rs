//! Errors of fields, with kube-apiserver's messages, and the `Invalid` status that reports them.
//!
//! ```
//! use windlass_api::field_error::{FieldError, InvalidReport, Problem};
//!
//! let errors = [FieldError::new("spec.size", Problem::Invalid(0.into(), "must be greater than 0".to_owned()))];
//! let report = InvalidReport::new("example.com", "Cone", "big", &errors);
//! assert_eq!(
//!     report.message,
//!     "Cone.example.com \"big\" is invalid: spec.size: Invalid value: 0: must be greater than 0"
//! );
//! ```

use std::{borrow::Cow, collections::HashSet};

use serde_json::{Map, Number, Value, json};

/// Limits on the reported errors of an object, and on their length together, which the last one may exceed. The real
/// server has no such limit: a list of empty strings in a body comes back as a hundred times as many bytes.
pub const MAX_ERRORS: usize = 1_000;
/// The limit on the length of all errors of an object together, in bytes.
pub const MAX_ERROR_BYTES: usize = 256 * 1024;
/// The limit on the message of one error, in bytes: it may quote what the client sent.
pub const MAX_CAUSE_BYTES: usize = 64 * 1024;

/// An error of one field, like Go's `field.Error`.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// `spec.containers[0].image`
    pub field: String,
    /// What is wrong with it.
    pub problem: Problem,
}

/// The type of a field error.
#[derive(Clone, Debug, PartialEq)]
pub enum Problem {
    /// A required field is missing; the detail may be empty.
    Required(String),
    /// The value is invalid, and why.
    Invalid(Value, String),
    /// The value has the wrong JSON type.
    WrongType(Value, String),
    /// The value is not one of these.
    NotSupported(Value, Vec<Value>),
    /// The value occurs twice.
    Duplicate(Value),
    /// Like `Invalid`, but with the value as text, for an order of keys that JSON trees do not preserve.
    InvalidText(String, String),
    /// Like `NotSupported`, with the value as text.
    NotSupportedText(String, Vec<Value>),
    /// Like `Duplicate`, with the value as text.
    DuplicateText(String),
    /// The value refers to something that does not exist.
    NotFound(Value),
    /// The field must not be set, and why.
    Forbidden(String),
    /// The value is longer than this many bytes, items or characters.
    TooLong(u64),
    /// The server cannot check the value, and why.
    Internal(String),
    /// More items (first) than allowed (second).
    TooMany(usize, u64),
    /// Further errors, of any type: a [limit](MAX_ERRORS) is reached.
    Omitted(usize),
}

impl FieldError {
    /// An error of the field with this path.
    pub fn new(field: impl Into<String>, problem: Problem) -> Self {
        Self {
            field: field.into(),
            problem,
        }
    }

    /// The machine-readable reason (`FieldValueInvalid`).
    pub fn reason(&self) -> &'static str {
        match self.problem {
            Problem::Required(_) => "FieldValueRequired",
            Problem::Invalid(..) | Problem::InvalidText(..) | Problem::Omitted(_) => "FieldValueInvalid",
            Problem::NotFound(_) => "FieldValueNotFound",
            Problem::WrongType(..) => "FieldValueTypeInvalid",
            Problem::NotSupported(..) | Problem::NotSupportedText(..) => "FieldValueNotSupported",
            Problem::Duplicate(_) | Problem::DuplicateText(_) => "FieldValueDuplicate",
            Problem::Forbidden(_) => "FieldValueForbidden",
            Problem::TooLong(_) => "FieldValueTooLong",
            Problem::TooMany(..) => "FieldValueTooMany",
            Problem::Internal(_) => "InternalError",
        }
    }

    /// The text without the field (`Invalid value: 0: must be positive`).
    pub fn message(&self) -> String {
        match &self.problem {
            Problem::Required(remark) if remark.is_empty() => "Required value".to_owned(),
            Problem::Required(remark) => format!("Required value: {remark}"),
            Problem::Invalid(value, why) if why.is_empty() => {
                format!("Invalid value: {}", format_value(value))
            }
            Problem::InvalidText(text, why) if text.is_empty() => format!("Invalid value: {why}"),
            Problem::Invalid(value, why) | Problem::WrongType(value, why) => {
                format!("Invalid value: {}: {why}", format_value(value))
            }
            Problem::InvalidText(text, why) => format!("Invalid value: {text}: {why}"),
            Problem::NotSupported(value, choices) => unsupported(&format_value(value), choices),
            Problem::NotSupportedText(text, choices) => unsupported(text, choices),
            Problem::Duplicate(value) => format!("Duplicate value: {}", format_value(value)),
            Problem::DuplicateText(text) if text.is_empty() => "Duplicate value".to_owned(),
            Problem::DuplicateText(text) => format!("Duplicate value: {text}"),
            Problem::NotFound(value) => format!("Not found: {}", format_value(value)),
            Problem::Forbidden(why) => format!("Forbidden: {why}"),
            Problem::Internal(why) => format!("Internal error: {why}"),
            Problem::TooLong(limit) => format!("Too long: may not be more than {limit} bytes"),
            Problem::TooMany(count, 1) => format!("Too many: {count}: must have at most 1 item"),
            Problem::TooMany(count, limit) => format!("Too many: {count}: must have at most {limit} items"),
            Problem::Omitted(count) => format!("and {count} more errors"),
        }
    }

    /// Whether it is an error by itself, not the number of others.
    pub fn is_shown(&self) -> bool {
        !matches!(self.problem, Problem::Omitted(_))
    }

    /// The number of errors that it stands for.
    pub fn count(&self) -> usize {
        match self.problem {
            Problem::Omitted(count) => count,
            _ => 1,
        }
    }
}

/// Returns a text, or as much of it as is sent.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    let end = text.floor_char_boundary(most);
    match &text[end..] {
        "" => Cow::Borrowed(text),
        rest => format!("{}… and {} more bytes", &text[..end], rest.len()).into(),
    }
}

fn unsupported(value: &str, choices: &[Value]) -> String {
    let choices: Vec<_> = choices.iter().map(format_value).collect();
    format!(
        "Unsupported value: {value}: supported values: {}",
        choices.join(", ")
    )
}

/// Formats a value for a message: as JSON, but a bare number like Go.
fn format_value(value: &Value) -> String {
    match value {
        Value::Number(number) => format_number(number),
        _ => value.to_string(),
    }
}

/// Formats a number like Go's `%v`.
pub fn format_number(number: &Number) -> String {
    match number.as_i64() {
        Some(integer) => integer.to_string(),
        None => format_float(number.as_f64().unwrap_or_default()),
    }
}

/// Formats a float. Go uses an exponent from 10²¹ and below 10⁻⁴, with a sign and two digits.
fn format_float(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 || (1e-4..1e21).contains(&size) {
        return number.to_string();
    }
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').expect("`{:e}` writes an exponent");
    let (sign, exponent) = exponent
        .strip_prefix('-')
        .map_or(('+', exponent), |rest| ('-', rest));
    format!("{digits}e{sign}{exponent:0>2}")
}

/// What a 422 `Invalid` status says about an object.
#[derive(Clone, Debug, PartialEq)]
pub struct InvalidReport {
    /// `Cone.example.com "big" is invalid: spec.size: Required value`
    pub message: String,
    /// The `details`: name, group, kind and causes.
    pub details: Map<String, Value>,
}

impl InvalidReport {
    /// Reports errors of an object. Beyond [`MAX_ERRORS`] and [`MAX_ERROR_BYTES`] they are only counted.
    pub fn new(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let qualified = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let (mut texts, mut seen) = (Vec::new(), HashSet::new());
        let (mut causes, mut length) = (Vec::new(), 0);
        let count: usize = errors.iter().map(FieldError::count).sum();
        for error in errors.iter().filter(|error| error.is_shown()) {
            if causes.len() >= MAX_ERRORS || length >= MAX_ERROR_BYTES {
                break;
            }
            let message = cut(&error.message(), MAX_CAUSE_BYTES).into_owned();
            let text = format!("{}: {message}", error.field);
            length += text.len();
            if seen.insert(text.clone()) {
                texts.push(text);
            }
            causes.push(json!({"reason": error.reason(), "message": message, "field": error.field}));
        }
        if causes.len() < count {
            texts.push(format!("and {} more errors", count - causes.len()));
        }
        let summary = if texts.len() == 1 {
            texts[0].clone()
        } else {
            format!("[{}]", texts.join(", "))
        };
        let mut details = Map::new();
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), value.into());
            }
        }
        details.insert("causes".to_owned(), causes.into());
        Self {
            message: format!("{qualified} \"{name}\" is invalid: {summary}"),
            details,
        }
    }
}

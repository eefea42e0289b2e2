//! Field errors and the real server's messages.

use serde_json::Value;

use crate::golang;

/// An error of one field, like Go's `field.Error`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldError {
    /// `spec.containers[0].image`
    pub(crate) field: String,
    pub(crate) problem: Problem,
}

/// The type of a field error.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Problem {
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
    /// Like `Invalid`, `NotSupported` and `Duplicate`, but with the value as text, for an order of keys that JSON trees
    /// do not preserve.
    InvalidText(String, String),
    NotSupportedText(String, Vec<Value>),
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
    /// Further errors, of any type: the limit of [`ErrorReport`](super::ErrorReport) is reached.
    Omitted(usize),
}

impl FieldError {
    pub(crate) fn new(field: impl Into<String>, problem: Problem) -> Self {
        Self {
            field: field.into(),
            problem,
        }
    }

    /// The machine-readable reason (`FieldValueInvalid`).
    pub(crate) fn reason(&self) -> &'static str {
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
    pub(crate) fn message(&self) -> String {
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
    pub(crate) fn is_shown(&self) -> bool {
        !matches!(self.problem, Problem::Omitted(_))
    }

    /// The number of errors that it stands for.
    pub(crate) fn count(&self) -> usize {
        match self.problem {
            Problem::Omitted(count) => count,
            _ => 1,
        }
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
        Value::Number(_) => golang::format_value(value),
        _ => value.to_string(),
    }
}

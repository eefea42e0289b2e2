//! What can be wrong with a field, and how the real server says it.

use serde_json::Value;

use crate::golang;

/// One thing that is wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldError {
    /// `spec.containers[0].image`
    pub(crate) field: String,
    pub(crate) problem: Problem,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Problem {
    /// A field that must be there is not; with a remark or none.
    Required(String),
    /// The value is not allowed, and why.
    Invalid(Value, String),
    /// The value has another JSON type.
    WrongType(Value, String),
    /// The value is not one of these.
    NotSupported(Value, Vec<Value>),
    /// The value may not be there twice.
    Duplicate(Value),
    /// As `Invalid`, `NotSupported` and `Duplicate`, where the message shows a value in an order that JSON trees do
    /// not keep.
    InvalidText(String, String),
    NotSupportedText(String, Vec<Value>),
    DuplicateText(String),
    /// The value names something that is not there.
    NotFound(Value),
    /// The field must not be set, and why.
    Forbidden(String),
    /// The value is longer than this many bytes, items or characters.
    TooLong(u64),
    /// More than this many items.
    TooMany(usize, u64),
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
            Problem::Invalid(..) | Problem::InvalidText(..) => "FieldValueInvalid",
            Problem::NotFound(_) => "FieldValueNotFound",
            Problem::WrongType(..) => "FieldValueTypeInvalid",
            Problem::NotSupported(..) | Problem::NotSupportedText(..) => "FieldValueNotSupported",
            Problem::Duplicate(_) | Problem::DuplicateText(_) => "FieldValueDuplicate",
            Problem::Forbidden(_) => "FieldValueForbidden",
            Problem::TooLong(_) => "FieldValueTooLong",
            Problem::TooMany(..) => "FieldValueTooMany",
        }
    }

    /// The text without the field (`Invalid value: 0: must be positive`).
    pub(crate) fn message(&self) -> String {
        match &self.problem {
            Problem::Required(remark) if remark.is_empty() => "Required value".to_owned(),
            Problem::Required(remark) => format!("Required value: {remark}"),
            Problem::Invalid(value, why) if why.is_empty() => format!("Invalid value: {}", shown(value)),
            Problem::InvalidText(text, why) if text.is_empty() => format!("Invalid value: {why}"),
            Problem::Invalid(value, why) | Problem::WrongType(value, why) => {
                format!("Invalid value: {}: {why}", shown(value))
            }
            Problem::InvalidText(text, why) => format!("Invalid value: {text}: {why}"),
            Problem::NotSupported(value, choices) => unsupported(&shown(value), choices),
            Problem::NotSupportedText(text, choices) => unsupported(text, choices),
            Problem::Duplicate(value) => format!("Duplicate value: {}", shown(value)),
            Problem::DuplicateText(text) => format!("Duplicate value: {text}"),
            Problem::NotFound(value) => format!("Not found: {}", shown(value)),
            Problem::Forbidden(why) => format!("Forbidden: {why}"),
            Problem::TooLong(limit) => format!("Too long: may not be more than {limit} bytes"),
            Problem::TooMany(count, limit) => format!("Too many: {count}: must have at most {limit} items"),
        }
    }
}

fn unsupported(value: &str, choices: &[Value]) -> String {
    let choices: Vec<_> = choices.iter().map(shown).collect();
    format!(
        "Unsupported value: {value}: supported values: {}",
        choices.join(", ")
    )
}

/// Values stand in messages as JSON, objects and lists included; a bare number as Go prints it.
fn shown(value: &Value) -> String {
    match value {
        Value::Number(_) => golang::printed(value),
        _ => value.to_string(),
    }
}

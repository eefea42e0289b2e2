//! A rule that a value violates.

use std::fmt;

use serde_json::{Number, Value as Json};

use crate::go_format;

/// A violated rule, or one that could not be evaluated. `Display` writes kube-apiserver's message.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The path of the field; empty for the root.
    pub field: String,
    /// `reason` of the rule.
    pub reason: Reason,
    /// What the message quotes: the value, or its type if the rule could not be evaluated. Objects and lists are not
    /// quoted.
    pub value: Option<Json>,
    /// Why the value is invalid.
    pub message: String,
}

/// The kind of an error of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// `FieldValueInvalid`
    #[default]
    Invalid,
    /// `FieldValueForbidden`
    Forbidden,
    /// `FieldValueRequired`
    Required,
    /// `FieldValueDuplicate`, which has no message.
    Duplicate,
}

impl Reason {
    /// Reads a rule's `reason`; an unknown one counts as the default.
    pub(super) fn from_name(name: &str) -> Self {
        match name {
            "FieldValueForbidden" => Self::Forbidden,
            "FieldValueRequired" => Self::Required,
            "FieldValueDuplicate" => Self::Duplicate,
            _ => Self::Invalid,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = if self.field.is_empty() {
            "<nil>"
        } else {
            &self.field
        };
        let (kind, quotes) = match self.reason {
            Reason::Invalid => ("Invalid value", true),
            Reason::Forbidden => ("Forbidden", false),
            Reason::Required => ("Required value", false),
            Reason::Duplicate => ("Duplicate value", true),
        };
        write!(f, "{field}: {kind}")?;
        if let Some(value) = self.value.as_ref().filter(|_| quotes) {
            write!(f, ": {}", quote(value))?;
        }
        if self.message.is_empty() || self.reason == Reason::Duplicate {
            return Ok(());
        }
        write!(f, ": {}", self.message)
    }
}

/// A value as Go's field errors quote it.
fn quote(value: &Json) -> String {
    match value {
        Json::String(text) => go_format::quote(text),
        Json::Number(number) => number
            .as_i64()
            .map_or_else(|| float(number), |number| number.to_string()),
        other => other.to_string(),
    }
}

/// A float as `%v` prints it: with an exponent from 10²¹ and below 10⁻⁴.
fn float(number: &Number) -> String {
    let number = number.as_f64().unwrap_or_default();
    let size = number.abs();
    if size == 0.0 || (1e-4..1e21).contains(&size) {
        number.to_string()
    } else {
        go_format::float(number)
    }
}

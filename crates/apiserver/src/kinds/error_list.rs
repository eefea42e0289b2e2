//! Collects validation errors; has the checks shared by many kinds.
//!
//! Fields are anything `Display`, mostly a `FieldPath`: they are formatted only for an error, so a valid
//! object costs no allocation.

use std::fmt::Display;

use serde_json::Value;
use windlass_api::{labels, naming};

use crate::{
    field_path::FieldPath,
    schema::{FieldError, Problem},
};

/// Limit on the values quoted by errors that show whole lists; errors beyond it are dropped.
const MAX_QUOTED_VALUES: usize = 256;

/// Validation errors, in the real server's order.
#[derive(Debug, Default)]
pub(crate) struct ErrorList {
    errors: Vec<FieldError>,
    /// Number of values quoted by [`Self::invalid_list`] so far.
    quoted: usize,
}

impl ErrorList {
    pub(super) fn into_errors(self) -> Vec<FieldError> {
        self.errors
    }

    pub(super) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// The number of errors so far.
    pub(super) fn len(&self) -> usize {
        self.errors.len()
    }

    pub(super) fn add(&mut self, field: impl Display, problem: Problem) {
        self.errors.push(FieldError::new(field.to_string(), problem));
    }

    pub(super) fn required(&mut self, field: impl Display, why: &str) {
        self.add(field, Problem::Required(why.to_owned()));
    }

    pub(super) fn invalid(&mut self, field: impl Display, value: impl Into<Value>, why: &str) {
        self.add(field, Problem::Invalid(value.into(), why.to_owned()));
    }

    /// Like [`Self::invalid`], for one wrong item in a list that the message shows as a whole. It is limited, so that
    /// the response stays proportional to the request.
    pub(super) fn invalid_list(&mut self, field: impl Display, values: &[Value], why: &str) {
        if self.try_quote(values.len()) {
            self.invalid(field, values.to_vec(), why);
        }
    }

    /// Whether this many values may be quoted; counts them if so.
    pub(super) fn try_quote(&mut self, values: usize) -> bool {
        let has_room = self.quoted <= MAX_QUOTED_VALUES;
        if has_room {
            self.quoted += values.max(1);
        }
        has_room
    }

    pub(super) fn forbidden(&mut self, field: impl Display, why: &str) {
        self.add(field, Problem::Forbidden(why.to_owned()));
    }

    pub(super) fn duplicate(&mut self, field: impl Display, value: impl Into<Value>) {
        self.add(field, Problem::Duplicate(value.into()));
    }

    /// Requires a non-empty string. Returns whether it is present.
    pub(super) fn require(&mut self, field: impl Display, value: &Value) -> bool {
        let given = !text(value).is_empty();
        if !given {
            self.required(field, "");
        }
        given
    }

    /// Rejects a string that is none of the choices; the message lists them in this order.
    pub(super) fn one_of(&mut self, field: impl Display, value: &Value, choices: &[&str]) {
        let text = value.as_str().unwrap_or_default();
        if !choices.contains(&text) {
            let choices = choices.iter().map(|choice| Value::from(*choice)).collect();
            self.add(field, Problem::NotSupported(text.into(), choices));
        }
    }

    /// Like [`Self::one_of`], for an optional field.
    pub(super) fn one_of_if_given(&mut self, field: impl Display, value: &Value, choices: &[&str]) {
        if !value.is_null() {
            self.one_of(field, value, choices);
        }
    }

    /// Like [`Self::one_of`], for a required field.
    pub(super) fn one_of_required(&mut self, field: impl Display, value: &Value, choices: &[&str]) {
        if self.require(&field, value) {
            self.one_of(field, value, choices);
        }
    }

    /// Adds an error for each problem that a naming rule reports.
    pub(super) fn invalid_each(&mut self, field: impl Display, value: &str, problems: Vec<String>) {
        for why in problems {
            self.invalid(&field, value, &why);
        }
    }

    pub(super) fn not_negative(&mut self, field: impl Display, value: &Value) {
        if value.as_i64().is_some_and(|number| number < 0) {
            self.invalid(field, value.clone(), "must be greater than or equal to 0");
        }
    }

    /// A number of pods or a percentage: `3` or `25%`.
    pub(super) fn count_or_percent(&mut self, field: impl Display, value: &Value) {
        match value {
            Value::String(text) => self.invalid_each(field, text, naming::percent(text)),
            number => self.not_negative(field, number),
        }
    }

    /// Rejects more than 100%.
    pub(super) fn at_most_100_percent(&mut self, field: impl Display, value: &Value) {
        if percent(value).is_some_and(|part| part > 100) {
            self.invalid(field, value.clone(), "must not be greater than 100%");
        }
    }

    /// A port, by number or by name.
    pub(super) fn port(&mut self, field: impl Display, value: &Value) {
        match value {
            Value::String(name) => self.invalid_each(field, name, naming::port_name(name)),
            number => self.port_number(field, number.as_i64().unwrap_or_default()),
        }
    }

    pub(super) fn port_number(&mut self, field: impl Display, number: i64) {
        if !(1..=65535).contains(&number) {
            self.invalid(field, number, "must be between 1 and 65535, inclusive");
        }
    }

    /// Labels, to select or to set: `spec.nodeSelector`.
    pub(super) fn labels(&mut self, field: impl Display, labels: &Value) {
        for (key, value) in labels.as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            self.invalid_each(&field, key, naming::qualified(key));
            self.invalid_each(&field, value, naming::label_value(value));
        }
    }

    /// A label selector.
    pub(super) fn selector(&mut self, field: &FieldPath<'_>, selector: &Value) {
        self.labels(field.child("matchLabels"), &selector["matchLabels"]);
        let terms = field.child("matchExpressions");
        for (index, term) in list(&selector["matchExpressions"]).iter().enumerate() {
            self.selector_term(&terms.index(index), term);
        }
    }

    fn selector_term(&mut self, field: &FieldPath<'_>, term: &Value) {
        if !self.operator_values(field, term) {
            let operator = text(&term["operator"]);
            self.invalid(field.child("operator"), operator, "not a valid selector operator");
        }
        self.requirement_key(field, term);
        self.requirement_values(field, term);
    }

    /// Checks that a requirement has values if its operator needs some, and only then. Returns whether the operator is one of
    /// label selectors.
    pub(super) fn operator_values(&mut self, field: &FieldPath<'_>, requirement: &Value) -> bool {
        let has_values = !list(&requirement["values"]).is_empty();
        match text(&requirement["operator"]) {
            "In" | "NotIn" if !has_values => self.required(
                field.child("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            ),
            "Exists" | "DoesNotExist" if has_values => self.forbidden(
                field.child("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => return false,
        }
        true
    }

    /// Checks the key of a requirement on labels.
    pub(super) fn requirement_key(&mut self, field: &FieldPath<'_>, requirement: &Value) {
        let key = text(&requirement["key"]);
        self.invalid_each(field.child("key"), key, naming::qualified(key));
    }

    /// Checks the values of a requirement on labels.
    pub(super) fn requirement_values(&mut self, field: &FieldPath<'_>, requirement: &Value) {
        for (index, value) in list(&requirement["values"]).iter().map(text).enumerate() {
            let problems = naming::label_value(value);
            self.invalid_each(field.child("values").index(index), value, problems);
        }
    }

    /// A relative path that must not leave its root.
    pub(super) fn relative_path(&mut self, field: impl Display, path: &str) {
        if path.starts_with('/') {
            self.invalid(&field, path, "must be a relative path");
        }
        if path.split('/').any(|part| part == "..") {
            self.invalid(field, path, "must not contain '..'");
        }
    }
}

/// The items of a list; empty if there is no list.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The entries of a map; empty if there is no map.
pub(super) fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// The string; empty if absent.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The number in `25%`.
pub(super) fn percent(value: &Value) -> Option<i64> {
    text(value).strip_suffix('%')?.parse().ok()
}

/// Whether a label selector matches these labels; a null one matches nothing, an empty one everything.
pub(super) fn selector_matches(selector: &Value, labels: &Value) -> bool {
    if selector.is_null() {
        return false;
    }
    labels::Selector::from_json(selector).matches(|key| labels.get(key).and_then(Value::as_str))
}

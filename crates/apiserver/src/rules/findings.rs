//! Collecting what is wrong, and the checks that many kinds share.
//!
//! Places are anything that can be shown, mostly [`crate::trail::Trail`]s: nothing is written down before something is
//! wrong there, so that an object which is fine costs no allocation.

use std::fmt::Display;

use serde_json::Value;

use crate::{
    naming,
    schema::{FieldError, Problem},
    trail::Trail,
};

/// How many values lists may have together that are quoted as a whole; what comes after is not quoted, nor told.
const QUOTED: usize = 256;

/// What was found to be wrong, in the order in which the real server finds it.
#[derive(Debug, Default)]
pub(super) struct Findings {
    errors: Vec<FieldError>,
    /// How many values [`Self::invalid_list`] has quoted so far.
    quoted: usize,
}

impl Findings {
    pub(super) fn into_errors(self) -> Vec<FieldError> {
        self.errors
    }

    pub(super) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// How much was found so far.
    pub(super) fn count(&self) -> usize {
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

    /// As [`Self::invalid`], where one of many items is wrong and the message shows them all. So that a refusal is no more
    /// than a constant times the request, there is an end to it.
    pub(super) fn invalid_list(&mut self, field: impl Display, values: &[Value], why: &str) {
        if self.may_quote(values.len()) {
            self.invalid(field, values.to_vec(), why);
        }
    }

    /// Whether there is room to quote that many values once more. It is taken.
    pub(super) fn may_quote(&mut self, values: usize) -> bool {
        let has_room = self.quoted <= QUOTED;
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

    /// Requires a text; says whether it is there.
    pub(super) fn given(&mut self, field: impl Display, value: &Value) -> bool {
        let given = !text(value).is_empty();
        if !given {
            self.required(field, "");
        }
        given
    }

    /// Refuses a text that is none of the choices, which the message lists in this order.
    pub(super) fn one_of(&mut self, field: impl Display, value: &Value, choices: &[&str]) {
        let text = value.as_str().unwrap_or_default();
        if !choices.contains(&text) {
            let choices = choices.iter().map(|choice| Value::from(*choice)).collect();
            self.add(field, Problem::NotSupported(text.into(), choices));
        }
    }

    /// As [`Self::one_of`], of a field that need not be there.
    pub(super) fn one_of_if_given(&mut self, field: impl Display, value: &Value, choices: &[&str]) {
        if !value.is_null() {
            self.one_of(field, value, choices);
        }
    }

    /// As [`Self::one_of`], of a field that must be there.
    pub(super) fn one_of_required(&mut self, field: impl Display, value: &Value, choices: &[&str]) {
        if self.given(&field, value) {
            self.one_of(field, value, choices);
        }
    }

    /// The problems that a naming rule has with a text.
    pub(super) fn named(&mut self, field: impl Display, value: &str, problems: Vec<String>) {
        for why in problems {
            self.invalid(&field, value, &why);
        }
    }

    pub(super) fn not_negative(&mut self, field: impl Display, value: &Value) {
        if value.as_i64().is_some_and(|number| number < 0) {
            self.invalid(field, value.clone(), "must be greater than or equal to 0");
        }
    }

    /// A number of pods or a part of them: `3` or `25%`.
    pub(super) fn amount_or_percent(&mut self, field: impl Display, value: &Value) {
        match value {
            Value::String(text) => self.named(field, text, naming::percent(text)),
            number => self.not_negative(field, number),
        }
    }

    /// At most all of them.
    pub(super) fn not_over_all(&mut self, field: impl Display, value: &Value) {
        if percent(value).is_some_and(|part| part > 100) {
            self.invalid(field, value.clone(), "must not be greater than 100%");
        }
    }

    /// A port, by number or by name.
    pub(super) fn port(&mut self, field: impl Display, value: &Value) {
        match value {
            Value::String(name) => self.named(field, name, naming::port_name(name)),
            number => self.port_number(field, number.as_i64().unwrap_or_default()),
        }
    }

    pub(super) fn port_number(&mut self, field: impl Display, number: i64) {
        if !(1..=65535).contains(&number) {
            self.invalid(field, number, "must be between 1 and 65535, inclusive");
        }
    }

    /// Labels that are looked for, or set: `spec.nodeSelector`.
    pub(super) fn labels(&mut self, field: impl Display, labels: &Value) {
        for (key, value) in labels.as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            self.named(&field, key, naming::qualified(key));
            self.named(&field, value, naming::label_value(value));
        }
    }

    /// A selector with labels and expressions.
    pub(super) fn selector(&mut self, field: &Trail<'_>, selector: &Value) {
        self.labels(field.at("matchLabels"), &selector["matchLabels"]);
        let terms = field.at("matchExpressions");
        for (index, term) in list(&selector["matchExpressions"]).iter().enumerate() {
            self.selector_term(&terms.item(index), term);
        }
    }

    fn selector_term(&mut self, field: &Trail<'_>, term: &Value) {
        let values = list(&term["values"]);
        match text(&term["operator"]) {
            "In" | "NotIn" if values.is_empty() => self.required(
                field.at("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            ),
            "Exists" | "DoesNotExist" if !values.is_empty() => self.forbidden(
                field.at("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => self.invalid(field.at("operator"), other, "not a valid selector operator"),
        }
        let key = text(&term["key"]);
        self.named(field.at("key"), key, naming::qualified(key));
        for (index, value) in values.iter().enumerate() {
            let value = text(value);
            self.named(field.at("values").item(index), value, naming::label_value(value));
        }
    }

    /// A path inside something, which must not lead out of it.
    pub(super) fn inner_path(&mut self, field: impl Display, path: &str) {
        if path.starts_with('/') {
            self.invalid(&field, path, "must be a relative path");
        }
        if path.split('/').any(|part| part == "..") {
            self.invalid(field, path, "must not contain '..'");
        }
    }
}

/// The items of a list; none where there is no list.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The entries of a map; none where there is no map.
pub(super) fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// A text; an absent one is empty.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The number of `25%`.
pub(super) fn percent(value: &Value) -> Option<i64> {
    text(value).strip_suffix('%')?.parse().ok()
}

/// Whether a selector picks these labels; none picks nothing, an empty one everything.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    if selector.is_null() {
        return false;
    }
    let has = |key: &str| labels.get(key).and_then(Value::as_str);
    let all =
        entries(&selector["matchLabels"]).all(|(key, value)| has(key).is_some_and(|found| *value == found));
    all && list(&selector["matchExpressions"]).iter().all(|term| {
        let found = has(text(&term["key"]));
        let named = found.is_some_and(|found| list(&term["values"]).iter().any(|value| value == found));
        match text(&term["operator"]) {
            "In" => named,
            "NotIn" => !named,
            "Exists" => found.is_some(),
            _ => found.is_none(),
        }
    })
}

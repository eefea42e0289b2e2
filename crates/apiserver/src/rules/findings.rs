//! Collecting what is wrong, and the checks that many kinds share.

use std::fmt::{self, Display};

use serde_json::{Value, json};

use crate::{
    naming,
    schema::{FieldError, Problem},
};

/// What was found to be wrong, in the order in which the real server finds it.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<FieldError>);

impl Findings {
    pub(super) fn into_errors(self) -> Vec<FieldError> {
        self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, field: impl Display, problem: Problem) {
        self.0.push(FieldError::new(field.to_string(), problem));
    }

    pub(super) fn required(&mut self, field: impl Display, why: &str) {
        self.add(field, Problem::Required(why.to_owned()));
    }

    pub(super) fn invalid(&mut self, field: impl Display, value: impl Into<Value>, why: &str) {
        self.add(field, Problem::Invalid(value.into(), why.to_owned()));
    }

    pub(super) fn forbidden(&mut self, field: impl Display, why: &str) {
        self.add(field, Problem::Forbidden(why.to_owned()));
    }

    /// Refuses a text that is none of the choices, which the message lists in this order.
    pub(super) fn one_of(&mut self, field: impl Display, value: &Value, choices: &[&str]) {
        let text = value.as_str().unwrap_or_default();
        if !choices.contains(&text) {
            let choices = choices.iter().map(|choice| Value::from(*choice)).collect();
            self.add(field, Problem::NotSupported(text.into(), choices));
        }
    }

    /// The problems that a naming rule has with a text.
    pub(super) fn named(&mut self, field: impl Display, value: impl Into<Value>, problems: Vec<String>) {
        if problems.is_empty() {
            return;
        }
        let value = value.into();
        for why in problems {
            self.invalid(&field, value.clone(), &why);
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
            Value::String(text) => self.named(field, text.as_str(), naming::percent(text)),
            number => self.not_negative(field, number),
        }
    }

    /// A port, by number or by name.
    pub(super) fn port(&mut self, field: impl Display, value: &Value) {
        match value {
            Value::String(name) => self.named(field, name.as_str(), naming::port_name(name)),
            number => {
                let number = number.as_i64().unwrap_or_default();
                self.named(field, number, naming::port_number(number));
            }
        }
    }

    /// Labels that are looked for, or set: `spec.nodeSelector`.
    pub(super) fn labels(&mut self, field: impl Display, labels: &Value) {
        for (key, value) in labels.as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            self.named(&field, key.as_str(), naming::qualified(key));
            self.named(&field, value, naming::label_value(value));
        }
    }

    /// A selector with labels and expressions.
    pub(super) fn selector(&mut self, field: impl Display, selector: &Value) {
        self.labels(format_args!("{field}.matchLabels"), &selector["matchLabels"]);
        for (index, term) in list(&selector["matchExpressions"]).iter().enumerate() {
            let field = format_args!("{field}.matchExpressions[{index}]");
            let values = list(&term["values"]);
            match term["operator"].as_str().unwrap_or_default() {
                "In" | "NotIn" if values.is_empty() => self.required(
                    format_args!("{field}.values"),
                    "must be specified when `operator` is 'In' or 'NotIn'",
                ),
                "Exists" | "DoesNotExist" if !values.is_empty() => self.forbidden(
                    format_args!("{field}.values"),
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                ),
                "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
                other => self.invalid(
                    format_args!("{field}.operator"),
                    other,
                    "not a valid selector operator",
                ),
            }
            let key = term["key"].as_str().unwrap_or_default();
            self.named(format_args!("{field}.key"), key, naming::qualified(key));
            for (index, value) in values.iter().enumerate() {
                let text = value.as_str().unwrap_or_default();
                self.named(
                    format_args!("{field}.values[{index}]"),
                    text,
                    naming::label_value(text),
                );
            }
        }
    }

    /// How much was found so far.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }
}

/// A field of something that has a path. Paths are only written out where something is wrong.
#[derive(Clone, Copy)]
pub(super) struct Dotted<'a>(pub(super) &'a dyn Display, pub(super) &'a str);

impl Display for Dotted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The items of a list; none where there is no list.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A text; an absent one is empty.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether a selector picks these labels; none picks nothing, an empty one everything.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    if selector.is_null() {
        return false;
    }
    let has = |key: &str| labels.get(key).and_then(Value::as_str);
    let wanted = selector["matchLabels"].as_object().into_iter().flatten();
    let all = wanted
        .into_iter()
        .all(|(key, value)| has(key).is_some_and(|found| *value == found));
    all && list(&selector["matchExpressions"]).iter().all(|term| {
        let found = has(text(&term["key"]));
        let named = found.is_some_and(|found| list(&term["values"]).contains(&json!(found)));
        match text(&term["operator"]) {
            "In" => named,
            "NotIn" => !named,
            "Exists" => found.is_some(),
            _ => found.is_none(),
        }
    })
}

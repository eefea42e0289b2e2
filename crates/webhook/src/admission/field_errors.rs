//! Errors of fields, collected by a validator and shown with the API server's own messages.

use std::fmt::Display;

use serde::Serialize;
use serde_json::Value;
use windlass_api::field_error::{FieldError, MAX_ERROR_BYTES, MAX_ERRORS, Problem};

/// Collects errors of fields. A handler that returns some refuses the request with status 422, `Invalid`, and the
/// messages that the API server itself would have sent:
///
/// ```
/// use windlass_webhook::FieldErrors;
///
/// let mut errors = FieldErrors::new();
/// errors.invalid("spec.scoops", 0, "must be greater than 0");
/// errors.not_supported("spec.cone", "bucket", ["sugar", "waffle"]);
/// for (index, topping) in ["nuts", ""].iter().enumerate() {
///     if topping.is_empty() {
///         errors.required(format_args!("spec.toppings[{index}]"), "");
///     }
/// }
/// let texts: Vec<_> = errors.iter().collect();
/// assert_eq!(texts, [
///     "spec.scoops: Invalid value: 0: must be greater than 0",
///     "spec.cone: Unsupported value: \"bucket\": supported values: \"sugar\", \"waffle\"",
///     "spec.toppings[1]: Required value",
/// ]);
/// ```
///
/// Further errors than a response may have are only counted.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "errors refuse a request only if the handler returns them"]
pub struct FieldErrors {
    errors: Vec<FieldError>,
    bytes: usize,
    omitted: usize,
}

impl FieldErrors {
    /// No errors yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The field must have a value. `why` may be empty.
    pub fn required(&mut self, field: impl Display, why: &str) {
        self.add(field, Problem::Required(why.to_owned()));
    }

    /// The value is invalid, and why: `must be greater than 0`.
    pub fn invalid(&mut self, field: impl Display, value: impl Serialize, why: &str) {
        self.add(field, Problem::Invalid(shown(value), why.to_owned()));
    }

    /// The value is not one of the supported ones.
    pub fn not_supported<V: Serialize>(
        &mut self,
        field: impl Display,
        value: impl Serialize,
        supported: impl IntoIterator<Item = V>,
    ) {
        let supported = supported.into_iter().map(shown).collect();
        self.add(field, Problem::NotSupported(shown(value), supported));
    }

    /// The value occurs more than once.
    pub fn duplicate(&mut self, field: impl Display, value: impl Serialize) {
        self.add(field, Problem::Duplicate(shown(value)));
    }

    /// The value refers to something that does not exist.
    pub fn not_found(&mut self, field: impl Display, value: impl Serialize) {
        self.add(field, Problem::NotFound(shown(value)));
    }

    /// The field must not be set, or not be changed, and why.
    pub fn forbidden(&mut self, field: impl Display, why: &str) {
        self.add(field, Problem::Forbidden(why.to_owned()));
    }

    /// The value has more than this many bytes.
    pub fn too_long(&mut self, field: impl Display, most: u64) {
        self.add(field, Problem::TooLong(most));
    }

    /// The list has more items, `count`, than allowed, `most`.
    pub fn too_many(&mut self, field: impl Display, count: usize, most: u64) {
        self.add(field, Problem::TooMany(count, most));
    }

    /// Requires that a field keeps its value, with the server's message for immutable fields.
    pub fn immutable<V: Serialize + PartialEq>(&mut self, field: impl Display, old: &V, new: &V) {
        if old != new {
            self.invalid(field, new, "field is immutable");
        }
    }

    /// Adds the errors of another collection.
    pub fn extend(&mut self, other: Self) {
        for error in other.errors {
            self.push(error);
        }
        self.omitted += other.omitted;
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty() && self.omitted == 0
    }

    /// The number of errors.
    pub fn len(&self) -> usize {
        self.errors.len() + self.omitted
    }

    /// The errors as texts: `spec.scoops: Required value`.
    pub fn iter(&self) -> impl Iterator<Item = String> {
        self.errors
            .iter()
            .map(|error| format!("{}: {}", error.field, error.message()))
    }

    fn add(&mut self, field: impl Display, problem: Problem) {
        self.push(FieldError::new(field.to_string(), problem));
    }

    fn push(&mut self, error: FieldError) {
        if self.errors.len() >= MAX_ERRORS || self.bytes >= MAX_ERROR_BYTES {
            self.omitted += 1;
            return;
        }
        self.bytes += error.field.len() + error.message().len();
        self.errors.push(error);
    }

    /// All errors; the last one stands for those that were only counted.
    pub(crate) fn into_errors(mut self) -> Vec<FieldError> {
        if self.omitted > 0 {
            self.errors
                .push(FieldError::new("", Problem::Omitted(self.omitted)));
        }
        self.errors
    }
}

/// A value as JSON, for a message; `null` if it has no JSON.
fn shown(value: impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

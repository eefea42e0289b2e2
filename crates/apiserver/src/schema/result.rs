//! The result of validating a value against a CRD's schema.

use serde_json::Value;

use super::{FieldError, Problem};

/// The result of validating one value.
#[derive(Default)]
pub(super) struct ValidationResult {
    errors: Vec<ResultError>,
    /// How much of the value matches; used to find the closest alternative.
    pub(super) match_count: usize,
}

/// A validation error whose field is relative to the validated value.
struct ResultError {
    /// The path; `None` if the library names it only in the message.
    path: Option<String>,
    /// The library's message; errors with the same message are duplicates.
    text: String,
    problem: Problem,
}

impl ResultError {
    fn into_error(self, at: &str) -> FieldError {
        let path = self.path.unwrap_or_default();
        let path = path.strip_prefix('.').unwrap_or(&path);
        let field = match (at, path) {
            ("", "") => "<nil>".to_owned(),
            ("", path) => path.to_owned(),
            (at, "") => at.to_owned(),
            (at, path) => format!("{at}.{path}"),
        };
        FieldError::new(field, self.problem)
    }
}

impl ValidationResult {
    /// The errors of a value at a field, or of the whole object if `at` is empty.
    pub(super) fn into_errors(self, at: &str) -> Vec<FieldError> {
        self.errors
            .into_iter()
            .map(|finding| finding.into_error(at))
            .collect()
    }

    pub(super) fn clear_errors(&mut self) {
        self.errors.clear();
    }

    pub(super) fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    fn add(&mut self, finding: ResultError) {
        if !self.errors.iter().any(|known| known.text == finding.text) {
            self.errors.push(finding);
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        other.errors.into_iter().for_each(|finding| self.add(finding));
        self.match_count += other.match_count;
    }

    /// Adds an invalid value.
    pub(super) fn invalid(&mut self, path: &str, value: impl Into<Value>, text: String) {
        self.add(ResultError {
            path: Some(path.to_owned()),
            problem: Problem::Invalid(value.into(), text.clone()),
            text,
        });
    }

    /// Adds an error without a field.
    pub(super) fn invalid_without_field(&mut self, text: String) {
        self.add(ResultError {
            path: None,
            problem: Problem::Invalid("".into(), text.clone()),
            text,
        });
    }

    pub(super) fn wrong_type(&mut self, path: &str, wanted: &str, found: &str) {
        let text = format!("{path} in body must be of type {wanted}: {found:?}");
        self.add(ResultError {
            path: Some(path.to_owned()),
            problem: Problem::WrongType(found.into(), text.clone()),
            text,
        });
    }

    pub(super) fn problem(&mut self, path: &str, what: &str, problem: Problem) {
        self.add(ResultError {
            path: Some(path.to_owned()),
            text: format!("{path} in body {what}"),
            problem,
        });
    }
}

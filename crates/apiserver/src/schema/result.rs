//! The result of validating a value against a CRD's schema, and the report of its errors.

use std::{cell::RefCell, collections::HashSet, fmt};

use serde_json::Value;

use super::{ErrorReport, FieldError, Problem};
use crate::field_path::FieldPath;

/// The result of validating one value. Its errors are in the report of its [`Place`].
pub(super) struct ValidationResult {
    pub(super) is_valid: bool,
    /// How much of the value matches; used to find the closest alternative.
    pub(super) match_count: usize,
}

impl Default for ValidationResult {
    fn default() -> Self {
        Self {
            is_valid: true,
            match_count: 0,
        }
    }
}

/// The place of a value, relative to the validated one, and where its errors are reported. Displayed as the path.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    path: FieldPath<'a>,
    /// `None` if only the result matters.
    report: Option<&'a RefCell<Report>>,
}

impl<'a> Place<'a> {
    pub(super) fn root(report: &'a RefCell<Report>) -> Self {
        Self {
            path: FieldPath::Root,
            report: Some(report),
        }
    }

    /// The same place, but its errors are not reported.
    pub(super) fn unreported(self) -> Self {
        Self { report: None, ..self }
    }

    pub(super) fn is_reported(&self) -> bool {
        self.report.is_some()
    }

    pub(super) fn is_root(&self) -> bool {
        matches!(self.path, FieldPath::Root)
    }

    pub(super) fn child(&'a self, name: &'a str) -> Self {
        let path = self.path.child(name);
        Self { path, ..*self }
    }

    pub(super) fn index(&'a self, index: usize) -> Self {
        let path = self.path.index(index);
        Self { path, ..*self }
    }

    /// The place whose children are displayed with a dot in front, even those of the root.
    pub(super) fn dotted(self) -> Self {
        let path = if self.is_root() {
            FieldPath::from_root("")
        } else {
            self.path
        };
        Self { path, ..self }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

/// The errors of a validated value.
pub(super) struct Report {
    /// The field of the value, empty for the whole object.
    at: Box<str>,
    errors: ErrorReport,
    /// The library's messages; errors with the same message are duplicates.
    messages: HashSet<String>,
}

impl Report {
    pub(super) fn new(at: &str) -> RefCell<Self> {
        RefCell::new(Self {
            at: at.into(),
            errors: ErrorReport::default(),
            messages: HashSet::new(),
        })
    }

    pub(super) fn into_errors(self) -> Vec<FieldError> {
        self.errors.into_errors()
    }

    /// Adds an error, unless its message is known. `field` is `None` if the library names it only in the message.
    fn add(
        &mut self,
        field: Option<Place<'_>>,
        message: impl FnOnce() -> String,
        problem: impl FnOnce(&str) -> Problem,
    ) {
        if !self.errors.has_room() {
            return self.errors.omit();
        }
        let message = message();
        if self.messages.contains(&message) {
            return;
        }
        let path = field.map_or_else(String::new, |place| place.to_string());
        let path = path.strip_prefix('.').unwrap_or(&path);
        let field = match (&*self.at, path) {
            ("", "") => "<nil>".to_owned(),
            ("", path) => path.to_owned(),
            (at, "") => at.to_owned(),
            (at, path) => format!("{at}.{path}"),
        };
        let problem = problem(&message);
        self.errors.add(|| FieldError::new(field, problem));
        self.messages.insert(message);
    }
}

impl ValidationResult {
    pub(super) fn merge(&mut self, other: &Self) {
        self.is_valid &= other.is_valid;
        self.match_count += other.match_count;
    }

    fn add(
        &mut self,
        place: Place<'_>,
        has_field: bool,
        message: impl FnOnce() -> String,
        problem: impl FnOnce(&str) -> Problem,
    ) {
        self.is_valid = false;
        if let Some(report) = place.report {
            let field = Some(place).filter(|_| has_field);
            report.borrow_mut().add(field, message, problem);
        }
    }

    /// Adds an invalid value.
    pub(super) fn invalid(
        &mut self,
        place: Place<'_>,
        value: impl Into<Value>,
        message: impl FnOnce() -> String,
    ) {
        self.add(place, true, message, |message| {
            Problem::Invalid(value.into(), message.to_owned())
        });
    }

    /// Adds an error without a field.
    pub(super) fn invalid_without_field(&mut self, place: Place<'_>, message: impl FnOnce() -> String) {
        self.add(place, false, message, |message| {
            Problem::Invalid("".into(), message.to_owned())
        });
    }

    pub(super) fn wrong_type(&mut self, place: Place<'_>, wanted: &str, found: &str) {
        let message = || format!("{place} in body must be of type {wanted}: {found:?}");
        self.add(place, true, message, |message| {
            Problem::WrongType(found.into(), message.to_owned())
        });
    }

    pub(super) fn problem(
        &mut self,
        place: Place<'_>,
        what: impl FnOnce() -> String,
        problem: impl FnOnce() -> Problem,
    ) {
        self.add(
            place,
            true,
            || format!("{place} in body {}", what()),
            |_| problem(),
        );
    }
}

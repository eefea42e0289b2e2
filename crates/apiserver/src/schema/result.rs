//! The result of validating a value against a CRD's schema, and the report of its errors.

use std::{cell::RefCell, collections::HashSet, fmt};

use serde_json::Value;

use super::{ErrorReport, FieldError, Pattern, Problem};
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
    report: &'a RefCell<Report>,
    /// Whether not only the result matters.
    is_reported: bool,
}

impl<'a> Place<'a> {
    pub(super) fn root(report: &'a RefCell<Report>) -> Self {
        Self {
            path: FieldPath::Root,
            report,
            is_reported: true,
        }
    }

    /// The same place, but its errors are not reported.
    pub(super) fn unreported(self) -> Self {
        Self {
            is_reported: false,
            ..self
        }
    }

    pub(super) fn is_reported(&self) -> bool {
        self.is_reported
    }

    /// Whether a pattern may be matched with a text; counts the work if so.
    pub(super) fn may_match(&self, pattern: &Pattern, text: &str) -> bool {
        let mut report = self.report.borrow_mut();
        let left = report.match_work.checked_sub(pattern.cost(text));
        report.match_work = left.unwrap_or(report.match_work);
        left.is_some()
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

/// Limit on the work of matching large patterns with the texts of an object; see [`Pattern::cost`]. It allows texts of 16
/// KB with the largest pattern, which takes seconds.
const MAX_MATCH_WORK: u64 = 1 << 36;

/// The errors of a validated value, and what it may still cost.
pub(super) struct Report {
    match_work: u64,
    /// The field of the value, empty for the whole object.
    at: Box<str>,
    errors: ErrorReport,
    /// The library's messages; errors with the same message are duplicates.
    messages: HashSet<String>,
}

impl Report {
    pub(super) fn new(at: &str) -> RefCell<Self> {
        RefCell::new(Self {
            match_work: MAX_MATCH_WORK,
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
        if place.is_reported {
            let field = Some(place).filter(|_| has_field);
            place.report.borrow_mut().add(field, message, problem);
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

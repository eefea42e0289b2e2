//! Collects the errors of an object, as many as a response shows.

use super::{FieldError, MAX_ERROR_BYTES, MAX_ERRORS, Problem};

/// The first errors of an object, and the number of the others.
#[derive(Debug, Default)]
pub(crate) struct ErrorReport {
    errors: Vec<FieldError>,
    length: usize,
    omitted: usize,
}

impl ErrorReport {
    /// Adds an error. It is not formatted if there are too many.
    pub(crate) fn add(&mut self, error: impl FnOnce() -> FieldError) {
        if self.has_room() {
            let error = error();
            self.length += error.field.len() + error.message().len();
            self.errors.push(error);
        } else {
            self.omit();
        }
    }

    /// Counts an error that is not formatted.
    pub(crate) fn omit(&mut self) {
        self.omitted += 1;
    }

    /// Whether another error would be formatted.
    pub(crate) fn has_room(&self) -> bool {
        self.errors.len() < MAX_ERRORS && self.length < MAX_ERROR_BYTES
    }

    /// The errors in their order. The last one stands for those that were not formatted.
    pub(crate) fn into_errors(mut self) -> Vec<FieldError> {
        if self.omitted > 0 {
            self.errors
                .push(FieldError::new("", Problem::Omitted(self.omitted)));
        }
        self.errors
    }
}

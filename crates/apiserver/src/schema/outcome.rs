//! What a check of a value against a CRD's schema came to.

use serde_json::Value;

use super::{FieldError, Problem};

/// What a check of one value came to.
#[derive(Default)]
pub(super) struct Outcome {
    findings: Vec<Finding>,
    /// How much of the value fits: alternatives are compared by this.
    pub(super) matches: usize,
}

/// Something wrong, before it is known where the value stands.
struct Finding {
    /// The path that the library knows; none where it names it in the text only.
    path: Option<String>,
    /// The library's message: two findings with the same one are one.
    text: String,
    problem: Problem,
}

impl Finding {
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

impl Outcome {
    /// The errors of a value that stands in a field, or is the whole object.
    pub(super) fn into_errors(self, at: &str) -> Vec<FieldError> {
        self.findings
            .into_iter()
            .map(|finding| finding.into_error(at))
            .collect()
    }

    pub(super) fn forgive(&mut self) {
        self.findings.clear();
    }

    pub(super) fn is_good(&self) -> bool {
        self.findings.is_empty()
    }

    fn add(&mut self, finding: Finding) {
        if !self.findings.iter().any(|known| known.text == finding.text) {
            self.findings.push(finding);
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        other.findings.into_iter().for_each(|finding| self.add(finding));
        self.matches += other.matches;
    }

    /// A value that is not allowed.
    pub(super) fn invalid(&mut self, path: &str, value: impl Into<Value>, text: String) {
        self.add(Finding {
            path: Some(path.to_owned()),
            problem: Problem::Invalid(value.into(), text.clone()),
            text,
        });
    }

    /// A mistake that is told without its field.
    pub(super) fn remark(&mut self, text: String) {
        self.add(Finding {
            path: None,
            problem: Problem::Invalid("".into(), text.clone()),
            text,
        });
    }

    pub(super) fn wrong_type(&mut self, path: &str, wanted: &str, found: &str) {
        let text = format!("{path} in body must be of type {wanted}: {found:?}");
        self.add(Finding {
            path: Some(path.to_owned()),
            problem: Problem::WrongType(found.into(), text.clone()),
            text,
        });
    }

    pub(super) fn problem(&mut self, path: &str, what: &str, problem: Problem) {
        self.add(Finding {
            path: Some(path.to_owned()),
            text: format!("{path} in body {what}"),
            problem,
        });
    }
}

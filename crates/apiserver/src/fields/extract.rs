//! Extracts the set of fields that a configuration sets, which its applier owns.

use std::fmt;

use serde_json::Value;

use super::{
    FieldSet, PathElement,
    set::Branch,
    shape::{Granularity, Shape, ValueType},
};
use crate::golang;

/// Limits on the reported problems, and on their length together, which the last one may exceed. The real server has no
/// such limit: with a long path, a body comes back as thousands of times as many bytes.
const MAX_PROBLEMS: usize = 100;
const MAX_PROBLEM_BYTES: usize = 64 * 1024;

/// Why a configuration does not match its schema, in the messages of structured-merge-diff.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ValidationErrors(Vec<String>);

impl fmt::Display for ValidationErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [one] => f.write_str(one),
            all => {
                f.write_str("errors:")?;
                all.iter().try_for_each(|one| write!(f, "\n  {one}"))
            }
        }
    }
}

/// The fields of a configuration, or why they do not match the schema.
pub(crate) fn extract<'a>(shape: Shape<'a>, config: &'a Value) -> Result<FieldSet<'a>, ValidationErrors> {
    let mut extractor = Extractor::new(Duplicates::Rejected);
    let branch = extractor.value(shape, config);
    if extractor.problems.is_empty() {
        Ok(branch.children)
    } else {
        Err(ValidationErrors(extractor.problems))
    }
}

/// The fields of an object that is known to match the schema. Duplicate list items are allowed.
pub(super) fn extract_all<'a>(shape: Shape<'a>, object: &'a Value) -> FieldSet<'a> {
    Extractor::new(Duplicates::Allowed).value(shape, object).children
}

/// Why an object does not match a schema. Duplicate list items are allowed.
pub(super) fn schema_mismatch(shape: Shape<'_>, object: &Value) -> Option<ValidationErrors> {
    let mut extractor = Extractor::new(Duplicates::Allowed);
    extractor.value(shape, object);
    (!extractor.problems.is_empty()).then_some(ValidationErrors(extractor.problems))
}

/// How list items with the same key are handled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Duplicates {
    Allowed,
    Rejected,
}

struct Extractor<'a> {
    duplicates: Duplicates,
    problems: Vec<String>,
    /// The bytes that further problems may take.
    room: usize,
    /// The path of the current value.
    path: Vec<PathElement<'a>>,
}

impl<'a> Extractor<'a> {
    fn new(duplicates: Duplicates) -> Self {
        Self {
            duplicates,
            problems: Vec::new(),
            room: MAX_PROBLEM_BYTES,
            path: Vec::new(),
        }
    }

    /// Adds a problem. It is not formatted if there are too many.
    fn add_error(&mut self, why: fmt::Arguments<'_>) {
        if self.problems.len() >= MAX_PROBLEMS || self.room == 0 {
            return;
        }
        let path: String = self.path.iter().map(ToString::to_string).collect();
        let problem = if path.is_empty() {
            why.to_string()
        } else {
            format!("{path}: {why}")
        };
        self.room = self.room.saturating_sub(problem.len());
        self.problems.push(problem);
    }

    fn value(&mut self, shape: Shape<'a>, value: &'a Value) -> Branch<'a> {
        match shape.granularity(value) {
            Granularity::Leaf(kind) => {
                self.leaf(shape, kind, value);
                Branch::MEMBER
            }
            Granularity::Map => self.map(shape, value),
            Granularity::List(keys) => self.list(shape, keys, value),
        }
    }

    /// An atomic list or map must match its schema too, but its parts are not owned separately.
    fn leaf(&mut self, shape: Shape<'a>, kind: ValueType, value: &'a Value) {
        let expected = match (kind, value) {
            (_, Value::Null)
            | (ValueType::Number, Value::Number(_))
            | (ValueType::String, Value::String(_))
            | (ValueType::Boolean, Value::Bool(_))
            | (ValueType::Scalar, Value::Number(_) | Value::String(_) | Value::Bool(_)) => return,
            (ValueType::List, Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.path
                        .push(PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX)));
                    self.value(shape.items(), item);
                    self.path.pop();
                }
                return;
            }
            (ValueType::Map, Value::Object(_)) => {
                self.map(shape, value);
                return;
            }
            (ValueType::Number, _) => {
                let found = golang::type_of(value);
                return self.add_error(format_args!("expected numeric (int or float), got {found}"));
            }
            (ValueType::String, _) => {
                let found = GoValue(value);
                return self.add_error(format_args!(
                    "expected string, got &value.valueUnstructured{{Value:{found}}}"
                ));
            }
            (ValueType::Boolean, _) => "boolean",
            (ValueType::Scalar, _) => "any scalar",
            (ValueType::List, _) => "list",
            (ValueType::Map, _) => "map",
        };
        self.expected(expected, value);
    }

    fn expected(&mut self, what: &str, found: &Value) {
        // As Go prints structured-merge-diff's wrapper of a value.
        self.add_error(format_args!("expected {what}, got &{{{}}}", GoValue(found)));
    }

    fn map(&mut self, shape: Shape<'a>, value: &'a Value) -> Branch<'a> {
        let mut branch = Branch::default();
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Null => return branch,
            other => {
                self.expected("map", other);
                return branch;
            }
        };
        for (name, value) in fields {
            self.path.push(PathElement::field(name));
            let field = shape.field(name);
            let mut inner = match &field {
                Some(field) => self.value(field.shape, value),
                None => {
                    self.add_error(format_args!("field not declared in schema"));
                    self.path.pop();
                    break;
                }
            };
            self.path.pop();
            let is_nothing = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
            inner.member |= is_nothing || field.is_some_and(|field| !field.declared);
            branch.children.push(PathElement::field(name), inner);
        }
        branch
    }

    fn list(&mut self, shape: Shape<'a>, keys: &'a [Box<str>], value: &'a Value) -> Branch<'a> {
        let mut branch = Branch::default();
        let items = match value {
            Value::Array(items) => items,
            Value::Null => return branch,
            other => {
                self.expected("list", other);
                return branch;
            }
        };
        let inner = shape.items();
        let mut found: Vec<(PathElement<'a>, Branch<'a>)> = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let element = match shape.identity(keys, item) {
                Ok(element) => element,
                Err(why) => {
                    self.add_error(format_args!("element {index}: {why}"));
                    return branch;
                }
            };
            self.path.push(element);
            let owned = self.value(inner, item);
            if let Some(element) = self.path.pop() {
                found.push((
                    element,
                    Branch {
                        member: true,
                        ..owned
                    },
                ));
            }
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut found = found.into_iter().peekable();
        while let Some((element, mut owned)) = found.next() {
            let mut is_duplicate = false;
            while found.next_if(|(next, _)| *next == element).is_some() {
                is_duplicate = true;
            }
            if is_duplicate {
                if self.duplicates == Duplicates::Rejected {
                    self.add_error(format_args!("duplicate entries for key {element}"));
                }
                owned = Branch::MEMBER;
            }
            branch.children.push(element, owned);
        }
        branch
    }
}

/// A value as Go prints it, formatted when displayed.
struct GoValue<'a>(&'a Value);

impl fmt::Display for GoValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&golang::format_value(self.0))
    }
}

//! The fields that a configuration says something about: those that its applier owns.

use std::fmt;

use serde_json::Value;

use super::{
    Element, Set,
    set::Branch,
    shape::{Form, Kind, Shape},
};
use crate::golang;

/// What is wrong with a configuration, in the words of the library that the real server uses.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(Vec<String>);

impl fmt::Display for Malformed {
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

/// The fields of a configuration, unless the schema has no place for one of them.
pub(crate) fn extract<'a>(shape: Shape<'a>, config: &'a Value) -> Result<Set<'a>, Malformed> {
    let mut extractor = Extractor::new(Repeats::Refused);
    let branch = extractor.value(shape, config);
    if extractor.problems.is_empty() {
        Ok(branch.below)
    } else {
        Err(Malformed(extractor.problems))
    }
}

/// The fields of an object that is known to fit, duplicates and all.
pub(super) fn extract_all<'a>(shape: Shape<'a>, object: &'a Value) -> Set<'a> {
    Extractor::new(Repeats::Allowed).value(shape, object).below
}

/// Why an object does not fit a schema, though items of its lists may be there twice.
pub(super) fn misfit(shape: Shape<'_>, object: &Value) -> Option<Malformed> {
    let mut extractor = Extractor::new(Repeats::Allowed);
    extractor.value(shape, object);
    (!extractor.problems.is_empty()).then_some(Malformed(extractor.problems))
}

/// What becomes of items that cannot be told apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeats {
    Allowed,
    Refused,
}

struct Extractor<'a> {
    repeats: Repeats,
    problems: Vec<String>,
    /// The way here.
    path: Vec<Element<'a>>,
}

impl<'a> Extractor<'a> {
    fn new(repeats: Repeats) -> Self {
        Self {
            repeats,
            problems: Vec::new(),
            path: Vec::new(),
        }
    }

    fn complain(&mut self, why: &str) {
        let path: String = self.path.iter().map(ToString::to_string).collect();
        self.problems.push(if path.is_empty() {
            why.to_owned()
        } else {
            format!("{path}: {why}")
        });
    }

    fn value(&mut self, shape: Shape<'a>, value: &'a Value) -> Branch<'a> {
        match shape.form(value) {
            Form::Leaf(kind) => {
                self.leaf(shape, kind, value);
                Branch::MEMBER
            }
            Form::Map => self.map(shape, value),
            Form::List(keys) => self.list(shape, keys, value),
        }
    }

    /// A leaf may have an inside, which must fit but is not owned by itself.
    fn leaf(&mut self, shape: Shape<'a>, kind: Kind, value: &'a Value) {
        let wrong = match (kind, value) {
            (_, Value::Null)
            | (Kind::Number, Value::Number(_))
            | (Kind::Text, Value::String(_))
            | (Kind::Truth, Value::Bool(_))
            | (Kind::Scalar, Value::Number(_) | Value::String(_) | Value::Bool(_)) => return,
            (Kind::List, Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.path
                        .push(Element::Index(i64::try_from(index).unwrap_or(i64::MAX)));
                    self.value(shape.items(), item);
                    self.path.pop();
                }
                return;
            }
            (Kind::Map, Value::Object(_)) => {
                self.map(shape, value);
                return;
            }
            (Kind::Number, _) => {
                format!("expected numeric (int or float), got {}", golang::type_of(value))
            }
            (Kind::Text, _) => format!(
                "expected string, got &value.valueUnstructured{{Value:{}}}",
                golang::printed(value)
            ),
            (Kind::Truth, _) => format!("expected boolean, got {}", shown(value)),
            (Kind::Scalar, _) => format!("expected any scalar, got {}", shown(value)),
            (Kind::List, _) => format!("expected list, got {}", shown(value)),
            (Kind::Map, _) => format!("expected map, got {}", shown(value)),
        };
        self.complain(&wrong);
    }

    fn map(&mut self, shape: Shape<'a>, value: &'a Value) -> Branch<'a> {
        let mut branch = Branch::default();
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Null => return branch,
            other => {
                self.complain(&format!("expected map, got {}", shown(other)));
                return branch;
            }
        };
        for (name, value) in fields {
            self.path.push(Element::field(name));
            let field = shape.field(name);
            let mut inner = match &field {
                Some(field) => self.value(field.shape, value),
                None => {
                    self.complain("field not declared in schema");
                    self.path.pop();
                    break;
                }
            };
            self.path.pop();
            let is_nothing = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
            inner.member |= is_nothing || field.is_some_and(|field| !field.named);
            branch.below.push(Element::field(name), inner);
        }
        branch
    }

    fn list(&mut self, shape: Shape<'a>, keys: &'a [Box<str>], value: &'a Value) -> Branch<'a> {
        let mut branch = Branch::default();
        let items = match value {
            Value::Array(items) => items,
            Value::Null => return branch,
            other => {
                self.complain(&format!("expected list, got {}", shown(other)));
                return branch;
            }
        };
        let inner = shape.items();
        let mut found: Vec<(Element<'a>, Branch<'a>)> = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let element = match shape.identity(keys, item) {
                Ok(element) => element,
                Err(why) => {
                    self.complain(&format!("element {index}: {why}"));
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
            let mut twice = false;
            while found.next_if(|(next, _)| *next == element).is_some() {
                twice = true;
            }
            if twice {
                if self.repeats == Repeats::Refused {
                    self.complain(&format!("duplicate entries for key {element}"));
                }
                owned = Branch::MEMBER;
            }
            branch.below.push(element, owned);
        }
        branch
    }
}

/// A value as Go prints the wrapper that it is in.
fn shown(value: &Value) -> String {
    format!("&{{{}}}", golang::printed(value))
}

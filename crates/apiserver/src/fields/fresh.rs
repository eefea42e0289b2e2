//! What the writer of a new object owns, written straight as `fieldsV1`.
//!
//! It is what [`super::compare`] finds between a blank object and the new one, less what nobody owns. But a creation is
//! the most frequent write of all, and its set is as large as the object: so no set is built, and the text comes out of
//! one walk over the tree. A law (`laws`) holds the two to each other.

use serde_json::Value;

use super::{Element, Set, Shape, compare::is_same, set::Branch, shape::Form};

/// The set of what `new` has and `blank` has not; none where the long way must be taken: two items of a list are one
/// thing, or a place is of another kind than before.
pub(super) fn write(shape: Shape<'_>, blank: &Value, new: &Value, unowned: Unowned<'_>) -> Option<String> {
    let mut json = Vec::with_capacity(4096);
    json.push(b'{');
    let mut at = Place {
        json: &mut json,
        first: true,
    };
    at.inside(shape, Some(blank), new, unowned)?;
    json.push(b'}');
    Some(String::from_utf8(json).expect("JSON is text"))
}

/// What is left out at a place and below.
#[derive(Clone, Copy, Default)]
pub(super) struct Unowned<'a> {
    /// Fields that go, though what is below them stays.
    pub(super) alone: Option<&'a Set<'a>>,
    /// Fields that go with everything below.
    pub(super) whole: Option<&'a Set<'a>>,
}

impl<'a> Unowned<'a> {
    /// What is left out below a field, and whether the field itself is; none if it goes as a whole.
    fn at(self, element: &Element<'_>) -> Option<(bool, Unowned<'a>)> {
        let branch = |set: Option<&'a Set<'a>>| set.and_then(|set| set.get(element));
        let (alone, whole) = (branch(self.alone), branch(self.whole));
        if whole.is_some_and(|branch| branch.member) {
            return None;
        }
        let below = |branch: Option<&'a Branch<'a>>| branch.map(|branch| &branch.below);
        let inner = Unowned {
            alone: below(alone),
            whole: below(whole),
        };
        Some((alone.is_some_and(|branch| branch.member), inner))
    }
}

/// Between the braces of a place.
struct Place<'j> {
    json: &'j mut Vec<u8>,
    /// Whether nothing stands there yet.
    first: bool,
}

impl Place<'_> {
    /// Writes what is below a place. Returns whether the place itself is in the set; none as for [`write`].
    fn inside(
        &mut self,
        shape: Shape<'_>,
        old: Option<&Value>,
        new: &Value,
        unowned: Unowned<'_>,
    ) -> Option<bool> {
        let form = shape.form(new);
        if let Some(old) = old
            && std::mem::discriminant(&shape.form(old)) != std::mem::discriminant(&form)
        {
            return None;
        }
        match (form, new) {
            (Form::Map, Value::Object(fields)) if !fields.is_empty() => {
                for (name, value) in fields {
                    let before = old.and_then(|old| old.get(name));
                    let inner = shape.field(name).map_or(Shape::Deduced, |field| field.shape);
                    self.child(&Element::field(name), inner, before, value, unowned)?;
                }
                Some(old.is_none())
            }
            (Form::List(keys), Value::Array(items)) if !items.is_empty() => {
                let identified = |item| Some((shape.identity(keys, item).ok()?, item));
                let mut items: Vec<_> = items.iter().map(identified).collect::<Option<_>>()?;
                items.sort_by(|(a, _), (b, _)| a.cmp(b));
                let repeated = items.windows(2).any(|pair| pair[0].0 == pair[1].0);
                let had_items = old.is_some_and(|old| old.as_array().is_some_and(|old| !old.is_empty()));
                if repeated || had_items {
                    return None;
                }
                let inner = shape.items();
                for (element, item) in &items {
                    self.child(element, inner, None, item, unowned)?;
                }
                Some(old.is_none())
            }
            _ => {
                let is_empty = |old: &Value| match old {
                    Value::Object(fields) => fields.is_empty(),
                    Value::Array(items) => items.is_empty(),
                    _ => true,
                };
                match old {
                    Some(old) if !matches!(form, Form::Leaf(_)) && !is_empty(old) => None,
                    Some(old) => Some(!is_same(old, new)),
                    None => Some(true),
                }
            }
        }
    }

    fn child(
        &mut self,
        element: &Element<'_>,
        shape: Shape<'_>,
        old: Option<&Value>,
        new: &Value,
        unowned: Unowned<'_>,
    ) -> Option<()> {
        if old == Some(new) {
            return Some(());
        }
        let Some((unowned_itself, unowned)) = unowned.at(element) else {
            return Some(());
        };
        let start = self.json.len();
        if !self.first {
            self.json.push(b',');
        }
        element.write(self.json);
        self.json.extend_from_slice(b":{");
        let inside = self.json.len();
        // Whether the place itself is in the set stands before what is below it, and is known first for what is new.
        let expected = old.is_none() && !unowned_itself;
        if expected {
            self.json.extend_from_slice(b"\".\":{}");
        }
        let mut below = Place {
            first: !expected,
            json: self.json,
        };
        let member = below.inside(shape, old, new, unowned)? && !unowned_itself;
        let has_below = below.json.len() > inside + if expected { 6 } else { 0 };
        debug_assert!(!expected || member, "what is new is in the set");
        if !has_below {
            self.json.truncate(inside);
            if !member {
                self.json.truncate(start);
                return Some(());
            }
        } else if member && !expected {
            // A leaf has nothing below, so that this place had something and has something else now.
            return None;
        }
        self.json.push(b'}');
        self.first = false;
        Some(())
    }
}

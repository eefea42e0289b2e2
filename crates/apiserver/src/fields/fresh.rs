//! What the writer of a new object owns, written straight as `fieldsV1`.
//!
//! It is what [`super::compare`] finds between a blank object and the new one, less what nobody owns. But a creation is
//! the most frequent write of all, and its set is as large as the object: so no set is built, and the text comes out of
//! one walk over the tree. A law (`laws`) holds the two to each other.

use std::{borrow::Cow, cmp::Ordering};

use serde_json::Value;

use super::{
    Element, Set, Shape,
    compare::is_same,
    element::{compare_values, write_key, write_name, write_plain_name},
    set::Branch,
    shape::Form,
};

/// Writes the set of what `new` has and `blank` has not. Returns whether there is anything in it; none where the long way
/// must be taken: two items of a list are one thing, or a place is of another kind than before.
pub(super) fn write(
    json: &mut Vec<u8>,
    shape: Shape<'_>,
    blank: &Value,
    new: &Value,
    unowned: Unowned<'_>,
) -> Option<bool> {
    json.push(b'{');
    let inside = json.len();
    let mut at = Place { json, first: true };
    at.inside(shape, shape.form(new), Some(blank), new, unowned)?;
    let has_any = json.len() > inside;
    json.push(b'}');
    Some(has_any)
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
    fn at(self, step: Step<'_>) -> Option<(bool, Unowned<'a>)> {
        if self.alone.is_none() && self.whole.is_none() {
            return Some((false, self));
        }
        let element = &step.element();
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

/// One step of the way down.
#[derive(Clone, Copy)]
enum Step<'a> {
    /// A field that the schema names: there is nothing in it to escape.
    Known(&'a str),
    Field(&'a str),
    /// The names of a key's fields in their order, and the item's.
    Key(&'a [&'a str], &'a Keyed<'a>),
    Element(&'a Element<'a>),
}

impl<'a> Step<'a> {
    fn element(self) -> Element<'a> {
        match self {
            Self::Known(name) | Self::Field(name) => Element::field(name),
            Self::Key(names, item) => Element::Key(
                item.fields(names)
                    .map(|(name, value)| (Cow::Borrowed(name), Cow::Borrowed(value)))
                    .collect(),
            ),
            Self::Element(element) => element.clone(),
        }
    }

    fn write(self, json: &mut Vec<u8>) {
        match self {
            Self::Known(name) => write_plain_name(json, name),
            Self::Field(name) => write_name(json, name),
            Self::Key(names, item) => write_key(json, item.fields(names)),
            Self::Element(element) => element.write(json),
        }
    }
}

/// The most fields that the key of a list has here: nearly all have one, ports have two.
const KEYS: usize = 2;

/// An item of a list, and what tells it from the others.
struct Keyed<'v> {
    key: [&'v Value; KEYS],
    item: &'v Value,
}

impl<'v> Keyed<'v> {
    fn of(shape: Shape<'v>, names: &[&str], item: &'v Value) -> Option<Self> {
        let fields = item.as_object()?;
        let mut key = [&Value::Null; KEYS];
        for (value, name) in key.iter_mut().zip(names) {
            *value = shape.key(name, fields)?;
        }
        Some(Self { key, item })
    }

    fn fields<'a>(&'a self, names: &'a [&'a str]) -> impl Iterator<Item = (&'a str, &'a Value)> {
        names.iter().copied().zip(self.key)
    }

    fn order(&self, other: &Self) -> Ordering {
        // Nearly all are told apart by a text alone.
        if let ([Value::String(own), Value::Null], [Value::String(other), Value::Null]) =
            (self.key, other.key)
        {
            return own.cmp(other);
        }
        let pairs = self.key.iter().zip(other.key);
        pairs
            .map(|(own, other)| compare_values(own, other))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

/// A list whose items all have all fields of the key, in the order of their keys.
struct KeyedList<'v> {
    /// The names of the key's fields in their order.
    names: [&'v str; KEYS],
    /// How many of them there are.
    keys: usize,
    items: Vec<Keyed<'v>>,
}

impl<'v> KeyedList<'v> {
    /// None if this is not such a list.
    fn of(shape: Shape<'v>, keys: &'v [Box<str>], items: &'v [Value]) -> Option<Self> {
        let mut names = [""; KEYS];
        let used = names.get_mut(..keys.len()).filter(|used| !used.is_empty())?;
        for (name, key) in used.iter_mut().zip(keys) {
            *name = key;
        }
        used.sort_unstable();
        let keyed = items.iter().map(|item| Keyed::of(shape, used, item));
        let mut items: Vec<_> = keyed.collect::<Option<_>>()?;
        items.sort_unstable_by(Keyed::order);
        Some(Self {
            names,
            keys: keys.len(),
            items,
        })
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
        form: Form<'_>,
        old: Option<&Value>,
        new: &Value,
        unowned: Unowned<'_>,
    ) -> Option<bool> {
        if let Some(old) = old
            && std::mem::discriminant(&shape.form(old)) != std::mem::discriminant(&form)
        {
            return None;
        }
        match (form, new) {
            (Form::Map, Value::Object(fields)) if !fields.is_empty() => {
                let mut shapes = shape.fields();
                for (name, value) in fields {
                    let before = old.and_then(|old| old.get(name));
                    let (step, inner) = match shapes.get(name) {
                        Some(field) if field.named => (Step::Known(name), field.shape),
                        Some(field) => (Step::Field(name), field.shape),
                        None => (Step::Field(name), Shape::Deduced),
                    };
                    self.child(step, inner, before, value, unowned)?;
                }
                Some(old.is_none())
            }
            (Form::List(keys), Value::Array(items)) if !items.is_empty() => {
                let had_items = old.is_some_and(|old| old.as_array().is_some_and(|old| !old.is_empty()));
                if had_items {
                    return None;
                }
                match KeyedList::of(shape.items(), keys, items) {
                    Some(list) => self.keyed(shape.items(), &list, unowned)?,
                    None => self.identified(shape, keys, items, unowned)?,
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

    /// Writes the items of a list by their keys.
    fn keyed(&mut self, inner: Shape<'_>, list: &KeyedList<'_>, unowned: Unowned<'_>) -> Option<()> {
        let alike = |pair: &[Keyed<'_>]| pair[0].order(&pair[1]).is_eq();
        if list.items.windows(2).any(alike) {
            return None;
        }
        let names = &list.names[..list.keys];
        list.items
            .iter()
            .try_for_each(|keyed| self.child(Step::Key(names, keyed), inner, None, keyed.item, unowned))
    }

    /// Writes the items of any list.
    fn identified(
        &mut self,
        shape: Shape<'_>,
        keys: &[Box<str>],
        items: &[Value],
        unowned: Unowned<'_>,
    ) -> Option<()> {
        let identified = |item| Some((shape.identity(keys, item).ok()?, item));
        let mut items: Vec<_> = items.iter().map(identified).collect::<Option<_>>()?;
        items.sort_by(|(a, _), (b, _)| a.cmp(b));
        if items.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return None;
        }
        let inner = shape.items();
        items
            .iter()
            .try_for_each(|(element, item)| self.child(Step::Element(element), inner, None, item, unowned))
    }

    fn child(
        &mut self,
        step: Step<'_>,
        shape: Shape<'_>,
        old: Option<&Value>,
        new: &Value,
        unowned: Unowned<'_>,
    ) -> Option<()> {
        if old == Some(new) {
            return Some(());
        }
        let Some((unowned_itself, unowned)) = unowned.at(step) else {
            return Some(());
        };
        let form = shape.form(new);
        let has_inside = match (form, new) {
            (Form::Map, Value::Object(fields)) => !fields.is_empty(),
            (Form::List(_), Value::Array(items)) => !items.is_empty(),
            _ => false,
        };
        // Most of what is new is a leaf.
        if old.is_none() && !has_inside {
            if !unowned_itself {
                self.begin(step);
                self.json.extend_from_slice(b":{}");
                self.first = false;
            }
            return Some(());
        }
        let start = self.json.len();
        self.begin(step);
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
        let member = below.inside(shape, form, old, new, unowned)? && !unowned_itself;
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

    /// Writes a step, and a comma before it if it is not the first.
    fn begin(&mut self, step: Step<'_>) {
        if !self.first {
            self.json.push(b',');
        }
        step.write(self.json);
    }
}

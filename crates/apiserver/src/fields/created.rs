//! The `fieldsV1` of a new object, written directly.
//!
//! The result is the same as that of [`super::compare`] with a blank object, without unowned fields. But creates are the
//! most frequent writes, and the set is as large as the object. So no set is built: one walk over the tree writes the
//! text. A property test (`property_tests`) checks that both give the same result.

use std::{borrow::Cow, cmp::Ordering};

use serde_json::Value;

use super::{
    FieldSet, PathElement, Shape,
    compare::is_equal,
    element::{compare_values, write_key, write_name, write_plain_name},
    set::Branch,
    shape::Granularity,
};

/// Writes the set of fields that `new` has and `blank` has not. Returns whether it has any; none where `compare` must be
/// used instead: a list has duplicate items, or a value has another type than in `blank`.
pub(super) fn write(
    json: &mut Vec<u8>,
    shape: Shape<'_>,
    blank: &Value,
    new: &Value,
    unowned: ExcludedFields<'_>,
) -> Option<bool> {
    json.push(b'{');
    let inside = json.len();
    let mut at = SetWriter { json, first: true };
    at.write_children(shape, shape.granularity(new), Some(blank), new, unowned)?;
    let has_any = json.len() > inside;
    json.push(b'}');
    Some(has_any)
}

/// The fields to leave out at a path and below.
#[derive(Clone, Copy, Default)]
pub(super) struct ExcludedFields<'a> {
    /// Fields to leave out without their children.
    pub(super) fields: Option<&'a FieldSet<'a>>,
    /// Fields to leave out with all their children.
    pub(super) subtrees: Option<&'a FieldSet<'a>>,
}

impl<'a> ExcludedFields<'a> {
    /// Whether a field is left out, and which of its children; none if it is left out with all of them.
    fn below(self, step: BorrowedElement<'_>) -> Option<(bool, ExcludedFields<'a>)> {
        if self.fields.is_none() && self.subtrees.is_none() {
            return Some((false, self));
        }
        let element = &step.element();
        let branch = |set: Option<&'a FieldSet<'a>>| set.and_then(|set| set.get(element));
        let (alone, whole) = (branch(self.fields), branch(self.subtrees));
        if whole.is_some_and(|branch| branch.member) {
            return None;
        }
        let below = |branch: Option<&'a Branch<'a>>| branch.map(|branch| &branch.children);
        let inner = ExcludedFields {
            fields: below(alone),
            subtrees: below(whole),
        };
        Some((alone.is_some_and(|branch| branch.member), inner))
    }
}

/// One element of a path, not yet copied into a [`PathElement`].
#[derive(Clone, Copy)]
enum BorrowedElement<'a> {
    /// A field that the schema declares; its name needs no escaping.
    Declared(&'a str),
    Field(&'a str),
    /// The sorted names of a key's fields, and the item.
    Key(&'a [&'a str], &'a KeyedItem<'a>),
    Element(&'a PathElement<'a>),
}

impl<'a> BorrowedElement<'a> {
    fn element(self) -> PathElement<'a> {
        match self {
            Self::Declared(name) | Self::Field(name) => PathElement::field(name),
            Self::Key(names, item) => PathElement::Key(
                item.fields(names)
                    .map(|(name, value)| (Cow::Borrowed(name), Cow::Borrowed(value)))
                    .collect(),
            ),
            Self::Element(element) => element.clone(),
        }
    }

    fn write(self, json: &mut Vec<u8>) {
        match self {
            Self::Declared(name) => write_plain_name(json, name),
            Self::Field(name) => write_name(json, name),
            Self::Key(names, item) => write_key(json, item.fields(names)),
            Self::Element(element) => element.write(json),
        }
    }
}

/// The maximum number of key fields of a [`KeyedList`]: nearly all lists have one, ports have two.
const MAX_KEY_FIELDS: usize = 2;

/// An item of a list, and its key.
struct KeyedItem<'v> {
    key: [&'v Value; MAX_KEY_FIELDS],
    item: &'v Value,
}

impl<'v> KeyedItem<'v> {
    fn of(shape: Shape<'v>, names: &[&str], item: &'v Value) -> Option<Self> {
        let fields = item.as_object()?;
        let mut key = [&Value::Null; MAX_KEY_FIELDS];
        for (value, name) in key.iter_mut().zip(names) {
            *value = shape.key_value(name, fields)?;
        }
        Some(Self { key, item })
    }

    fn fields<'a>(&'a self, names: &'a [&'a str]) -> impl Iterator<Item = (&'a str, &'a Value)> {
        names.iter().copied().zip(self.key)
    }

    fn order(&self, other: &Self) -> Ordering {
        // Nearly all keys are one string.
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

/// A list whose items have all key fields, sorted by key.
struct KeyedList<'v> {
    /// The sorted names of the key's fields.
    names: [&'v str; MAX_KEY_FIELDS],
    /// How many of `names` are used.
    key_fields: usize,
    items: Vec<KeyedItem<'v>>,
}

impl<'v> KeyedList<'v> {
    /// None if an item lacks a key field, or the key has too many.
    fn of(shape: Shape<'v>, keys: &'v [Box<str>], items: &'v [Value]) -> Option<Self> {
        let mut names = [""; MAX_KEY_FIELDS];
        let used = names.get_mut(..keys.len()).filter(|used| !used.is_empty())?;
        for (name, key) in used.iter_mut().zip(keys) {
            *name = key;
        }
        used.sort_unstable();
        let keyed = items.iter().map(|item| KeyedItem::of(shape, used, item));
        let mut items: Vec<_> = keyed.collect::<Option<_>>()?;
        items.sort_unstable_by(KeyedItem::order);
        Some(Self {
            names,
            key_fields: keys.len(),
            items,
        })
    }
}

/// Writes the children of one path, between its braces.
struct SetWriter<'j> {
    json: &'j mut Vec<u8>,
    /// Whether nothing has been written yet.
    first: bool,
}

impl SetWriter<'_> {
    /// Writes the children of a value. Returns whether the value itself is in the set; none as for [`write`].
    fn write_children(
        &mut self,
        shape: Shape<'_>,
        form: Granularity<'_>,
        old: Option<&Value>,
        new: &Value,
        unowned: ExcludedFields<'_>,
    ) -> Option<bool> {
        if let Some(old) = old
            && std::mem::discriminant(&shape.granularity(old)) != std::mem::discriminant(&form)
        {
            return None;
        }
        match (form, new) {
            (Granularity::Map, Value::Object(fields)) if !fields.is_empty() => {
                let mut shapes = shape.field_lookup();
                for (name, value) in fields {
                    let before = old.and_then(|old| old.get(name));
                    let (step, inner) = match shapes.get(name) {
                        Some(field) if field.declared => (BorrowedElement::Declared(name), field.shape),
                        Some(field) => (BorrowedElement::Field(name), field.shape),
                        None => (BorrowedElement::Field(name), Shape::Deduced),
                    };
                    self.write_child(step, inner, before, value, unowned)?;
                }
                Some(old.is_none())
            }
            (Granularity::List(keys), Value::Array(items)) if !items.is_empty() => {
                let had_items = old.is_some_and(|old| old.as_array().is_some_and(|old| !old.is_empty()));
                if had_items {
                    return None;
                }
                match KeyedList::of(shape.items(), keys, items) {
                    Some(list) => self.write_keyed_items(shape.items(), &list, unowned)?,
                    None => self.write_items(shape, keys, items, unowned)?,
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
                    Some(old) if !matches!(form, Granularity::Leaf(_)) && !is_empty(old) => None,
                    Some(old) => Some(!is_equal(old, new)),
                    None => Some(true),
                }
            }
        }
    }

    /// Writes the items of a list by their keys.
    fn write_keyed_items(
        &mut self,
        inner: Shape<'_>,
        list: &KeyedList<'_>,
        unowned: ExcludedFields<'_>,
    ) -> Option<()> {
        let alike = |pair: &[KeyedItem<'_>]| pair[0].order(&pair[1]).is_eq();
        if list.items.windows(2).any(alike) {
            return None;
        }
        let names = &list.names[..list.key_fields];
        list.items.iter().try_for_each(|keyed| {
            self.write_child(
                BorrowedElement::Key(names, keyed),
                inner,
                None,
                keyed.item,
                unowned,
            )
        })
    }

    /// Writes the items of any list.
    fn write_items(
        &mut self,
        shape: Shape<'_>,
        keys: &[Box<str>],
        items: &[Value],
        unowned: ExcludedFields<'_>,
    ) -> Option<()> {
        let identified = |item| Some((shape.identity(keys, item).ok()?, item));
        let mut items: Vec<_> = items.iter().map(identified).collect::<Option<_>>()?;
        items.sort_by(|(a, _), (b, _)| a.cmp(b));
        if items.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return None;
        }
        let inner = shape.items();
        items.iter().try_for_each(|(element, item)| {
            self.write_child(BorrowedElement::Element(element), inner, None, item, unowned)
        })
    }

    fn write_child(
        &mut self,
        step: BorrowedElement<'_>,
        shape: Shape<'_>,
        old: Option<&Value>,
        new: &Value,
        unowned: ExcludedFields<'_>,
    ) -> Option<()> {
        if old == Some(new) {
            return Some(());
        }
        let Some((unowned_itself, unowned)) = unowned.below(step) else {
            return Some(());
        };
        let form = shape.granularity(new);
        let has_inside = match (form, new) {
            (Granularity::Map, Value::Object(fields)) => !fields.is_empty(),
            (Granularity::List(_), Value::Array(items)) => !items.is_empty(),
            _ => false,
        };
        // Most new fields are leaves.
        if old.is_none() && !has_inside {
            if !unowned_itself {
                self.write_element(step);
                self.json.extend_from_slice(b":{}");
                self.first = false;
            }
            return Some(());
        }
        let start = self.json.len();
        self.write_element(step);
        self.json.extend_from_slice(b":{");
        let inside = self.json.len();
        // The field's own membership is written before its children. For a new field it is known now.
        let expected = old.is_none() && !unowned_itself;
        if expected {
            self.json.extend_from_slice(b"\".\":{}");
        }
        let mut below = SetWriter {
            first: !expected,
            json: self.json,
        };
        let member = below.write_children(shape, form, old, new, unowned)? && !unowned_itself;
        let has_below = below.json.len() > inside + if expected { 6 } else { 0 };
        debug_assert!(!expected || member, "what is new is in the set");
        if !has_below {
            self.json.truncate(inside);
            if !member {
                self.json.truncate(start);
                return Some(());
            }
        } else if member && !expected {
            // The field has children and is a member: it had another value before.
            return None;
        }
        self.json.push(b'}');
        self.first = false;
        Some(())
    }

    /// Writes a path element, and a comma before it if it is not the first.
    fn write_element(&mut self, step: BorrowedElement<'_>) {
        if !self.first {
            self.json.push(b',');
        }
        step.write(self.json);
    }
}

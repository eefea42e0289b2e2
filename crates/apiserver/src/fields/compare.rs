//! What differs between two states of an object, field by field.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::{
    Element, Set,
    element::compare_values,
    set::Branch,
    shape::{Form, Shape},
};

/// What differs between an old and a new state.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Comparison<'a> {
    /// What the new state has not.
    pub(crate) removed: Set<'a>,
    /// What the old state has not, or has otherwise.
    pub(crate) changed: Set<'a>,
}

impl Comparison<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.changed.is_empty()
    }
}

/// How far down equal parts are looked for before they are compared field by field. That spares most of the work where
/// little has changed; if it were done at every level, the cost would grow with size times depth.
const GLANCES: usize = 8;

/// Compares two states of an object. None if one of them has a list whose items cannot be told apart.
pub(crate) fn compare<'a>(shape: Shape<'a>, old: &'a Value, new: &'a Value) -> Option<Comparison<'a>> {
    let found = walk(shape, Some(old), Some(new), 0)?;
    Some(Comparison {
        removed: found.removed.below,
        changed: found.changed.below,
    })
}

/// What was found at a place.
#[derive(Default)]
struct Found<'a> {
    removed: Branch<'a>,
    changed: Branch<'a>,
}

fn walk<'a>(
    shape: Shape<'a>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    level: usize,
) -> Option<Found<'a>> {
    let (before, after) = match (old, new) {
        (Some(old), Some(new)) if level < GLANCES && old == new => return Some(Found::default()),
        (Some(old), Some(new)) => (shape.form(old), shape.form(new)),
        (Some(one), None) | (None, Some(one)) => (shape.form(one), shape.form(one)),
        (None, None) => return Some(Found::default()),
    };
    let mut found = inside(shape, after, old, new, level)?;
    if std::mem::discriminant(&before) != std::mem::discriminant(&after) {
        // Another kind of thing than before: what it was goes, field by field.
        let other = inside(shape, before, old, new, level)?;
        found.removed.below = found.removed.below.union(other.removed.below);
        found.changed.member |= other.changed.member;
        found.changed.below = found.changed.below.union(other.changed.below);
    }
    found.changed.member |= old.is_none();
    found.removed.member |= new.is_none();
    Some(found)
}

fn inside<'a>(
    shape: Shape<'a>,
    form: Form<'a>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    level: usize,
) -> Option<Found<'a>> {
    let is_something = |value: Option<&Value>| match (form, value) {
        (Form::Map, Some(Value::Object(fields))) => !fields.is_empty(),
        (Form::List(_), Some(Value::Array(items))) => !items.is_empty(),
        _ => false,
    };
    match form {
        Form::Map if is_something(old) || is_something(new) => {
            maps(shape, fields(old), fields(new), level + 1)
        }
        Form::List(keys) if is_something(old) || is_something(new) => {
            lists(shape, keys, items(old), items(new), level + 1)
        }
        // Nothing here and nothing there may still be `null` here and `{}` there.
        _ => {
            let mut found = Found::default();
            if let (Some(old), Some(new)) = (old, new) {
                found.changed.member = !is_same(old, new);
            }
            Some(found)
        }
    }
}

fn fields(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn maps<'a>(
    shape: Shape<'a>,
    old: Option<&'a Map<String, Value>>,
    new: Option<&'a Map<String, Value>>,
    level: usize,
) -> Option<Found<'a>> {
    let mut found = Found::default();
    let mut old = old.into_iter().flatten().peekable();
    let mut new = new.into_iter().flatten().peekable();
    loop {
        let order = match (old.peek(), new.peek()) {
            (Some((a, _)), Some((b, _))) => a.cmp(b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return Some(found),
        };
        let before = if order.is_le() { old.next() } else { None };
        let after = if order.is_ge() { new.next() } else { None };
        let Some((name, _)) = before.or(after) else {
            return Some(found);
        };
        let (before, after) = (before.map(|(_, value)| value), after.map(|(_, value)| value));
        let inner = shape.field(name).map_or(Shape::Deduced, |field| field.shape);
        let difference = walk(inner, before, after, level)?;
        found.removed.below.push(Element::field(name), difference.removed);
        found.changed.below.push(Element::field(name), difference.changed);
    }
}

/// The items of a list with what tells them apart, in the order of that; the same ones in the list's order.
fn sorted<'a>(
    shape: Shape<'a>,
    keys: &'a [Box<str>],
    items: &'a [Value],
) -> Option<Vec<(Element<'a>, &'a Value)>> {
    let identified = |item| Some((shape.identity(keys, item).ok()?, item));
    let mut items: Vec<_> = items.iter().map(identified).collect::<Option<_>>()?;
    items.sort_by(|(a, _), (b, _)| a.cmp(b));
    Some(items)
}

fn lists<'a>(
    shape: Shape<'a>,
    keys: &'a [Box<str>],
    old: &'a [Value],
    new: &'a [Value],
    level: usize,
) -> Option<Found<'a>> {
    let inner = shape.items();
    let (old, new) = (sorted(shape, keys, old)?, sorted(shape, keys, new)?);
    let (mut old, mut new) = (&old[..], &new[..]);
    let mut found = Found::default();
    loop {
        let element = match (old.first(), new.first()) {
            (Some((a, _)), Some((b, _))) => a.min(b),
            (Some((one, _)), None) | (None, Some((one, _))) => one,
            (None, None) => return Some(found),
        };
        let count = |items: &[(Element<'_>, &Value)]| items.partition_point(|(other, _)| other <= element);
        let ((before, old_rest), (after, new_rest)) = (old.split_at(count(old)), new.split_at(count(new)));
        let mut difference = match (before, after) {
            ([] | [_], [] | [_]) => walk(
                inner,
                before.first().map(|(_, value)| *value),
                after.first().map(|(_, value)| *value),
                level,
            )?,
            // Items that cannot be told apart are one thing.
            ([_, _, ..], [_, _, ..]) => {
                let same = before.len() == after.len()
                    && before.iter().zip(after).all(|((_, a), (_, b))| is_same(a, b));
                let mut difference = Found::default();
                difference.changed.member = !same;
                difference
            }
            ([_, _, ..], _) => {
                let mut difference = walk(inner, None, after.first().map(|(_, value)| *value), level)?;
                difference.removed.member = true;
                difference
            }
            (_, _) => {
                let mut difference = walk(inner, before.first().map(|(_, value)| *value), None, level)?;
                difference.changed.member = true;
                difference
            }
        };
        found
            .removed
            .below
            .push(element.clone(), std::mem::take(&mut difference.removed));
        found.changed.below.push(element.clone(), difference.changed);
        (old, new) = (old_rest, new_rest);
    }
}

/// Whether two values are worth the same: `1` and `1.0` are.
pub(super) fn is_same(a: &Value, b: &Value) -> bool {
    a == b || compare_values(a, b).is_eq()
}

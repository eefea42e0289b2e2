//! Compares two states of an object field by field.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::{
    FieldSet, PathElement,
    element::compare_values,
    set::Branch,
    shape::{Granularity, Shape},
};

/// The differences between an old and a new state.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Comparison<'a> {
    /// Fields that only the old state has.
    pub(crate) removed: FieldSet<'a>,
    /// Fields that only the new state has, or that have another value there.
    pub(crate) changed: FieldSet<'a>,
}

impl Comparison<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.changed.is_empty()
    }
}

/// Down to which level subtrees are compared as a whole before their fields are. This saves most of the work where
/// little has changed. At every level, the cost would grow with size times depth.
const MAX_EQUALITY_DEPTH: usize = 8;

/// Compares two states of an object. None if one of them has a list whose items have no key.
pub(crate) fn compare<'a>(shape: Shape<'a>, old: &'a Value, new: &'a Value) -> Option<Comparison<'a>> {
    let found = compare_at(shape, Some(old), Some(new), 0)?;
    Some(Comparison {
        removed: found.removed.children,
        changed: found.changed.children,
    })
}

/// The differences at one path.
#[derive(Default)]
struct Difference<'a> {
    removed: Branch<'a>,
    changed: Branch<'a>,
}

fn compare_at<'a>(
    shape: Shape<'a>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    level: usize,
) -> Option<Difference<'a>> {
    let (before, after) = match (old, new) {
        (Some(old), Some(new)) if level < MAX_EQUALITY_DEPTH && old == new => {
            return Some(Difference::default());
        }
        (Some(old), Some(new)) => (shape.granularity(old), shape.granularity(new)),
        (Some(one), None) | (None, Some(one)) => (shape.granularity(one), shape.granularity(one)),
        (None, None) => return Some(Difference::default()),
    };
    let mut found = compare_children(shape, after, old, new, level)?;
    if std::mem::discriminant(&before) != std::mem::discriminant(&after) {
        // A value of another type than before: its old fields are removed one by one.
        let other = compare_children(shape, before, old, new, level)?;
        found.removed.children = found.removed.children.union(other.removed.children);
        found.changed.member |= other.changed.member;
        found.changed.children = found.changed.children.union(other.changed.children);
    }
    found.changed.member |= old.is_none();
    found.removed.member |= new.is_none();
    Some(found)
}

fn compare_children<'a>(
    shape: Shape<'a>,
    form: Granularity<'a>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    level: usize,
) -> Option<Difference<'a>> {
    let is_something = |value: Option<&Value>| match (form, value) {
        (Granularity::Map, Some(Value::Object(fields))) => !fields.is_empty(),
        (Granularity::List(_), Some(Value::Array(items))) => !items.is_empty(),
        _ => false,
    };
    match form {
        Granularity::Map if is_something(old) || is_something(new) => {
            compare_maps(shape, fields(old), fields(new), level + 1)
        }
        Granularity::List(keys) if is_something(old) || is_something(new) => {
            compare_lists(shape, keys, items(old), items(new), level + 1)
        }
        // Both are empty, but may differ: `null` and `{}`.
        _ => {
            let mut found = Difference::default();
            if let (Some(old), Some(new)) = (old, new) {
                found.changed.member = !is_equal(old, new);
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

fn compare_maps<'a>(
    shape: Shape<'a>,
    old: Option<&'a Map<String, Value>>,
    new: Option<&'a Map<String, Value>>,
    level: usize,
) -> Option<Difference<'a>> {
    let mut found = Difference::default();
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
        let difference = compare_at(inner, before, after, level)?;
        found
            .removed
            .children
            .push(PathElement::field(name), difference.removed);
        found
            .changed
            .children
            .push(PathElement::field(name), difference.changed);
    }
}

/// The items of a list with their identities, sorted by identity. The order of duplicates is kept.
fn sorted_by_identity<'a>(
    shape: Shape<'a>,
    keys: &'a [Box<str>],
    items: &'a [Value],
) -> Option<Vec<(PathElement<'a>, &'a Value)>> {
    let identified = |item| Some((shape.identity(keys, item).ok()?, item));
    let mut items: Vec<_> = items.iter().map(identified).collect::<Option<_>>()?;
    items.sort_by(|(a, _), (b, _)| a.cmp(b));
    Some(items)
}

fn compare_lists<'a>(
    shape: Shape<'a>,
    keys: &'a [Box<str>],
    old: &'a [Value],
    new: &'a [Value],
    level: usize,
) -> Option<Difference<'a>> {
    let inner = shape.items();
    let (old, new) = (
        sorted_by_identity(shape, keys, old)?,
        sorted_by_identity(shape, keys, new)?,
    );
    let (mut old, mut new) = (&old[..], &new[..]);
    let mut found = Difference::default();
    loop {
        let element = match (old.first(), new.first()) {
            (Some((a, _)), Some((b, _))) => a.min(b),
            (Some((one, _)), None) | (None, Some((one, _))) => one,
            (None, None) => return Some(found),
        };
        let count =
            |items: &[(PathElement<'_>, &Value)]| items.partition_point(|(other, _)| other <= element);
        let ((before, old_rest), (after, new_rest)) = (old.split_at(count(old)), new.split_at(count(new)));
        let mut difference = match (before, after) {
            ([] | [_], [] | [_]) => compare_at(
                inner,
                before.first().map(|(_, value)| *value),
                after.first().map(|(_, value)| *value),
                level,
            )?,
            // Duplicates are compared as one item.
            ([_, _, ..], [_, _, ..]) => {
                let same = before.len() == after.len()
                    && before.iter().zip(after).all(|((_, a), (_, b))| is_equal(a, b));
                let mut difference = Difference::default();
                difference.changed.member = !same;
                difference
            }
            ([_, _, ..], _) => {
                let mut difference = compare_at(inner, None, after.first().map(|(_, value)| *value), level)?;
                difference.removed.member = true;
                difference
            }
            (_, _) => {
                let mut difference = compare_at(inner, before.first().map(|(_, value)| *value), None, level)?;
                difference.changed.member = true;
                difference
            }
        };
        found
            .removed
            .children
            .push(element.clone(), std::mem::take(&mut difference.removed));
        found.changed.children.push(element.clone(), difference.changed);
        (old, new) = (old_rest, new_rest);
    }
}

/// Whether two values are equal, as `1` and `1.0` are.
pub(super) fn is_equal(a: &Value, b: &Value) -> bool {
    a == b || compare_values(a, b).is_eq()
}

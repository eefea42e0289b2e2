//! Merges a configuration into an object, and removes fields from one.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    FieldSet, PathElement,
    set::Branch,
    shape::{Granularity, Shape},
};

/// Merges a configuration into an object. The configuration's leaves win. Lists with item identities keep the object's
/// order, unless the configuration orders the common items differently.
pub(crate) fn merge(shape: Shape<'_>, object: &Value, config: &Value) -> Value {
    merge_at(shape, Some(object), Some(config)).unwrap_or(Value::Null)
}

fn merge_at<'a>(shape: Shape<'a>, object: Option<&'a Value>, config: Option<&'a Value>) -> Option<Value> {
    let Some(configured) = config else {
        return object.cloned();
    };
    match shape.granularity(configured) {
        Granularity::Map => {
            let (old, new) = (object.and_then(Value::as_object), configured.as_object());
            if old.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty) {
                return Some(configured.clone());
            }
            let mut merged = old.cloned().unwrap_or_default();
            for (name, configured) in new.into_iter().flatten() {
                let inner = shape.field(name).map_or(Shape::Deduced, |field| field.shape);
                match merge_at(inner, old.and_then(|old| old.get(name)), Some(configured)) {
                    Some(value) => merged.insert(name.clone(), value),
                    None => merged.remove(name),
                };
            }
            Some(Value::Object(merged)).filter(|merged| merged.as_object().is_some_and(|map| !map.is_empty()))
        }
        Granularity::List(keys) => {
            let (old, new) = (list(object), list(config));
            if old.is_empty() && new.is_empty() {
                return Some(configured.clone());
            }
            let merged = merge_lists(shape, keys, old, new);
            Some(Value::from(merged)).filter(|merged| merged != &Value::Array(Vec::new()))
        }
        Granularity::Leaf(_) => Some(configured.clone()),
    }
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Merges two lists by item identity. Both orders are kept where they agree; else the configuration's wins.
fn merge_lists<'a>(
    shape: Shape<'a>,
    keys: &'a [Box<str>],
    object: &'a [Value],
    config: &'a [Value],
) -> Vec<Value> {
    let inner = shape.items();
    let identities = |items: &'a [Value]| -> Vec<(PathElement<'a>, &'a Value)> {
        let identified = |item| Some((shape.identity(keys, item).ok()?, item));
        items.iter().filter_map(identified).collect()
    };
    let (old, new) = (identities(object), identities(config));
    // Duplicate items of the object are not merged: the configuration's item replaces them.
    let mut before: BTreeMap<&PathElement<'a>, Option<&'a Value>> = BTreeMap::new();
    for (element, item) in &old {
        before
            .entry(element)
            .and_modify(|known| *known = None)
            .or_insert(Some(item));
    }
    let configured: BTreeMap<&PathElement<'a>, &'a Value> =
        new.iter().map(|(element, item)| (element, *item)).collect();
    let mut shared = new
        .iter()
        .map(|(element, _)| element)
        .filter(|element| before.contains_key(element));
    let mut next_shared = shared.next();
    let mut done: std::collections::BTreeSet<&PathElement<'a>> = std::collections::BTreeSet::new();
    let mut merged = Vec::with_capacity(old.len().max(new.len()));
    let (mut left, mut right) = (0, 0);
    while left < old.len() || right < new.len() {
        if let Some((element, item)) = old.get(left) {
            match (configured.get(element), new.get(right)) {
                (None, _) => {
                    merged.extend(merge_at(inner, Some(item), None));
                    left += 1;
                    continue;
                }
                // In both lists, but the configuration has another common item before it.
                (Some(_), Some((wanted, _)))
                    if element != wanted && next_shared.is_some_and(|shared| shared != element) =>
                {
                    left += 1;
                    continue;
                }
                (Some(_), Some((wanted, _))) if element == wanted => left += 1,
                (Some(_), _) if done.contains(element) => left += 1,
                _ => {}
            }
        }
        if let Some((element, item)) = new.get(right) {
            merged.extend(merge_at(
                inner,
                before.get(element).copied().flatten(),
                Some(item),
            ));
            done.insert(element);
            right += 1;
            if next_shared == Some(element) {
                next_shared = shared.next();
            }
        }
    }
    merged
}

/// Removes fields from a value; null if nothing is left.
pub(super) fn remove_fields(shape: Shape<'_>, value: Value, fields: &FieldSet<'_>) -> Value {
    match (shape.granularity(&value), value) {
        (Granularity::Map, Value::Object(mut map)) => {
            for (element, branch) in fields.branches() {
                let PathElement::Field(name) = element else {
                    continue;
                };
                if branch.member {
                    map.remove(&**name);
                } else if let Some(value) = map.get_mut(&**name) {
                    let inner = shape.field(name).map_or(Shape::Deduced, |field| field.shape);
                    *value = remove_fields(inner, value.take(), &branch.children);
                }
            }
            if map.is_empty() { Value::Null } else { map.into() }
        }
        (Granularity::List(keys), Value::Array(items)) => {
            let inner = shape.items();
            let mut kept = Vec::with_capacity(items.len());
            for item in items {
                let branch = shape
                    .identity(keys, &item)
                    .ok()
                    .and_then(|element| fields.get(&element));
                match branch {
                    Some(Branch { member: true, .. }) => {}
                    Some(branch) => kept.push(remove_fields(inner, item, &branch.children)),
                    None => kept.push(item),
                }
            }
            if kept.is_empty() { Value::Null } else { kept.into() }
        }
        (Granularity::Leaf(_), value @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) => value,
        _ => Value::Null,
    }
}

/// Adds to a set every declared field that has children in the set.
pub(super) fn with_declared_parents<'a>(shape: Option<Shape<'_>>, set: &FieldSet<'a>) -> FieldSet<'a> {
    let mut all = FieldSet::default();
    for (element, branch) in set.branches() {
        let (inner, named) = match element {
            PathElement::Field(name) => {
                let field = shape.and_then(|shape| shape.field(name));
                (
                    field.map(|field| field.shape),
                    field.is_some_and(|field| field.declared),
                )
            }
            PathElement::Key(_) => (shape.map(Shape::items), false),
            _ => (None, false),
        };
        let member = branch.member || (named && !branch.children.is_empty());
        let children = with_declared_parents(inner, &branch.children);
        all.push(element.clone(), Branch { member, children });
    }
    all
}

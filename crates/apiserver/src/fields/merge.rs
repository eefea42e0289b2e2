//! A configuration laid over an object, and fields taken out of one.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    Element, Set,
    set::Branch,
    shape::{Form, Shape},
};

/// The object with what the configuration says: where both say something of a leaf, the configuration has it. Lists by
/// item keep the object's order, unless the configuration has another one for what is in both.
pub(crate) fn merge(shape: Shape<'_>, object: &Value, config: &Value) -> Value {
    walk(shape, Some(object), Some(config)).unwrap_or(Value::Null)
}

fn walk<'a>(shape: Shape<'a>, object: Option<&'a Value>, config: Option<&'a Value>) -> Option<Value> {
    let Some(said) = config else {
        return object.cloned();
    };
    match shape.form(said) {
        Form::Map => {
            let (old, new) = (object.and_then(Value::as_object), said.as_object());
            if old.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty) {
                return Some(said.clone());
            }
            let mut merged = old.cloned().unwrap_or_default();
            for (name, said) in new.into_iter().flatten() {
                let inner = shape.field(name).map_or(Shape::Deduced, |field| field.shape);
                match walk(inner, old.and_then(|old| old.get(name)), Some(said)) {
                    Some(value) => merged.insert(name.clone(), value),
                    None => merged.remove(name),
                };
            }
            Some(Value::Object(merged)).filter(|merged| merged.as_object().is_some_and(|map| !map.is_empty()))
        }
        Form::List(keys) => {
            let (old, new) = (list(object), list(config));
            if old.is_empty() && new.is_empty() {
                return Some(said.clone());
            }
            let merged = lists(shape, keys, old, new);
            Some(Value::from(merged)).filter(|merged| merged != &Value::Array(Vec::new()))
        }
        Form::Leaf(_) => Some(said.clone()),
    }
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Merges two lists by item. Both orders are kept as far as they go together; where they do not, the configuration's is.
fn lists<'a>(shape: Shape<'a>, keys: &'a [Box<str>], object: &'a [Value], config: &'a [Value]) -> Vec<Value> {
    let inner = shape.items();
    let identities = |items: &'a [Value]| -> Vec<(Element<'a>, &'a Value)> {
        let identified = |item| Some((shape.identity(keys, item).ok()?, item));
        items.iter().filter_map(identified).collect()
    };
    let (old, new) = (identities(object), identities(config));
    // An item that is in the object twice is not merged with: the configuration's takes the place of both.
    let mut before: BTreeMap<&Element<'a>, Option<&'a Value>> = BTreeMap::new();
    for (element, item) in &old {
        before
            .entry(element)
            .and_modify(|known| *known = None)
            .or_insert(Some(item));
    }
    let said: BTreeMap<&Element<'a>, &'a Value> =
        new.iter().map(|(element, item)| (element, *item)).collect();
    let mut shared = new
        .iter()
        .map(|(element, _)| element)
        .filter(|element| before.contains_key(element));
    let mut next_shared = shared.next();
    let mut done: std::collections::BTreeSet<&Element<'a>> = std::collections::BTreeSet::new();
    let mut merged = Vec::with_capacity(old.len().max(new.len()));
    let (mut left, mut right) = (0, 0);
    while left < old.len() || right < new.len() {
        if let Some((element, item)) = old.get(left) {
            match (said.get(element), new.get(right)) {
                (None, _) => {
                    merged.extend(walk(inner, Some(item), None));
                    left += 1;
                    continue;
                }
                // In both, but another one is to come before it.
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
            merged.extend(walk(inner, before.get(element).copied().flatten(), Some(item)));
            done.insert(element);
            right += 1;
            if next_shared == Some(element) {
                next_shared = shared.next();
            }
        }
    }
    merged
}

/// The object without some of its fields; null if nothing is left.
pub(super) fn remove(shape: Shape<'_>, value: Value, fields: &Set<'_>) -> Value {
    match (shape.form(&value), value) {
        (Form::Map, Value::Object(mut map)) => {
            for (element, branch) in fields.branches() {
                let Element::Field(name) = element else {
                    continue;
                };
                if branch.member {
                    map.remove(&**name);
                } else if let Some(value) = map.get_mut(&**name) {
                    let inner = shape.field(name).map_or(Shape::Deduced, |field| field.shape);
                    *value = remove(inner, value.take(), &branch.below);
                }
            }
            if map.is_empty() { Value::Null } else { map.into() }
        }
        (Form::List(keys), Value::Array(items)) => {
            let inner = shape.items();
            let mut kept = Vec::with_capacity(items.len());
            for item in items {
                let branch = shape
                    .identity(keys, &item)
                    .ok()
                    .and_then(|element| fields.get(&element));
                match branch {
                    Some(Branch { member: true, .. }) => {}
                    Some(branch) => kept.push(remove(inner, item, &branch.below)),
                    None => kept.push(item),
                }
            }
            if kept.is_empty() { Value::Null } else { kept.into() }
        }
        (Form::Leaf(_), value @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) => value,
        _ => Value::Null,
    }
}

/// The set with every field that the schema knows by name and of which something below is in the set.
pub(super) fn with_named<'a>(shape: Option<Shape<'_>>, set: &Set<'a>) -> Set<'a> {
    let mut all = Set::default();
    for (element, branch) in set.branches() {
        let (inner, named) = match element {
            Element::Field(name) => {
                let field = shape.and_then(|shape| shape.field(name));
                (
                    field.map(|field| field.shape),
                    field.is_some_and(|field| field.named),
                )
            }
            Element::Key(_) => (shape.map(Shape::items), false),
            _ => (None, false),
        };
        let member = branch.member || (named && !branch.below.is_empty());
        let below = with_named(inner, &branch.below);
        all.push(element.clone(), Branch { member, below });
    }
    all
}

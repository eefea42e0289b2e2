//! Which item of a list was which before a change.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::Value;

/// Fields that identify the items of Kubernetes' lists, in the order in which they are tried.
const IDENTITIES: [&str; 6] = ["name", "uid", "key", "id", "type", "ip"];

/// For each item of `after` the index of the item of `before` that it was; `None` for a new one. No index occurs twice.
///
/// Equal items at both ends are themselves. Of the others, equal ones are the same; then those with the same name or other
/// identity; then, if as many are left on both sides and none has an identity, those in the same order.
pub(super) fn align(before: &[Value], after: &[Value]) -> Vec<Option<usize>> {
    let common =
        |pairs: &mut dyn Iterator<Item = (&Value, &Value)>| pairs.take_while(|(a, b)| a == b).count();
    let start = common(&mut before.iter().zip(after));
    let (rest_before, rest_after) = (&before[start..], &after[start..]);
    let end = common(&mut rest_before.iter().rev().zip(rest_after.iter().rev()));
    let mut origins: Vec<Option<usize>> = vec![None; after.len()];
    for (index, origin) in origins.iter_mut().enumerate() {
        if index < start {
            *origin = Some(index);
        } else if index >= after.len() - end {
            *origin = Some(before.len() - (after.len() - index));
        }
    }
    let mut left_before: Vec<usize> = (start..before.len() - end).collect();
    let mut left_after: Vec<usize> = (start..after.len() - end).collect();
    // An insertion or a removal: the most common change.
    if left_before.is_empty() || left_after.is_empty() {
        return origins;
    }
    pair_by(
        &mut left_before,
        &mut left_after,
        &mut origins,
        |index, is_new| Some(if is_new { &after[index] } else { &before[index] }.to_string()),
    );
    let identity = IDENTITIES.into_iter().find(|field| {
        is_identity(field, left_before.iter().map(|index| &before[*index]))
            && is_identity(field, left_after.iter().map(|index| &after[*index]))
    });
    match identity {
        Some(field) => pair_by(
            &mut left_before,
            &mut left_after,
            &mut origins,
            |index, is_new| Some(if is_new { &after[index] } else { &before[index] }[field].to_string()),
        ),
        None if left_before.len() == left_after.len() => {
            for (old, new) in left_before.into_iter().zip(left_after) {
                origins[new] = Some(old);
            }
        }
        None => {}
    }
    origins
}

/// Pairs the items that are left and have the same key.
fn pair_by(
    left_before: &mut Vec<usize>,
    left_after: &mut Vec<usize>,
    origins: &mut [Option<usize>],
    key: impl Fn(usize, bool) -> Option<String>,
) {
    let mut by_key: HashMap<String, VecDeque<usize>> = HashMap::new();
    for &index in &*left_before {
        if let Some(key) = key(index, false) {
            by_key.entry(key).or_default().push_back(index);
        }
    }
    let mut paired = HashSet::new();
    left_after.retain(|&index| {
        let found = key(index, true).and_then(|key| by_key.get_mut(&key)?.pop_front());
        origins[index] = found;
        paired.extend(found);
        found.is_none()
    });
    left_before.retain(|index| !paired.contains(index));
}

/// Whether all items are objects with this field, and no two have the same.
fn is_identity<'a>(field: &str, items: impl Iterator<Item = &'a Value>) -> bool {
    let mut seen = HashSet::new();
    let mut items = items.peekable();
    items.peek().is_some()
        && items.all(|item| match &item[field] {
            Value::String(text) => seen.insert(text.as_str()),
            _ => false,
        })
}

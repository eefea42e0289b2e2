//! Which item of a list was which before a change.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet, VecDeque},
};

use serde_json::{Value, value::RawValue};

/// Fields that identify the items of Kubernetes' lists, in the order in which they are tried: the keys of its schemas, and what
/// custom resources use.
const IDENTITIES: [&str; 14] = [
    "name",
    "uid",
    "key",
    "id",
    "type",
    "ip",
    "containerPort",
    "mountPath",
    "devicePath",
    "port",
    "topologyKey",
    "resourceName",
    "host",
    "path",
];

/// Items that are compared with each other at most, where there is no identity.
const MAX_COMPARED: usize = 4096;

/// Whether the items that a client has sent are at the same places in what the type has written of them.
pub(super) fn is_in_order<R: RawItem>(raw: &[R], before: &[Value]) -> bool {
    raw.len() == before.len()
        && raw.iter().zip(before).all(|(raw, before)| {
            // What is too deep for a tree is not reordered by its content.
            raw.to_tree().is_none_or(|raw| is_same_item(&raw, before))
        })
}

/// An item as the client has sent it.
pub(super) trait RawItem {
    fn to_tree(&self) -> Option<Cow<'_, Value>>;
}

impl RawItem for Value {
    fn to_tree(&self) -> Option<Cow<'_, Value>> {
        Some(Cow::Borrowed(self))
    }
}

impl RawItem for &RawValue {
    fn to_tree(&self) -> Option<Cow<'_, Value>> {
        serde_json::from_str(self.get()).ok().map(Cow::Owned)
    }
}

/// Whether a type may have written `raw` as `before`: by their identity, or else by what both have.
fn is_same_item(raw: &Value, before: &Value) -> bool {
    let text = |item: &Value, field: &str| item.get(field).and_then(Value::as_str).map(ToOwned::to_owned);
    for field in IDENTITIES {
        if let (Some(raw), Some(before)) = (text(raw, field), text(before, field)) {
            return raw == before;
        }
    }
    agrees(raw, before)
}

/// Whether what both have is the same.
fn agrees(raw: &Value, before: &Value) -> bool {
    match (raw, before) {
        (Value::Null, _) => true,
        (Value::Object(raw), Value::Object(before)) => before.iter().all(|(key, before)| {
            let raw = raw.get(key);
            raw.is_none_or(|raw| agrees(raw, before))
        }),
        (Value::Array(raw), Value::Array(before)) => is_in_order(raw, before),
        (Value::Number(raw), Value::Number(before)) => raw == before || raw.as_f64() == before.as_f64(),
        (raw, before) => raw == before,
    }
}

/// For each item of `after` the index of the item of `before` that it was; `None` for a new one. No index occurs twice.
///
/// Equal items at both ends are themselves. Of the others, equal ones are the same; then those with the same name or other
/// identity; then, if as many are left on both sides and none has an identity, those in the same order, and otherwise those
/// that have most fields in common.
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
        None => pair_similar(before, after, &left_before, &left_after, &mut origins),
    }
    origins
}

/// Pairs items that have equal fields: each new one with the old one with which it has most in common.
fn pair_similar(
    before: &[Value],
    after: &[Value],
    left_before: &[usize],
    left_after: &[usize],
    origins: &mut [Option<usize>],
) {
    if left_before.len().saturating_mul(left_after.len()) > MAX_COMPARED {
        return;
    }
    let common = |old: usize, new: usize| {
        let fields = after[new].as_object().into_iter().flatten();
        fields
            .filter(|(key, value)| before[old].get(key.as_str()) == Some(value))
            .count()
    };
    let mut left_before = left_before.to_vec();
    for &new in left_after {
        let best = left_before
            .iter()
            .enumerate()
            .rev()
            .max_by_key(|(_, old)| common(**old, new));
        if let Some((position, &old)) = best
            && common(old, new) > 0
        {
            origins[new] = Some(old);
            left_before.remove(position);
        }
    }
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
            identity @ (Value::String(_) | Value::Number(_)) => seen.insert(identity),
            _ => false,
        })
}

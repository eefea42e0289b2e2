//! The smallest merge patch that brings the fields we set back to what they should be.
//!
//! Only what is in the desired object is compared: what the server or others add is theirs and stays. So defaults cause
//! no writes, and a repaired object compares equal.

use serde_json::{Map, Value};

/// A JSON merge patch from `actual` to an object that agrees with `desired` wherever `desired` says something; `None`
/// if it already does.
///
/// A merge patch can only replace a list as a whole, so a list that differs goes into the patch complete, with what
/// others added to it.
pub fn patch(desired: &Value, actual: &Value) -> Option<Value> {
    let (Value::Object(wanted), Value::Object(found)) = (desired, actual) else {
        let merged = overlay(desired, actual);
        return (merged != *actual).then_some(merged);
    };
    let mut changes = Map::new();
    for (name, wanted) in wanted {
        let change = match found.get(name) {
            Some(found) => patch(wanted, found),
            None if is_nothing(wanted) => None,
            None => Some(wanted.clone()),
        };
        if let Some(change) = change {
            changes.insert(name.clone(), change);
        }
    }
    (!changes.is_empty()).then_some(Value::Object(changes))
}

/// `actual` with everything from `desired` laid over it.
fn overlay(desired: &Value, actual: &Value) -> Value {
    match (desired, actual) {
        (Value::Object(wanted), Value::Object(found)) => {
            let mut merged = found.clone();
            for (name, wanted) in wanted {
                match found.get(name) {
                    Some(found) => drop(merged.insert(name.clone(), overlay(wanted, found))),
                    None if is_nothing(wanted) => {}
                    None => drop(merged.insert(name.clone(), wanted.clone())),
                }
            }
            Value::Object(merged)
        }
        (Value::Array(wanted), Value::Array(found)) => overlay_list(wanted, found),
        // What is left out and what is empty is the same to the server.
        (wanted, found) if is_nothing(wanted) && is_nothing(found) => found.clone(),
        (wanted, _) => wanted.clone(),
    }
}

/// Lists of named things (containers, volumes, ports) are laid over each other by name, and what has another name
/// stays: a sidecar that somebody adds is not ours. Other lists are ours or theirs as a whole.
fn overlay_list(wanted: &[Value], found: &[Value]) -> Value {
    let named = |list: &[Value]| list.iter().all(|item| name(item).is_some());
    if wanted.is_empty() || !named(wanted) || !named(found) {
        return Value::Array(wanted.to_vec());
    }
    let mut merged: Vec<Value> = Vec::with_capacity(found.len());
    for found in found {
        let wanted = wanted.iter().find(|wanted| name(wanted) == name(found));
        merged.push(wanted.map_or_else(|| found.clone(), |wanted| overlay(wanted, found)));
    }
    let missing = wanted
        .iter()
        .filter(|wanted| !found.iter().any(|found| name(found) == name(wanted)));
    merged.extend(missing.cloned());
    Value::Array(merged)
}

fn name(item: &Value) -> Option<&str> {
    item.get("name")?.as_str()
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_we_set_is_compared() {
        let cases = [
            (json!({"a": 1}), json!({"a": 1, "b": 2}), None),
            (json!({"a": 1}), json!({"a": 2, "b": 2}), Some(json!({"a": 1}))),
            (
                json!({"a": {"x": 1}}),
                json!({"a": {"x": 2, "y": 3}}),
                Some(json!({"a": {"x": 1}})),
            ),
            (json!({"a": {"x": 1}}), json!({}), Some(json!({"a": {"x": 1}}))),
            (json!({"a": {}}), json!({}), None),
            (json!({"a": []}), json!({"a": null}), None),
            (json!({"a": [1]}), json!({"a": [1, 2]}), Some(json!({"a": [1]}))),
        ];
        for (desired, actual, expected) in cases {
            assert_eq!(patch(&desired, &actual), expected, "{desired} on {actual}");
        }
    }

    #[test]
    fn a_list_of_named_things_keeps_what_is_not_ours() {
        let desired = json!({"containers": [{"name": "nginx", "image": "nginx:latest"}]});
        let defaulted =
            json!({"containers": [{"name": "nginx", "image": "nginx:latest", "imagePullPolicy": "Always"}]});
        assert_eq!(patch(&desired, &defaulted), None);
        let drifted =
            json!({"containers": [{"name": "sidecar"}, {"name": "nginx", "image": "evil", "tty": true}]});
        let repaired = json!({"containers": [{"name": "sidecar"}, {"name": "nginx", "image": "nginx:latest", "tty": true}]});
        assert_eq!(patch(&desired, &drifted), Some(repaired));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![(0..3).prop_map(Value::from), "[ab]".prop_map(Value::from)];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let object = prop::collection::btree_map("[a-d]|name", inner.clone(), 0..4);
            prop_oneof![
                prop::collection::vec(inner, 0..3).prop_map(Value::from),
                object.prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// RFC 7386.
    fn merge(target: &Value, patch: &Value) -> Value {
        let Value::Object(patch) = patch else {
            return patch.clone();
        };
        let mut merged = target.as_object().cloned().unwrap_or_default();
        for (name, change) in patch {
            if change.is_null() {
                merged.remove(name);
            } else {
                let before = merged.get(name).cloned().unwrap_or(Value::Null);
                merged.insert(name.clone(), merge(&before, change));
            }
        }
        Value::Object(merged)
    }

    proptest! {
        /// No write loop: what a patch has repaired needs no further patch.
        #[test]
        fn a_repaired_object_needs_no_repair(desired in any_json(), actual in any_json()) {
            if let Some(change) = patch(&desired, &actual) {
                prop_assert_eq!(patch(&desired, &merge(&actual, &change)), None);
            }
            prop_assert_eq!(patch(&desired, &desired), None);
        }
    }
}

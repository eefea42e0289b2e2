//! Tests of patches, with an independent implementation of JSON patch.

use proptest::{collection, prelude::*};
use serde_json::{from_value, json};

use super::*;

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("JSON")
}

fn between(raw_value: &Value, before: &Value, after: &Value) -> Value {
    let patch = Patch::between(&raw(raw_value), before, after, Lists::Edited).expect("not deep");
    serde_json::to_value(patch).expect("JSON")
}

fn applied(target: &Value, patch: &Value) -> Value {
    let mut result = target.clone();
    let patch: json_patch::Patch = from_value(patch.clone()).expect("a JSON patch");
    json_patch::patch(&mut result, &patch).expect("the patch applies");
    result
}

#[test]
fn patch_has_only_what_changed() {
    let cases = [
        // Nothing changed, though decoding added and dropped fields.
        (
            json!({"x": 1, "unknown": 2}),
            json!({"x": 1, "d": 0}),
            json!({"x": 1, "d": 0}),
            json!([]),
        ),
        // A filled-in default is not added.
        (
            json!({"unknown": 2}),
            json!({"d": 0}),
            json!({"d": 0, "x": 1}),
            json!([{"op": "add", "path": "/x", "value": 1}]),
        ),
        // A change of a filled-in default is.
        (
            json!({}),
            json!({"d": 0}),
            json!({"d": 1}),
            json!([{"op": "add", "path": "/d", "value": 1}]),
        ),
        // A removed default was not there.
        (json!({}), json!({"d": 0}), json!({}), json!([])),
        (
            json!({"d": 0}),
            json!({"d": 0}),
            json!({}),
            json!([{"op": "remove", "path": "/d"}]),
        ),
        // `null` is absent.
        (
            json!({"d": 5}),
            json!({"d": 5, "e": null}),
            json!({"d": null}),
            json!([{"op": "remove", "path": "/d"}]),
        ),
        (
            json!({"d": null}),
            json!({"d": null}),
            json!({"d": 1}),
            json!([{"op": "replace", "path": "/d", "value": 1}]),
        ),
        // Unknown fields of an object that the type left out.
        (
            json!({"o": {"unknown": 1}}),
            json!({}),
            json!({"o": {"x": 1}}),
            json!([{"op": "add", "path": "/o/x", "value": 1}]),
        ),
        // Paths are escaped, and in order.
        (
            json!({"a/b": 1, "m~n": 1}),
            json!({"a/b": 1, "m~n": 1}),
            json!({"a/b": 2, "m~n": 2}),
            json!([
                {"op": "replace", "path": "/a~1b", "value": 2},
                {"op": "replace", "path": "/m~0n", "value": 2},
            ]),
        ),
        (
            json!({"a": {"\u{e9}\n": 1}}),
            json!({"a": {"\u{e9}\n": 1}}),
            json!({"a": {"\u{e9}\n": 2}}),
            json!([{"op": "replace", "path": "/a/\u{e9}\n", "value": 2}]),
        ),
    ];
    for (raw, before, after, wanted) in cases {
        assert_eq!(between(&raw, &before, &after), wanted, "{raw} {before} {after}");
    }
}

#[test]
fn list_items_keep_what_the_type_does_not_know() {
    let item = |name: &str, x: u32| json!({"name": name, "x": x});
    let full = |name: &str, x: u32| json!({"name": name, "x": x, "unknown": name});
    let raw = json!([full("a", 1), full("b", 2), full("c", 3)]);
    let before = json!([item("a", 1), item("b", 2), item("c", 3)]);
    let cases = [
        // inserted at the front
        (json!([item("s", 0), item("a", 1), item("b", 2), item("c", 3)]), 1),
        // removed
        (json!([item("a", 1), item("c", 3)]), 1),
        // changed
        (json!([item("a", 1), item("b", 5), item("c", 3)]), 1),
        // removed, changed and added
        (json!([item("b", 2), item("c", 4), item("d", 1)]), 3),
        // moved
        (json!([item("c", 3), item("a", 9), item("b", 2)]), 1),
    ];
    for (after, count) in cases {
        let patch = between(&raw, &before, &after);
        assert_eq!(patch.as_array().map(Vec::len), Some(count), "{patch}");
        let result = applied(&raw, &patch);
        for (item, wanted) in result.as_array().unwrap().iter().zip(after.as_array().unwrap()) {
            assert_eq!(
                (&item["name"], &item["x"]),
                (&wanted["name"], &wanted["x"]),
                "{patch}"
            );
            let is_old = ["a", "b", "c"].iter().any(|name| item["name"] == *name);
            assert_eq!(is_old, item["unknown"] == item["name"], "{result}");
        }
    }
}

/// What a type knows of a document: all but the fields that begin with `u`.
fn known(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, _)| !key.starts_with('u'))
            .map(|(key, value)| (key.clone(), known(value)))
            .collect(),
        Value::Array(items) => items.iter().map(known).collect(),
        other => other.clone(),
    }
}

/// What a type does not know of a document: the paths of the unknown fields of objects outside of lists.
fn unknown(value: &Value, path: &str, found: &mut Vec<(String, Value)>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
        if key.starts_with('u') {
            found.push((path, value.clone()));
        } else {
            unknown(value, &path, found);
        }
    }
}

fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        (0..4).prop_map(Value::from),
        "[a-c~/]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            collection::btree_map("[abu~/]{1,2}|name", inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = Value> {
    collection::btree_map("[abu]{1,2}", document(), 0..6)
        .prop_map(|fields| Value::Object(fields.into_iter().collect()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 2_000 }))]

    #[test]
    fn patched_object_is_what_the_author_wanted(raw in object(), after in object()) {
        let (before, after) = (known(&raw), known(&after));
        let patch = between(&raw, &before, &after);
        let result = applied(&raw, &patch);
        prop_assert_eq!(known(&result), after.clone());
        prop_assert_eq!(patch.as_array().unwrap().is_empty(), before == after);
        // The same change is the same patch.
        prop_assert_eq!(between(&raw, &before, &after), patch);
        // What is unknown stays wherever its parent stays.
        let (mut old, mut new) = (Vec::new(), Vec::new());
        unknown(&raw, "", &mut old);
        unknown(&result, "", &mut new);
        for (path, value) in old {
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            if after.pointer(parent).is_some_and(Value::is_object) && before.pointer(parent).is_some_and(Value::is_object) {
                prop_assert_eq!(result.pointer(&path), Some(&value), "{}", path);
            }
        }
        // Nothing unknown appears that was not there.
        for (path, value) in new {
            prop_assert_eq!(raw.pointer(&path), Some(&value), "{}", path);
        }
    }

    #[test]
    fn overlay_agrees_with_the_patch(raw in object(), after in object()) {
        let (before, after) = (known(&raw), known(&after));
        let patched = applied(&raw, &between(&raw, &before, &after));
        prop_assert_eq!(overlay_value(raw, &before, &after), patched);
    }
}

/// A type that does with lists what types do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Object {
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    set: BTreeSet<String>,
    hashed: std::collections::HashSet<u8>,
    #[serde(deserialize_with = "sorted")]
    sorted: Vec<Item>,
    items: Vec<Item>,
    pairs: Vec<(u8, Option<String>)>,
    map: BTreeMap<String, BTreeSet<Item>>,
    nested: Option<Box<Object>>,
    any: Value,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
struct Item {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    size: u8,
    tags: BTreeSet<String>,
}

fn sorted<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Item>, D::Error> {
    let mut items = Vec::<Item>::deserialize(deserializer)?;
    items.sort();
    items.dedup();
    Ok(items)
}

fn item() -> impl Strategy<Value = Value> {
    let fields = (
        proptest::option::of("[ab]"),
        proptest::option::of(0..3_u8),
        proptest::option::of(collection::vec("[ab]", 0..3)),
        any::<bool>(),
    );
    fields.prop_map(|(name, size, tags, is_unknown)| {
        let mut item = json!({});
        for (key, value) in [
            ("name", json!(name)),
            ("size", json!(size)),
            ("tags", json!(tags)),
        ] {
            if !value.is_null() {
                item[key] = value;
            }
        }
        if is_unknown {
            item["unknown"] = item["name"].clone();
        }
        item
    })
}

fn typed() -> impl Strategy<Value = Value> {
    let items = || collection::vec(item(), 0..4);
    let level = || {
        let fields = (
            collection::vec("[abc]", 0..4),
            collection::vec(0..4_u8, 0..4),
            items(),
            items(),
            collection::vec((0..3_u8, proptest::option::of("[ab]")), 0..3),
            collection::btree_map("[ab]", items(), 0..3),
            proptest::option::of(document()),
        );
        fields.prop_map(|(set, hashed, sorted, items, pairs, map, any)| {
            json!({
                "set": set, "hashed": hashed, "sorted": sorted, "items": items, "pairs": pairs, "map": map, "any": any,
                "unknown": 1,
            })
        })
    };
    (level(), proptest::option::of(level())).prop_map(|(mut outer, inner)| {
        outer["nested"] = json!(inner);
        outer
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 1_000 }))]

    #[test]
    fn patch_of_any_type_yields_what_the_author_wanted(sent in typed(), other in typed(), kept in 0..128_u8) {
        // The author's change: some fields become those of another object.
        let object: Object = from_value(sent.clone()).expect("an object");
        let mut changed = object.clone();
        let other: Object = from_value(other).expect("an object");
        let is_changed = |bit: u8| kept >> bit & 1 == 1;
        if is_changed(0) { changed.set.pop_first(); }
        if is_changed(1) { changed.hashed = other.hashed; }
        if is_changed(2) { changed.sorted.truncate(1); changed.sorted.extend(other.sorted.into_iter().take(1)); }
        if is_changed(3) { changed.items.reverse(); changed.items.extend(other.items.into_iter().take(1)); }
        if is_changed(4) { changed.pairs.pop(); }
        if is_changed(5) { changed.map.values_mut().for_each(|items| drop(items.pop_first())); }
        if is_changed(6) && let Some(nested) = &mut changed.nested { nested.set.insert("z".to_owned()); }
        let before = serde_json::to_value(&object).expect("JSON");
        let after = serde_json::to_value(&changed).expect("JSON");
        let patch = crate::admission::difference(&raw(&sent), &before, &changed).expect("a patch");
        let result = applied(&sent, &serde_json::to_value(&patch).expect("JSON"));
        let wanted: Object = from_value(after).expect("an object");
        prop_assert_eq!(from_value::<Object>(result.clone()).ok(), Some(wanted), "{}", result);
        prop_assert_eq!(&result["unknown"], 1);
    }
}

#[test]
fn removal_from_a_reordered_list_removes_the_right_item() {
    let object: Object = from_value(json!({"set": ["b", "a"]})).expect("an object");
    let before = serde_json::to_value(&object).expect("JSON");
    let mut changed = object;
    changed.set.remove("a");
    let patch = crate::admission::difference(&raw(&json!({"set": ["b", "a"]})), &before, &changed);
    let patch = serde_json::to_value(patch.expect("a patch")).expect("JSON");
    assert_eq!(
        applied(&json!({"set": ["b", "a"]}), &patch),
        json!({"set": ["b"]})
    );
}

#[test]
fn items_without_a_name_keep_their_unknown_fields() {
    for (before, after) in [
        // A port is removed, and another one changed.
        (
            json!([{"containerPort": 1, "protocol": "TCP"}, {"containerPort": 2}, {"containerPort": 3}]),
            json!([{"containerPort": 2, "hostPort": 5}, {"containerPort": 3}]),
        ),
        (
            json!([{"mountPath": "/a"}, {"mountPath": "/b"}]),
            json!([{"mountPath": "/b", "readOnly": true}]),
        ),
        // There is no field that all have.
        (
            json!([{"configMapRef": {"name": "a"}}, {"secretRef": {"name": "b"}}, {"prefix": "x"}]),
            json!([{"secretRef": {"name": "b"}, "prefix": "y"}, {"prefix": "x"}]),
        ),
    ] {
        let mut sent = before.clone();
        for item in sent.as_array_mut().into_iter().flatten() {
            item["unknown"] = 1.into();
        }
        let patch = between(&json!({"l": sent}), &json!({"l": before}), &json!({"l": after}));
        let result = applied(&json!({"l": sent}), &patch);
        for item in result["l"].as_array().expect("a list") {
            assert_eq!(item["unknown"], 1, "{result}");
        }
        assert_eq!(
            result["l"].as_array().map(Vec::len),
            after.as_array().map(Vec::len)
        );
    }
}

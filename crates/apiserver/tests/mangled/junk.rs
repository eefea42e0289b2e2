//! Generates invalid values and byte sequences.

use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

/// Generates values that are invalid for almost every field.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        prop::sample::select(vec![
            json!(null),
            json!(true),
            json!(0),
            json!(-1),
            json!(1.5),
            json!(i64::MIN),
            json!(i64::MAX),
            json!(u64::MAX),
            json!(1e300),
            json!(-1e-300),
            json!(""),
            json!("\u{0}"),
            json!("a"),
            json!("A_b"),
            json!("-"),
            json!("ü€😀"),
            json!("1e1000000000n"),
            json!("99999999999999999999Ei"),
            json!("0.0000000000000000001"),
            json!("9999-12-31T23:59:59Z"),
            json!("0000-00-00T00:00:00Z"),
            json!("2024-02-30T00:00:00.999999999+99:99"),
            json!("x".repeat(300)),
            json!([]),
            json!({}),
            json!([null]),
            json!([[], {}]),
            json!({"": ""}),
            json!({"a": {"b": {"c": null}}}),
            json!({"$patch": "delete"}),
            json!([{"$patch": "replace"}]),
            json!({"$retainKeys": ["a"]}),
            json!({"$setElementOrder/containers": [{"name": "main"}, 1, null]}),
            json!({"$deleteFromPrimitiveList/finalizers": ["a", 1]}),
            json!([{"name": "a"}, {"name": "a"}]),
            json!({"matchLabels": {"a": 1}, "matchExpressions": [{"operator": "In"}]}),
        ]),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Generates names of fields that the server reads, and some that it does not.
pub(crate) fn key() -> impl Strategy<Value = String> {
    let known = [
        "apiVersion",
        "kind",
        "metadata",
        "name",
        "namespace",
        "generateName",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "resourceVersion",
        "uid",
        "generation",
        "deletionTimestamp",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "spec",
        "status",
        "data",
        "binaryData",
        "stringData",
        "replicas",
        "selector",
        "matchLabels",
        "matchExpressions",
        "template",
        "containers",
        "ports",
        "env",
        "image",
        "resources",
        "requests",
        "limits",
        "volumes",
        "strategy",
        "rollingUpdate",
        "maxSurge",
        "maxUnavailable",
        "clusterIP",
        "clusterIPs",
        "type",
        "conditions",
        "schedule",
        "group",
        "versions",
        "names",
        "scope",
        "schema",
        "openAPIV3Schema",
        "properties",
        "subresources",
        "scale",
        "additionalPrinterColumns",
        "jsonPath",
        "items",
        "preconditions",
        "gracePeriodSeconds",
        "propagationPolicy",
        "dryRun",
        "orphanDependents",
        "target",
        "op",
        "path",
        "value",
        "from",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "default",
        "pattern",
        "conversion",
        "selectableFields",
        "minAvailable",
        "priority",
        "priorityClassName",
        "terminationGracePeriodSeconds",
    ];
    prop_oneof![
        8 => prop::sample::select(known.to_vec()).prop_map(str::to_owned),
        1 => ".{0,8}",
    ]
}

/// A change to a JSON tree.
#[derive(Clone, Debug)]
pub(crate) enum Mutation {
    Replace(Index, Value),
    Remove(Index),
    Add(Index, String, Value),
}

pub(crate) fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        3 => (any::<Index>(), value()).prop_map(|(place, value)| Mutation::Replace(place, value)),
        1 => any::<Index>().prop_map(Mutation::Remove),
        2 => (any::<Index>(), key(), value()).prop_map(|(place, key, value)| Mutation::Add(place, key, value)),
    ]
}

impl Mutation {
    pub(crate) fn apply(&self, tree: &mut Value) {
        let count = count(tree);
        match self {
            Self::Replace(place, value) => {
                *node(tree, &mut place.index(count)).expect("counted") = value.clone();
            }
            Self::Remove(place) => {
                let node = node(tree, &mut place.index(count)).expect("counted");
                match node {
                    Value::Object(fields) => {
                        let first = fields.keys().next().cloned();
                        first.map(|key| fields.remove(&key));
                    }
                    Value::Array(items) => {
                        items.pop();
                    }
                    _ => *node = Value::Null,
                }
            }
            Self::Add(place, key, value) => {
                let node = node(tree, &mut place.index(count)).expect("counted");
                match node {
                    Value::Object(fields) => {
                        fields.insert(key.clone(), value.clone());
                    }
                    Value::Array(items) => items.push(value.clone()),
                    _ => *node = json!({key.as_str(): value}),
                }
            }
        }
    }
}

fn count(tree: &Value) -> usize {
    1 + match tree {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum::<usize>(),
        _ => 0,
    }
}

/// Returns the node at an index in depth-first order.
fn node<'a>(tree: &'a mut Value, place: &mut usize) -> Option<&'a mut Value> {
    if *place == 0 {
        return Some(tree);
    }
    *place -= 1;
    match tree {
        Value::Array(items) => items.iter_mut().find_map(|item| node(item, place)),
        Value::Object(fields) => fields.values_mut().find_map(|field| node(field, place)),
        _ => None,
    }
}

/// A change to a byte sequence.
#[derive(Clone, Debug)]
pub(crate) enum ByteMutation {
    Cut(Index),
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Double(Index),
}

pub(crate) fn byte_mutation() -> impl Strategy<Value = ByteMutation> {
    let splinters: Vec<Vec<u8>> = [
        "\0",
        "\u{feff}",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\",
        ",",
        ":",
        "null",
        "1e999",
        "-",
        "\\u0000",
        "\\ud800",
        "&a ",
        "*a ",
        "<<: ",
        "---\n",
        "!!binary ",
        "%",
        "\n\t",
        "NaN",
        "0x10",
        "99999999999999999999999999",
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect();
    prop_oneof![
        2 => any::<Index>().prop_map(ByteMutation::Cut),
        2 => (any::<Index>(), any::<u8>()).prop_map(|(place, byte)| ByteMutation::Set(place, byte)),
        3 => (any::<Index>(), prop::sample::select(splinters)).prop_map(|(place, bytes)| ByteMutation::Insert(place, bytes)),
        1 => (any::<Index>(), prop::collection::vec(any::<u8>(), 1..9)).prop_map(|(place, bytes)| ByteMutation::Insert(place, bytes)),
        1 => any::<Index>().prop_map(ByteMutation::Double),
    ]
}

impl ByteMutation {
    pub(crate) fn apply(&self, bytes: &mut Vec<u8>) {
        let places = bytes.len() + 1;
        match self {
            Self::Cut(place) => bytes.truncate(place.index(places)),
            Self::Set(place, byte) => {
                if let Some(target) = bytes.get_mut(place.index(places)) {
                    *target = *byte;
                }
            }
            Self::Insert(place, more) => {
                let place = place.index(places);
                bytes.splice(place..place, more.iter().copied());
            }
            Self::Double(place) => {
                let tail = bytes[place.index(places)..].to_vec();
                bytes.extend(tail);
            }
        }
    }
}

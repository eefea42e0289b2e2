//! Compares desired with actual objects, as JSON.

use serde_json::{Map, Value};

/// Whether `actual` has every field of `wanted`. Absent, null, an empty map and an empty list are equal: the server drops
/// most of them. Lists must have the same length, because the comparison does not know which lists are sets.
///
/// A `false` may be wrong (the server normalized a quantity, another manager added a list entry): then an apply decides,
/// and its result is remembered. A `true` is always right.
pub(super) fn covers(actual: &Value, wanted: &Value) -> bool {
    match (actual, wanted) {
        (_, Value::Null) => true,
        (Value::Object(actual), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, wanted)| covers(actual.get(name).unwrap_or(&Value::Null), wanted)),
        (Value::Array(actual), Value::Array(wanted)) => {
            actual.len() == wanted.len()
                && actual
                    .iter()
                    .zip(wanted)
                    .all(|(actual, wanted)| covers(actual, wanted))
        }
        // An absent map covers one without values, an absent list an empty one.
        (Value::Null, Value::Object(wanted)) => wanted.values().all(|wanted| covers(&Value::Null, wanted)),
        (Value::Null, Value::Array(wanted)) => wanted.is_empty(),
        (actual, wanted) => actual == wanted,
    }
}

/// The object without its status, without metadata that the server sets, and without its type, which items of lists lack.
pub(super) fn content(mut object: Value) -> Value {
    if let Some(object) = object.as_object_mut() {
        for name in ["status", "apiVersion", "kind"] {
            object.remove(name);
        }
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            *metadata = std::mem::take(metadata)
                .into_iter()
                .filter(|(name, _)| CLIENT_METADATA.contains(&name.as_str()))
                .collect::<Map<_, _>>();
        }
    }
    object
}

/// Metadata fields that clients set.
const CLIENT_METADATA: [&str; 4] = ["labels", "annotations", "ownerReferences", "finalizers"];

/// Hash of a value, stable across processes: FNV-1a over its JSON text. It distinguishes versions of one object and is not
/// cryptographic.
pub(super) fn fingerprint(value: &Value) -> u64 {
    let text = value.to_string();
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Hash of a desired object for its annotation, which is readable for users who may not read a Secret: it has the names of a
/// Secret's keys, and not their values. A short value would be found by trying all of them.
pub(super) fn annotated_fingerprint(mut wanted: Value) -> u64 {
    if wanted["apiVersion"] == "v1" && wanted["kind"] == "Secret" {
        for part in ["data", "stringData"] {
            let values = wanted.get_mut(part).and_then(Value::as_object_mut);
            for value in values.into_iter().flat_map(Map::values_mut) {
                if !value.is_null() {
                    *value = Value::Bool(true);
                }
            }
        }
    }
    fingerprint(&wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn annotated_fingerprint_has_no_values_of_secrets() {
        let object = |kind: &str, part: &str, value: Value| {
            annotated_fingerprint(json!({"apiVersion": "v1", "kind": kind, part: {"pin": value}}))
        };
        for part in ["data", "stringData"] {
            let secret = |value: Value| object("Secret", part, value);
            assert_eq!(secret("4711".into()), secret("0000".into()));
            assert_ne!(secret("4711".into()), secret(Value::Null));
        }
        let map = |value: &str| object("ConfigMap", "data", value.into());
        assert_ne!(map("4711"), map("0000"));
        let secret = |key: &str| {
            annotated_fingerprint(json!({"apiVersion": "v1", "kind": "Secret", "data": {key: "eA=="}}))
        };
        assert_ne!(secret("pin"), secret("password"));
    }

    #[test]
    fn covers_ignores_extra_fields_but_not_different_values() {
        let cases = [
            (json!({"a": 1, "b": 2}), json!({"a": 1}), true),
            (json!({"a": 1}), json!({"a": 1, "b": null}), true),
            (json!({"a": 1}), json!({"a": 1, "b": 2}), false),
            (json!({"a": {"x": 1, "y": 2}}), json!({"a": {"x": 1}}), true),
            (json!({"a": [1, 2]}), json!({"a": [1]}), false),
            (
                json!({"a": [{"n": "x", "d": 1}]}),
                json!({"a": [{"n": "x"}]}),
                true,
            ),
            (json!({"a": [{"n": "x"}]}), json!({"a": [{"n": "y"}]}), false),
            (json!({}), json!({"a": {}}), true),
            (json!({}), json!({"a": {"b": {}}}), true),
            (json!({}), json!({"a": []}), true),
            (json!({"a": null}), json!({"a": {"b": []}}), true),
            (json!({"a": []}), json!({}), true),
            (json!({"a": [1]}), json!({"a": []}), false),
            (json!({}), json!({"a": [{}]}), false),
            (json!({}), json!({"a": ""}), false),
            (json!({"a": "1"}), json!({"a": 1}), false),
        ];
        for (actual, wanted, expected) in cases {
            assert_eq!(covers(&actual, &wanted), expected, "{actual} covers {wanted}");
        }
    }

    #[test]
    fn content_drops_type_status_and_server_metadata() {
        let object = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": "a", "uid": "u", "resourceVersion": "1", "labels": { "a": "b" } },
            "spec": { "replicas": 1 },
            "status": { "replicas": 0 },
        });
        let expected = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "replicas": 1 } });
        assert_eq!(content(object), expected);
    }
}

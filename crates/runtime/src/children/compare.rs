//! Whether what should be there is there, from JSON alone.

use serde_json::{Map, Value};

/// Whether `there` has everything that `wanted` says. Null and absent are the same; lists must be equally long, since
/// nothing here knows which of them are sets.
///
/// A `false` may be wrong (the server writes a quantity differently, a list has grown by somebody else's entry): then
/// an apply tells, and its answer is remembered. A `true` is right as far as `wanted` goes.
pub(super) fn covers(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (_, Value::Null) => true,
        (Value::Object(there), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, wanted)| covers(there.get(name).unwrap_or(&Value::Null), wanted)),
        (Value::Array(there), Value::Array(wanted)) => {
            there.len() == wanted.len()
                && there
                    .iter()
                    .zip(wanted)
                    .all(|(there, wanted)| covers(there, wanted))
        }
        // What is absent is covered by what says nothing.
        (Value::Null, Value::Object(wanted)) => wanted.values().all(|wanted| covers(&Value::Null, wanted)),
        (there, wanted) => there == wanted,
    }
}

/// The object as its author sees it: without status, and without the metadata that the server keeps.
pub(super) fn content(mut object: Value) -> Value {
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            *metadata = std::mem::take(metadata)
                .into_iter()
                .filter(|(name, _)| AUTHORED.contains(&name.as_str()))
                .collect::<Map<_, _>>();
        }
    }
    object
}

/// The metadata that an author may set.
const AUTHORED: [&str; 4] = ["labels", "annotations", "ownerReferences", "finalizers"];

/// A number for a value, the same in every process: FNV-1a over its text. It tells versions of one object apart, and
/// guards nothing.
pub(super) fn fingerprint(value: &Value) -> u64 {
    let text = value.to_string();
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_there_may_say_more_but_not_otherwise() {
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
            (json!({}), json!({"a": []}), false),
            (json!({"a": "1"}), json!({"a": 1}), false),
        ];
        for (there, wanted, expected) in cases {
            assert_eq!(covers(&there, &wanted), expected, "{there} covers {wanted}");
        }
    }

    #[test]
    fn content_is_what_an_author_may_set() {
        let object = json!({
            "metadata": { "name": "a", "uid": "u", "resourceVersion": "1", "labels": { "a": "b" } },
            "spec": { "replicas": 1 },
            "status": { "replicas": 0 },
        });
        let expected = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "replicas": 1 } });
        assert_eq!(content(object), expected);
    }
}

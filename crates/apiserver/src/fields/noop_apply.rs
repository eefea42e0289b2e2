//! Detects a no-op apply without merging.
//!
//! Controllers apply the same configuration again and again, and nearly always nothing has changed. Then the object
//! contains the configuration, and the applier owns exactly its fields: nothing is merged, and no managed fields are
//! parsed.

use serde_json::{Map, Value};

use super::{
    Updater, Versions, extract,
    shape::{Granularity, Shape},
};

impl<V: Versions> Updater<'_, V> {
    /// Whether an apply certainly changes neither the object nor its managed fields. `false` means that it may.
    pub(crate) fn is_noop_apply(&self, live: &Value, config: &Value, managed_fields: &str) -> bool {
        let shape = self.shape();
        if managed_fields.is_empty() || !contains(shape, live, config) {
            return false;
        }
        let Ok(mut fields) = extract(shape, config) else {
            return false;
        };
        fields.subtract_recursive(&self.versions.reset_fields(self.version));
        super::updater::remove_unowned(&mut fields);
        let mut wanted = Vec::with_capacity(managed_fields.len());
        fields.write(&mut wanted);
        self.owns_exactly(managed_fields, &wanted)
    }

    /// Whether this applier owns exactly these fields, given as `fieldsV1`.
    fn owns_exactly(&self, managed_fields: &str, fields: &[u8]) -> bool {
        let text = |text: &str| Value::from(text).to_string();
        let head = format!(
            "{{\"manager\":{},\"operation\":\"Apply\",\"apiVersion\":{},",
            text(self.manager_name),
            text(self.version)
        );
        let tail = if self.subresource.is_empty() {
            "}".to_owned()
        } else {
            format!(",\"subresource\":{}}}", text(self.subresource))
        };
        // Quotes inside strings are escaped, so every match is the beginning of an entry.
        managed_fields.match_indices(&head).any(|(offset, _)| {
            let rest = &managed_fields[offset + head.len()..];
            let rest = match rest.strip_prefix("\"time\":\"") {
                Some(timed) => timed.split_once("\",").map_or("", |(_, rest)| rest),
                None => rest,
            };
            let rest = rest.strip_prefix("\"fieldsType\":\"FieldsV1\",\"fieldsV1\":");
            rest.and_then(|rest| rest.as_bytes().strip_prefix(fields))
                .is_some_and(|rest| rest.starts_with(tail.as_bytes()))
        })
    }
}

/// Whether an object contains a configuration, with list items in the same order.
fn contains(shape: Shape<'_>, live: &Value, config: &Value) -> bool {
    match (shape.granularity(config), live, config) {
        (Granularity::Map, Value::Object(live), Value::Object(config)) => {
            contains_fields(shape, live, config)
        }
        (Granularity::List(keys), Value::Array(live), Value::Array(config)) => {
            let inner = shape.items();
            let mut rest = live.iter();
            let mut last = None;
            config.iter().all(|item| {
                let Ok(wanted) = shape.identity(keys, item) else {
                    return false;
                };
                let is_new = last.as_ref() != Some(&wanted);
                let found = rest.find(|item| shape.identity(keys, item).is_ok_and(|known| known == wanted));
                last = Some(wanted);
                is_new && found.is_some_and(|found| contains(inner, found, item))
            })
        }
        (Granularity::Leaf(_), live, config) => live == config && !config.is_null(),
        _ => false,
    }
}

fn contains_fields(shape: Shape<'_>, live: &Map<String, Value>, config: &Map<String, Value>) -> bool {
    if config.is_empty() {
        return live.is_empty();
    }
    config.iter().all(|(name, value)| {
        let (Some(field), Some(known)) = (shape.field(name), live.get(name)) else {
            return false;
        };
        contains(field.shape, known, value)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::property_tests::{TestVersions, VERSION};

    #[test]
    fn apply_is_noop_only_if_object_contains_and_manager_owns_exactly_the_configuration() {
        let versions = TestVersions::of(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "a": {"type": "string"}, "b": {"type": "string"},
                "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
            }}}}),
        );
        let config =
            |spec| json!({"apiVersion": VERSION, "kind": "X", "metadata": {"name": "x"}, "spec": spec});
        let applied = config(json!({"a": "1", "l": [{"k": "x", "v": 1}, {"k": "y"}]}));
        let state = versions.apply(&TestVersions::empty_state(), "one", &applied);
        let state = versions.apply(
            &state,
            "two",
            &config(json!({"b": "2", "l": [{"k": "w"}, {"k": "x"}]})),
        );
        let is_repeated = |name, spec| {
            versions
                .updater(name)
                .is_noop_apply(&state.object, &config(spec), &state.managed_fields)
        };
        assert!(is_repeated(
            "one",
            json!({"a": "1", "l": [{"k": "x", "v": 1}, {"k": "y"}]})
        ));
        for (name, spec) in [
            ("other", json!({"a": "1", "l": [{"k": "x", "v": 1}, {"k": "y"}]})),
            ("one", json!({"a": "2", "l": [{"k": "x", "v": 1}, {"k": "y"}]})),
            ("one", json!({"a": "1", "l": [{"k": "x", "v": 1}]})),
            ("one", json!({"a": "1", "l": [{"k": "y"}, {"k": "x", "v": 1}]})),
            (
                "one",
                json!({"a": "1", "l": [{"k": "x", "v": 1}, {"k": "y"}, {"k": "y"}]}),
            ),
            (
                "one",
                json!({"a": "1", "b": "2", "l": [{"k": "x", "v": 1}, {"k": "y"}]}),
            ),
            (
                "one",
                json!({"a": "1", "c": "2", "l": [{"k": "x", "v": 1}, {"k": "y"}]}),
            ),
            ("one", json!({"a": "1", "l": []})),
        ] {
            assert!(!is_repeated(name, spec.clone()), "{name}: {spec}");
        }
    }
}

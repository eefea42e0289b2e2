//! Snapshots of a namespace, without values that differ between runs.

use std::collections::BTreeSet;

use kube::{ResourceExt, api::ListParams};
use serde_json::Value;
use windlass_runtime::APPLIED_HASH_ANNOTATION;

use crate::{Namespaced, TestEnvironment};

/// Fields that the server generates, and the applied hash, which depends on the owner's UID.
const VOLATILE_FIELDS: [&str; 4] = [
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    APPLIED_HASH_ANNOTATION,
];

/// The objects of a case's namespace, normalized so that two runs can be compared: sorted by name, UIDs replaced by kind and
/// name, without resource versions and times. Generations stay, since they count changes.
#[derive(Default)]
pub struct Snapshot {
    objects: Vec<Value>,
    /// Strings to replace, with their replacements.
    replacements: Vec<(String, String)>,
}

impl Snapshot {
    /// Creates an empty snapshot.
    pub fn new(env: &TestEnvironment) -> Self {
        let namespace = env.case().namespace().to_owned();
        Self {
            objects: Vec::new(),
            replacements: vec![(namespace, "<namespace>".to_owned())],
        }
    }

    /// Adds the objects of a kind.
    pub async fn with<K: Namespaced>(mut self, env: &TestEnvironment) -> anyhow::Result<Self> {
        let mut all = env.case().api::<K>().list(&ListParams::default()).await?.items;
        all.sort_by_key(ResourceExt::name_any);
        for object in all {
            let kind = K::kind(&()).into_owned();
            let name = object.name_any();
            let uid = object.uid().unwrap_or_default();
            self.replacements.push((uid, format!("<{kind} {name}>")));
            let mut object = serde_json::to_value(object)?;
            // List items have no kind.
            object["kind"] = kind.into();
            self.objects.push(object);
        }
        Ok(self)
    }

    /// Returns the normalized objects.
    pub fn finish(mut self) -> Value {
        for object in &mut self.objects {
            normalize(object, &self.replacements);
        }
        Value::Array(self.objects)
    }
}

fn normalize(value: &mut Value, names: &[(String, String)]) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !VOLATILE_FIELDS.contains(&name.as_str()));
            fields.values_mut().for_each(|value| normalize(value, names));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| normalize(value, names)),
        Value::String(text) if text.parse::<k8s_openapi::jiff::Timestamp>().is_ok() => {
            "<time>".clone_into(text);
        }
        Value::String(text) => {
            for (name, plain) in names.iter().filter(|(name, _)| !name.is_empty()) {
                if text.contains(name.as_str()) {
                    *text = text.replace(name.as_str(), plain);
                }
            }
        }
        _ => {}
    }
}

/// Returns the differences between two values, one line each: path and both values.
pub(crate) fn differences(one: &Value, other: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(one, other, "", &mut found);
    found
}

fn compare(one: &Value, other: &Value, path: &str, found: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(some), Value::Object(others)) => {
            let names: BTreeSet<_> = some.keys().chain(others.keys()).collect();
            for name in names {
                let (one, other) = (&one[name], &other[name]);
                compare(one, other, &format!("{path}.{name}"), found);
            }
        }
        (Value::Array(some), Value::Array(others)) if some.len() == others.len() => {
            for (index, (one, other)) in some.iter().zip(others).enumerate() {
                compare(one, other, &format!("{path}[{index}]"), found);
            }
        }
        _ if one == other => {}
        _ => found.push(format!("{path}: {one} and {other}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_have_paths() {
        let one = json!([{ "name": "a", "spec": { "size": 1, "same": [1, 2] } }]);
        let other = json!([{ "name": "a", "spec": { "size": 2, "same": [1, 2], "more": true } }]);
        let expected = ["[0].spec.more: null and true", "[0].spec.size: 1 and 2"];
        assert_eq!(differences(&one, &other), expected);
        assert!(differences(&one, &one).is_empty());
    }

    #[test]
    fn normalize_removes_values_that_differ_between_runs() {
        let uid = "5c6b7a0e-0d3c-4b44-9f6e-2f8a0f6b1c11";
        let mut object = json!({
            "metadata": {
                "name": "web", "namespace": "suite-foo-x7", "uid": uid, "generation": 3, "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": { APPLIED_HASH_ANNOTATION: "1234", "note": "kept" },
            },
            "status": { "since": "2026-01-01T00:00:00Z" },
        });
        let names = [("suite-foo-x7", "<namespace>"), (uid, "<Foo web>")];
        let names = names.map(|(name, plain)| (name.to_owned(), plain.to_owned()));
        normalize(&mut object, &names);
        let metadata = json!({
            "name": "web", "namespace": "<namespace>", "uid": "<Foo web>", "generation": 3,
            "annotations": { "note": "kept" },
        });
        assert_eq!(
            object,
            json!({ "metadata": metadata, "status": { "since": "<time>" } })
        );
    }
}

//! What is there, without what differs from run to run.

use std::collections::BTreeSet;

use kube::{ResourceExt, api::ListParams};
use serde_json::Value;
use windlass_runtime::APPLIED;

use crate::{Namespaced, World};

/// What a server makes up, or counts; and a fingerprint in which an owner's uid is.
const PASSING: [&str; 4] = ["resourceVersion", "creationTimestamp", "managedFields", APPLIED];

/// The objects of a case's namespace as two runs can be compared: by name, with uids told by whose they are, and without
/// versions and times. Generations stay: they tell how often something was changed.
#[derive(Default)]
pub struct Snapshot {
    objects: Vec<Value>,
    /// What stands for what.
    names: Vec<(String, String)>,
}

impl Snapshot {
    /// Nothing yet.
    pub fn new(world: &World) -> Self {
        let namespace = world.case().namespace().to_owned();
        Self {
            objects: Vec::new(),
            names: vec![(namespace, "<namespace>".to_owned())],
        }
    }

    /// And the objects of this kind.
    pub async fn with<K: Namespaced>(mut self, world: &World) -> anyhow::Result<Self> {
        let mut all = world.case().api::<K>().list(&ListParams::default()).await?.items;
        all.sort_by_key(ResourceExt::name_any);
        for object in all {
            let kind = K::kind(&()).into_owned();
            let name = object.name_any();
            let uid = object.uid().unwrap_or_default();
            self.names.push((uid, format!("<{kind} {name}>")));
            let mut object = serde_json::to_value(object)?;
            // Lists leave it out.
            object["kind"] = kind.into();
            self.objects.push(object);
        }
        Ok(self)
    }

    /// All of it.
    pub fn take(mut self) -> Value {
        for object in &mut self.objects {
            plain(object, &self.names);
        }
        Value::Array(self.objects)
    }
}

fn plain(value: &mut Value, names: &[(String, String)]) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !PASSING.contains(&name.as_str()));
            fields.values_mut().for_each(|value| plain(value, names));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| plain(value, names)),
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

/// Where two values differ, one line each: the way there, and both sides.
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
    fn differences_are_named_by_their_place() {
        let one = json!([{ "name": "a", "spec": { "size": 1, "same": [1, 2] } }]);
        let other = json!([{ "name": "a", "spec": { "size": 2, "same": [1, 2], "more": true } }]);
        let expected = ["[0].spec.more: null and true", "[0].spec.size: 1 and 2"];
        assert_eq!(differences(&one, &other), expected);
        assert!(differences(&one, &one).is_empty());
    }

    #[test]
    fn what_differs_from_run_to_run_is_gone() {
        let uid = "5c6b7a0e-0d3c-4b44-9f6e-2f8a0f6b1c11";
        let mut object = json!({
            "metadata": {
                "name": "web", "namespace": "suite-foo-x7", "uid": uid, "generation": 3, "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": { APPLIED: "1234", "note": "kept" },
            },
            "status": { "since": "2026-01-01T00:00:00Z" },
        });
        let names = [("suite-foo-x7", "<namespace>"), (uid, "<Foo web>")];
        let names = names.map(|(name, plain)| (name.to_owned(), plain.to_owned()));
        plain(&mut object, &names);
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

//! What changed from one state of an object to the next.

use std::{collections::BTreeMap, fmt::Write as _};

use windlass::serde_json::{Map, Value};

use crate::{notice::FieldChange, redact::Masked};

/// What changes with every write, and says nothing that other fields do not say.
const COUNTERS: [&str; 3] = [
    "metadata.managedFields",
    "metadata.resourceVersion",
    "metadata.generation",
];

/// Fields, wherever they are, that say only that somebody is alive.
const HEARTBEATS: [&str; 4] = [
    "lastHeartbeatTime",
    "lastProbeTime",
    "lastUpdateTime",
    "renewTime",
];

/// By what the items of a list are told apart, if all have it and no two the same.
const NAMES: [&str; 4] = ["name", "type", "key", "uid"];

/// Every field that differs, by path. Items of lists that have names are compared by them, so that one that is put in front
/// is one change. Versions and, unless they are wanted, heartbeats do not count.
pub(crate) fn diff(old: &Masked, new: &Masked, heartbeats: bool) -> Vec<FieldChange> {
    let mut comparison = Comparison {
        heartbeats,
        path: String::new(),
        changes: Vec::new(),
    };
    comparison.values(old.as_value(), new.as_value());
    comparison.changes
}

struct Comparison {
    heartbeats: bool,
    /// Where we are.
    path: String,
    changes: Vec<FieldChange>,
}

impl Comparison {
    fn values(&mut self, old: &Value, new: &Value) {
        match (old, new) {
            (Value::Object(old), Value::Object(new)) => self.fields(old, new),
            (Value::Array(old), Value::Array(new)) => self.items(old, new),
            (old, new) => self.leaf(Some(old), Some(new)),
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        if old == new || COUNTERS.contains(&self.path.as_str()) {
            return;
        }
        self.changes.push(FieldChange {
            path: self.path.clone(),
            old: old.cloned(),
            new: new.cloned(),
        });
    }

    fn fields(&mut self, old: &Map<String, Value>, new: &Map<String, Value>) {
        let mut names: Vec<_> = old.keys().chain(new.keys()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            if !self.heartbeats && self.is_heartbeat(name) {
                continue;
            }
            self.within(&step(name), |inner| inner.either(old.get(name), new.get(name)));
        }
    }

    /// Whether the field of this name, where we are, says only that somebody is alive.
    fn is_heartbeat(&self, name: &str) -> bool {
        match name {
            "renewTime" => self.path == "spec",
            name => HEARTBEATS.contains(&name) && self.path.contains("conditions["),
        }
    }

    fn items(&mut self, old: &[Value], new: &[Value]) {
        let Some((by, old_named, new_named)) = named(old, new) else {
            for place in 0..old.len().max(new.len()) {
                self.within(&format!("[{place}]"), |inner| {
                    inner.either(old.get(place), new.get(place));
                });
            }
            return;
        };
        let mut names: Vec<_> = old_named.keys().chain(new_named.keys()).copied().collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let (old, new) = (old_named.get(name).copied(), new_named.get(name).copied());
            self.within(&format!("[{by}={name}]"), |inner| inner.either(old, new));
        }
    }

    fn either(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (Some(old), Some(new)) => self.values(old, new),
            (old, new) => self.leaf(old, new),
        }
    }

    fn within(&mut self, step: &str, compare: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        // The first one has nothing before it.
        self.path.push_str(if length == 0 {
            step.trim_start_matches('.')
        } else {
            step
        });
        compare(self);
        self.path.truncate(length);
    }
}

/// One field further: `.spec`, or `["app.kubernetes.io/name"]`.
fn step(name: &str) -> String {
    let mut step = String::new();
    let is_plain = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_plain {
        write!(step, ".{name}").expect("text");
    } else {
        write!(step, "[{name:?}]").expect("text");
    }
    step
}

type Named<'a> = BTreeMap<&'a str, &'a Value>;

/// Both lists by the name of their items, if there is something that names all of them.
fn named<'a>(old: &'a [Value], new: &'a [Value]) -> Option<(&'static str, Named<'a>, Named<'a>)> {
    let by = |by: &str, items: &'a [Value]| {
        let pairs = items.iter().map(|item| Some((item.get(by)?.as_str()?, item)));
        let named: Named<'_> = pairs.collect::<Option<_>>()?;
        (named.len() == items.len()).then_some(named)
    };
    NAMES
        .iter()
        .find_map(|name| Some((*name, by(name, old)?, by(name, new)?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use windlass::serde_json::json;

    use super::*;
    use crate::redact::Redactor;

    fn compared(old: &Value, new: &Value, heartbeats: bool) -> Vec<String> {
        let redactor = Redactor::default();
        let (old, new) = (redactor.mask(old.clone()), redactor.mask(new.clone()));
        let show = |value: Option<Value>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        diff(&old, &new, heartbeats)
            .into_iter()
            .map(|change| format!("{}: {} → {}", change.path, show(change.old), show(change.new)))
            .collect()
    }

    #[test]
    fn each_difference_has_its_path() {
        let old = json!({ "spec": { "replicas": 1, "paused": true }, "metadata": { "labels": { "a.b/c": "x", "app": "web" } } });
        let new = json!({ "spec": { "replicas": 2, "image": "i" }, "metadata": { "labels": { "a.b/c": "y", "app": "web" } } });
        assert_eq!(
            compared(&old, &new, false),
            [
                "metadata.labels[\"a.b/c\"]: \"x\" → \"y\"",
                "spec.image: - → \"i\"",
                "spec.paused: true → -",
                "spec.replicas: 1 → 2",
            ]
        );
    }

    #[test]
    fn items_with_names_are_compared_by_them_and_others_by_their_place() {
        let old = json!({ "containers": [{ "name": "a", "image": "1" }], "args": ["x", "y"] });
        let new = json!({ "containers": [{ "name": "b", "image": "9" }, { "name": "a", "image": "2" }], "args": ["x", "z"] });
        assert_eq!(
            compared(&old, &new, false),
            [
                "args[1]: \"y\" → \"z\"",
                "containers[name=a].image: \"1\" → \"2\"",
                "containers[name=b]: - → {\"image\":\"9\",\"name\":\"b\"}",
            ]
        );
        let twice = json!([{ "name": "a" }, { "name": "a", "b": 1 }]);
        let once = json!([{ "name": "a" }]);
        assert_eq!(
            compared(&twice, &once, false),
            ["[1]: {\"b\":1,\"name\":\"a\"} → -"]
        );
    }

    #[test]
    fn versions_never_count_and_heartbeats_only_if_they_are_wanted() {
        let old = json!({
            "metadata": { "resourceVersion": "1", "generation": 1, "managedFields": [] },
            "status": { "conditions": [{ "type": "Ready", "lastHeartbeatTime": "1", "lastTransitionTime": "1" }] },
            "spec": { "renewTime": "1", "lastUpdateTime": "1" },
        });
        let new = json!({
            "metadata": { "resourceVersion": "2", "generation": 2, "managedFields": [1] },
            "status": { "conditions": [{ "type": "Ready", "lastHeartbeatTime": "2", "lastTransitionTime": "2" }] },
            "spec": { "renewTime": "2", "lastUpdateTime": "2" },
        });
        let transition = "status.conditions[type=Ready].lastTransitionTime: \"1\" → \"2\"";
        let own = "spec.lastUpdateTime: \"1\" → \"2\"";
        assert_eq!(compared(&old, &new, false), [own, transition]);
        assert_eq!(
            compared(&old, &new, true),
            [
                own,
                "spec.renewTime: \"1\" → \"2\"",
                "status.conditions[type=Ready].lastHeartbeatTime: \"1\" → \"2\"",
                transition,
            ]
        );
    }

    fn json_values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..5_i64).prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("(name|type|[a-c./]{0,3})", inner, 0..4)
                    .prop_map(Value::from_iter),
            ]
        })
    }

    proptest! {
        /// Something is told if and only if something differs; no path twice.
        #[test]
        fn nothing_is_missed_and_nothing_made_up(old in json_values(), new in json_values()) {
            let changes = compared(&old, &new, true);
            let reordered = !changes.is_empty() || {
                // Named items in another order are the same items.
                fn sorted(value: &Value) -> Value {
                    match value {
                        Value::Array(items) => {
                            let mut items: Vec<_> = items.iter().map(sorted).collect();
                            items.sort_by_key(Value::to_string);
                            Value::Array(items)
                        }
                        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), sorted(value))).collect(),
                        value => value.clone(),
                    }
                }
                sorted(&old) == sorted(&new)
            };
            prop_assert!(reordered);
            prop_assert!(changes.is_empty() || old != new);
            let mut paths: Vec<_> = changes.iter().map(|change| change.split(": ").next()).collect();
            paths.sort_unstable();
            paths.dedup();
            prop_assert_eq!(paths.len(), changes.len());
        }
    }
}

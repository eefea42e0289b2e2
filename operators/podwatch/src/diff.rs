//! Compares two states of an object.

use std::{collections::BTreeMap, fmt::Write as _};

use windlass::serde_json::{Map, Value};

use crate::{notice::FieldChange, redact::Masked};

/// Fields that change with every write and carry no information of their own.
const VERSION_FIELDS: [&str; 3] = [
    "metadata.managedFields",
    "metadata.resourceVersion",
    "metadata.generation",
];

/// Fields that only prove that their writer is alive; see [`Comparison::is_heartbeat`] for where they count.
const HEARTBEAT_FIELDS: [&str; 4] = [
    "lastHeartbeatTime",
    "lastProbeTime",
    "lastUpdateTime",
    "renewTime",
];

/// Fields that identify the items of a list, if every item has the field and its values are unique.
const ITEM_KEYS: [&str; 4] = ["name", "type", "key", "uid"];

/// Returns every field that differs, by path. List items with an identifying field are matched by it, so that prepending an item
/// is one change. Ignores versions, and heartbeats unless `heartbeats` is set.
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
    /// The path of the values being compared.
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
        if old == new || VERSION_FIELDS.contains(&self.path.as_str()) {
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
            self.at_segment(&path_segment(name), |inner| {
                inner.optional_values(old.get(name), new.get(name));
            });
        }
    }

    /// Whether the field of this name at the current path is a heartbeat.
    fn is_heartbeat(&self, name: &str) -> bool {
        match name {
            "renewTime" => self.path == "spec",
            name => HEARTBEAT_FIELDS.contains(&name) && self.path.contains("conditions["),
        }
    }

    fn items(&mut self, old: &[Value], new: &[Value]) {
        let Some((by, old_named, new_named)) = items_by_key(old, new) else {
            for place in 0..old.len().max(new.len()) {
                self.at_segment(&format!("[{place}]"), |inner| {
                    inner.optional_values(old.get(place), new.get(place));
                });
            }
            return;
        };
        let mut names: Vec<_> = old_named.keys().chain(new_named.keys()).copied().collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let (old, new) = (old_named.get(name).copied(), new_named.get(name).copied());
            self.at_segment(&format!("[{by}={name}]"), |inner| inner.optional_values(old, new));
        }
    }

    fn optional_values(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (Some(old), Some(new)) => self.values(old, new),
            (old, new) => self.leaf(old, new),
        }
    }

    fn at_segment(&mut self, step: &str, compare: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        // A path starts without a dot.
        self.path.push_str(if length == 0 {
            step.trim_start_matches('.')
        } else {
            step
        });
        compare(self);
        self.path.truncate(length);
    }
}

/// The path segment of a field: `.spec`, or `["app.kubernetes.io/name"]`.
fn path_segment(name: &str) -> String {
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

type ItemsByKey<'a> = BTreeMap<&'a str, &'a Value>;

/// Both lists keyed by an identifying field, if one identifies all their items.
fn items_by_key<'a>(
    old: &'a [Value],
    new: &'a [Value],
) -> Option<(&'static str, ItemsByKey<'a>, ItemsByKey<'a>)> {
    let by = |by: &str, items: &'a [Value]| {
        let pairs = items.iter().map(|item| Some((item.get(by)?.as_str()?, item)));
        let named: ItemsByKey<'_> = pairs.collect::<Option<_>>()?;
        (named.len() == items.len()).then_some(named)
    };
    ITEM_KEYS
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
    fn diff_lists_each_change_with_its_path() {
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
    fn list_items_are_matched_by_name_or_else_by_index() {
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
    fn diff_ignores_versions_and_heartbeats_unless_requested() {
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
        /// There are changes if and only if the values differ; no path is listed twice.
        #[test]
        fn diff_is_empty_only_for_equal_values(old in json_values(), new in json_values()) {
            let changes = compared(&old, &new, true);
            let reordered = !changes.is_empty() || {
                // Reordering identified items is not a change.
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

//! The cells of table rows: what many kinds show.

use jiff::Timestamp;
use serde_json::Value;
use windlass_api::labels;

use super::age;
use crate::registry::Resource;

pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn number(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

pub(super) fn items<'a>(value: &'a Value, pointer: &str) -> impl DoubleEndedIterator<Item = &'a Value> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

pub(super) fn or_none(text: &str) -> Value {
    if text.is_empty() {
        "<none>".into()
    } else {
        text.into()
    }
}

/// The row of an object in its kind's table.
pub(crate) struct Row<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) object: &'a Value,
    pub(crate) now: Timestamp,
}

impl Row<'_> {
    pub(super) fn name(&self) -> Value {
        self.text("/metadata/name").into()
    }

    pub(super) fn text(&self, pointer: &str) -> &str {
        text(self.object, pointer)
    }

    pub(super) fn number(&self, pointer: &str) -> i64 {
        number(self.object, pointer)
    }

    pub(super) fn count(&self, pointer: &str) -> usize {
        match self.object.pointer(pointer) {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(fields)) => fields.len(),
            _ => 0,
        }
    }

    pub(super) fn age(&self) -> Value {
        age::since(self.text("/metadata/creationTimestamp"), self.now).into()
    }

    pub(super) fn ratio(&self, part: &str, whole: &str) -> Value {
        format!("{}/{}", self.number(part), self.number(whole)).into()
    }

    fn joined(&self, list: &str, field: &str) -> String {
        let names: Vec<_> = items(self.object, list).map(|item| text(item, field)).collect();
        names.join(",")
    }

    pub(super) fn containers(&self, pod_spec: &str) -> [Value; 2] {
        let list = format!("{pod_spec}/containers");
        [
            self.joined(&list, "/name").into(),
            self.joined(&list, "/image").into(),
        ]
    }

    /// The phase, or that the object is being deleted.
    pub(super) fn phase(&self) -> Value {
        if self.text("/metadata/deletionTimestamp").is_empty() {
            self.text("/status/phase").into()
        } else {
            "Terminating".into()
        }
    }

    /// A value as text, or a default if it is absent.
    pub(super) fn text_or(&self, pointer: &str, otherwise: &str) -> Value {
        match self.object.pointer(pointer) {
            None | Some(Value::Null) => otherwise.into(),
            Some(Value::String(text)) => text.as_str().into(),
            Some(other) => other.to_string().into(),
        }
    }
}

/// `a=b,c=d`, or `<none>`.
pub(super) fn labels(map: Option<&Value>) -> String {
    let pairs: Vec<_> = map
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() {
        "<none>".to_owned()
    } else {
        pairs.join(",")
    }
}

/// A label selector as text, or `<none>`.
pub(super) fn label_selector(selector: Option<&Value>) -> String {
    match selector.map(|selector| labels::Selector::from_json(selector).to_string()) {
        Some(text) if !text.is_empty() => text,
        _ => "<none>".to_owned(),
    }
}

/// The first few items, and how many more there are.
pub(super) fn join_shortened(list: &[String], most: usize) -> String {
    if list.len() > most {
        format!("{} + {} more...", list[..most].join(","), list.len() - most)
    } else {
        list.join(",")
    }
}

//! Telling that a configuration was applied before and nothing has changed since, without doing it again.
//!
//! Controllers apply what they want over and over, and nearly always it is so already. Then the configuration is a part of
//! the object, and its fields are those that its applier owns: neither has to be merged, and nobody's account has to be
//! read.

use serde_json::{Map, Value};

use super::{
    Versions, Writer, extract,
    shape::{Form, Shape},
};

impl<V: Versions> Writer<'_, V> {
    /// Whether applying a configuration would leave an object and its account as they are. `false` says nothing.
    pub(crate) fn is_repeated(&self, live: &Value, config: &Value, account: &str) -> bool {
        let shape = self.shape();
        if account.is_empty() || !holds(shape, live, config) {
            return false;
        }
        let Ok(mut fields) = extract(shape, config) else {
            return false;
        };
        fields.subtract_whole(&self.versions.reset(self.version));
        super::account::strip(&mut fields);
        let mut wanted = Vec::with_capacity(account.len());
        fields.write(&mut wanted);
        self.owns(account, &wanted)
    }

    /// Whether an account says of this applier that it owns these fields, and no others.
    fn owns(&self, account: &str, fields: &[u8]) -> bool {
        let text = |text: &str| Value::from(text).to_string();
        let head = format!(
            "{{\"manager\":{},\"operation\":\"Apply\",\"apiVersion\":{},",
            text(self.name),
            text(self.version)
        );
        let tail = if self.subresource.is_empty() {
            "}".to_owned()
        } else {
            format!(",\"subresource\":{}}}", text(self.subresource))
        };
        // Quotes inside of texts are escaped: what looks like the beginning of an entry is one.
        account.match_indices(&head).any(|(place, _)| {
            let rest = &account[place + head.len()..];
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

/// Whether an object has all that a configuration says, and in its order.
fn holds(shape: Shape<'_>, live: &Value, config: &Value) -> bool {
    match (shape.form(config), live, config) {
        (Form::Map, Value::Object(live), Value::Object(config)) => holds_fields(shape, live, config),
        (Form::List(keys), Value::Array(live), Value::Array(config)) => {
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
                is_new && found.is_some_and(|found| holds(inner, found, item))
            })
        }
        (Form::Leaf(_), live, config) => live == config && !config.is_null(),
        _ => false,
    }
}

fn holds_fields(shape: Shape<'_>, live: &Map<String, Value>, config: &Map<String, Value>) -> bool {
    if config.is_empty() {
        return live.is_empty();
    }
    config.iter().all(|(name, said)| {
        let (Some(field), Some(known)) = (shape.field(name), live.get(name)) else {
            return false;
        };
        holds(field.shape, known, said)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::laws::{Kinds, VERSION};

    #[test]
    fn only_what_is_there_and_owned_alone_is_repeated() {
        let kinds = Kinds::of(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "a": {"type": "string"}, "b": {"type": "string"},
                "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
            }}}}),
        );
        let config =
            |spec| json!({"apiVersion": VERSION, "kind": "X", "metadata": {"name": "x"}, "spec": spec});
        let applied = config(json!({"a": "1", "l": [{"k": "x", "v": 1}, {"k": "y"}]}));
        let state = kinds.apply(&Kinds::nothing(), "one", &applied);
        let state = kinds.apply(
            &state,
            "two",
            &config(json!({"b": "2", "l": [{"k": "w"}, {"k": "x"}]})),
        );
        let is_repeated = |name, spec| {
            kinds
                .writer(name)
                .is_repeated(&state.object, &config(spec), &state.account)
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

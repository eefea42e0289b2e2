//! What must not be told, in one place: the values of Secrets.
//!
//! ```text
//!   object ── mask ──► Masked: each secret value is a token ──┬── diff ──► changes ── told ──┐
//!                      (equal values, equal tokens)           └──────────── told ────────────┴──► a Notice: (redacted)
//! ```
//!
//! An object is masked before anything else looks at it, so that neither a diff, nor a filter, nor a panic on the way can
//! carry a value out. A token tells only whether a value is still the same, and only inside this process: it is a hash under a
//! key that is drawn anew at each start. What is told has not even that.
//!
//! Of a Secret stay its name, labels, type, the names of its data, and who owns it. Its values go, and so do those of all its
//! annotations: tools keep whole copies of the object there (`kubectl.kubernetes.io/last-applied-configuration` is the
//! best known), some of them compressed, and some keep tokens of service accounts there. A Secret that is a part of another object, or of
//! such a copy, is treated the same. `managedFields` are never told.

use std::{collections::hash_map::RandomState, hash::BuildHasher};

use windlass::serde_json::{Map, Value, from_str};

use crate::notice::FieldChange;

/// What stands where a value of a Secret was.
pub const REDACTED: &str = "(redacted)";

/// Begins a token. The server takes no such text for anything that it checks; if it did, the text would be redacted too.
const TOKEN: &str = "\u{0}token:";

/// Whose value is a copy of an object, in any kind.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Takes out what must not be told. There is one for each process: tokens of two cannot be compared.
#[derive(Default)]
pub(crate) struct Redactor {
    key: RandomState,
}

/// An object without what must not be told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Masked(Value);

impl Redactor {
    /// Takes an object as the server gave it.
    pub(crate) fn mask(&self, mut object: Value) -> Masked {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        self.search(&mut object);
        Masked(object)
    }

    /// Masks every Secret in it; says whether there was one.
    fn search(&self, value: &mut Value) -> bool {
        match value {
            Value::Array(items) => {
                // All of them, also after the first that is one.
                let found = items
                    .iter_mut()
                    .filter_map(|item| self.search(item).then_some(()));
                found.count() > 0
            }
            Value::Object(fields) if fields.get("kind").and_then(Value::as_str) == Some("Secret") => {
                self.secret(fields);
                true
            }
            Value::Object(fields) => fields.iter_mut().fold(false, |found, (name, value)| {
                let within = if name == LAST_APPLIED {
                    self.copy(value)
                } else {
                    self.search(value)
                };
                within || found
            }),
            _ => false,
        }
    }

    /// Masks every Secret in the copy of an object that is a text.
    fn copy(&self, text: &mut Value) -> bool {
        let Value::String(json) = text else {
            return self.search(text);
        };
        match from_str::<Value>(json) {
            Ok(mut object) => {
                let found = self.search(&mut object);
                if found {
                    // The tokens in it make it one: it changes if they do.
                    *text = self.token(&object);
                }
                found
            }
            // Whether there is a Secret in it nobody can say.
            Err(_) => {
                *text = self.token(text);
                true
            }
        }
    }

    fn secret(&self, fields: &mut Map<String, Value>) {
        for (name, value) in fields {
            match name.as_str() {
                "apiVersion" | "kind" | "type" | "immutable" => {}
                "metadata" => {
                    if let Value::Object(metadata) = value {
                        metadata.remove("managedFields");
                        if let Some(annotations) = metadata.get_mut("annotations") {
                            self.values(annotations);
                        }
                    }
                }
                _ => self.values(value),
            }
        }
    }

    /// Names stay, values go.
    fn values(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for value in fields.values_mut() {
                    *value = self.token(value);
                }
            }
            value => *value = self.token(value),
        }
    }

    fn token(&self, value: &Value) -> Value {
        Value::String(format!("{TOKEN}{:016x}", self.key.hash_one(value)))
    }
}

impl Masked {
    /// For who compares: what is secret is a token.
    pub(crate) fn as_value(&self) -> &Value {
        &self.0
    }

    /// For who is told.
    pub(crate) fn told(mut self) -> Value {
        untoken(&mut self.0);
        self.0
    }
}

/// A change of masked objects, for who is told.
pub(crate) fn told(mut change: FieldChange) -> FieldChange {
    for value in [&mut change.old, &mut change.new].into_iter().flatten() {
        untoken(value);
    }
    change
}

fn untoken(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with(TOKEN) => REDACTED.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(untoken),
        Value::Object(fields) => fields.values_mut().for_each(untoken),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use windlass::serde_json::json;

    use super::*;
    use crate::diff::diff;

    /// What must not get out.
    const CANARY: &str = "c4n4ry";

    fn told(object: Value) -> String {
        Redactor::default().mask(object).told().to_string()
    }

    fn secret() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {
                "name": "s", "namespace": "n", "labels": { "app": "web" },
                "annotations": {
                    LAST_APPLIED: format!("{{\"kind\":\"Secret\",\"stringData\":{{\"p\":\"{CANARY}\"}}}}"),
                    "openshift.io/token-secret.value": CANARY,
                },
                "managedFields": [{ "manager": CANARY }],
            },
            "data": { "token": CANARY, "ca.crt": CANARY },
            "stringData": { "p": CANARY },
        })
    }

    #[test]
    fn of_a_secret_stay_names_labels_and_type() {
        let told = Redactor::default().mask(secret()).told();
        assert_eq!(
            told,
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
                "metadata": {
                    "name": "s", "namespace": "n", "labels": { "app": "web" },
                    "annotations": { LAST_APPLIED: REDACTED, "openshift.io/token-secret.value": REDACTED },
                },
                "data": { "token": REDACTED, "ca.crt": REDACTED },
                "stringData": { "p": REDACTED },
            })
        );
    }

    #[test]
    fn a_secret_is_found_wherever_it_is() {
        let inner = json!({ "kind": "Secret", "data": { "p": CANARY }, "more": [CANARY] });
        let copy = inner.to_string();
        let objects = [
            inner.clone(),
            json!({ "kind": "Work", "spec": { "manifests": [{ "kind": "List", "items": [inner] }] } }),
            json!({ "kind": "Work", "metadata": { "annotations": { LAST_APPLIED: format!("{{\"items\":[{copy}]}}") } } }),
            json!({ "kind": "Work", "metadata": { "annotations": { LAST_APPLIED: format!("broken {copy}") } } }),
            json!({ "kind": "Secret", "data": CANARY, "stringData": [CANARY], "metadata": { "annotations": CANARY } }),
            json!({ "kind": "Secret", "data": { "p": { "q": [CANARY] } } }),
        ];
        for object in objects {
            let told = told(object.clone());
            assert!(!told.contains(CANARY), "{object}\n{told}");
        }
    }

    #[test]
    fn other_kinds_are_left_alone_but_for_managed_fields() {
        let copy = "{\"kind\":\"ConfigMap\",\"data\":{\"a\":\"b\"}}";
        let mut config = json!({
            "kind": "ConfigMap", "data": { "a": "b" },
            "metadata": { "annotations": { LAST_APPLIED: copy }, "managedFields": [] },
        });
        let told = Redactor::default().mask(config.clone()).told();
        config["metadata"]
            .as_object_mut()
            .expect("there")
            .remove("managedFields");
        assert_eq!(told, config);
    }

    #[test]
    fn that_a_value_changed_is_told_but_not_what_it_was_or_is() {
        let redactor = Redactor::default();
        let mut later = secret();
        later["data"]["token"] = json!("n3w c4n4ry");
        let (old, new) = (redactor.mask(secret()), redactor.mask(later));
        let changes: Vec<_> = diff(&old, &new, false).into_iter().map(super::told).collect();
        let redacted = Some(json!(REDACTED));
        assert_eq!(
            changes,
            [FieldChange {
                path: "data.token".to_owned(),
                old: redacted.clone(),
                new: redacted
            }]
        );
    }

    proptest! {
        /// Whatever else is in it and wherever it is.
        #[test]
        fn no_value_of_a_secret_is_told(
            names in prop::collection::vec("[a-z.]{1,8}", 1..4),
            depth in 0..4_usize,
            copied in any::<bool>(),
        ) {
            let data: Map<_, _> = names.iter().map(|name| (name.clone(), json!(CANARY))).collect();
            let mut object = json!({ "kind": "Secret", "data": data });
            for place in 0..depth {
                object = if place % 2 == 0 { json!({ "kind": "Any", "spec": object }) } else { json!([object]) };
            }
            if copied {
                object = json!({ "kind": "Any", "metadata": { "annotations": { LAST_APPLIED: object.to_string() } } });
            }
            prop_assert!(!told(object).contains(CANARY));
        }
    }
}

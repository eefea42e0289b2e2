//! Redacts the values of Secrets.
//!
//! ```text
//!   object ── mask ──► Masked: each secret value is a token ──┬── diff ──► changes ── redact_change ──┐
//!                      (equal values, equal tokens)           └─────────── into_redacted ─────────────┴──► Notice: (redacted)
//! ```
//!
//! An object is masked before anything else reads it, so that neither a diff, a filter nor a panic can leak a value. A token
//! shows only whether a value is unchanged, and only inside this process: it is a hash under a random key per process. Notices
//! do not contain tokens.
//!
//! A Secret keeps its name, labels, type, the keys of its data, and its owner references. Its values are masked, and so are those
//! of all its annotations: tools store whole copies of the object there (`kubectl.kubernetes.io/last-applied-configuration` is the
//! best known), sometimes compressed, or service account tokens. A Secret inside another object, or inside such a copy, is
//! masked the same way. `managedFields` are never reported.

use std::{collections::hash_map::RandomState, hash::BuildHasher};

use windlass::serde_json::{Map, Value, from_str};

use crate::notice::FieldChange;

/// Replaces each value of a Secret.
pub const REDACTED: &str = "(redacted)";

/// Prefix of a token. The API server validates no field that would accept it; if one did, its text would be redacted too.
const TOKEN_PREFIX: &str = "\u{0}token:";

/// The annotation whose value is a copy of an object, in any kind.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Masks secret values. There is one per process: tokens of two redactors are not comparable.
#[derive(Default)]
pub(crate) struct Redactor {
    key: RandomState,
}

/// An object whose secret values are masked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Masked(Value);

impl Redactor {
    /// Masks an object as received from the server.
    pub(crate) fn mask(&self, mut object: Value) -> Masked {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        self.mask_secrets(&mut object);
        Masked(object)
    }

    /// Masks every Secret in the value; returns whether there was one.
    fn mask_secrets(&self, value: &mut Value) -> bool {
        match value {
            Value::Array(items) => {
                // `any` would stop at the first Secret.
                let found = items
                    .iter_mut()
                    .filter_map(|item| self.mask_secrets(item).then_some(()));
                found.count() > 0
            }
            Value::Object(fields) if fields.get("kind").and_then(Value::as_str) == Some("Secret") => {
                self.mask_secret(fields);
                true
            }
            Value::Object(fields) => fields.iter_mut().fold(false, |found, (name, value)| {
                let within = if name == LAST_APPLIED {
                    self.mask_json_copy(value)
                } else {
                    self.mask_secrets(value)
                };
                within || found
            }),
            _ => false,
        }
    }

    /// Masks every Secret in a copy of an object, which is JSON in a string.
    fn mask_json_copy(&self, text: &mut Value) -> bool {
        let Value::String(json) = text else {
            return self.mask_secrets(text);
        };
        match from_str::<Value>(json) {
            Ok(mut object) => {
                let found = self.mask_secrets(&mut object);
                if found {
                    // Computed from the masked copy, so it changes when a token in it does.
                    *text = self.token(&object);
                }
                found
            }
            // Unparsable: it may contain a Secret.
            Err(_) => {
                *text = self.token(text);
                true
            }
        }
    }

    fn mask_secret(&self, fields: &mut Map<String, Value>) {
        for (name, value) in fields {
            match name.as_str() {
                "apiVersion" | "kind" | "type" | "immutable" => {}
                "metadata" => {
                    if let Value::Object(metadata) = value {
                        metadata.remove("managedFields");
                        if let Some(annotations) = metadata.get_mut("annotations") {
                            self.mask_values(annotations);
                        }
                    }
                }
                _ => self.mask_values(value),
            }
        }
    }

    /// Keeps the keys and masks the values.
    fn mask_values(&self, value: &mut Value) {
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
        Value::String(format!("{TOKEN_PREFIX}{:016x}", self.key.hash_one(value)))
    }
}

impl Masked {
    /// The object with tokens for secret values, for comparison only.
    pub(crate) fn as_value(&self) -> &Value {
        &self.0
    }

    /// The object with [`REDACTED`] in place of the tokens.
    pub(crate) fn into_redacted(mut self) -> Value {
        replace_tokens(&mut self.0);
        self.0
    }
}

/// Replaces the tokens in a change of masked objects.
pub(crate) fn redact_change(mut change: FieldChange) -> FieldChange {
    for value in [&mut change.old, &mut change.new].into_iter().flatten() {
        replace_tokens(value);
    }
    change
}

fn replace_tokens(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with(TOKEN_PREFIX) => REDACTED.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(replace_tokens),
        Value::Object(fields) => fields.values_mut().for_each(replace_tokens),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use windlass::serde_json::json;

    use super::*;
    use crate::diff::diff;

    /// A secret value that must not leak.
    const CANARY: &str = "c4n4ry";

    fn redacted_text(object: Value) -> String {
        Redactor::default().mask(object).into_redacted().to_string()
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
    fn secret_keeps_keys_labels_and_type() {
        let redacted = Redactor::default().mask(secret()).into_redacted();
        assert_eq!(
            redacted,
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
    fn nested_and_copied_secrets_are_redacted() {
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
            let redacted = redacted_text(object.clone());
            assert!(!redacted.contains(CANARY), "{object}\n{redacted}");
        }
    }

    #[test]
    fn other_kinds_lose_only_managed_fields() {
        let copy = "{\"kind\":\"ConfigMap\",\"data\":{\"a\":\"b\"}}";
        let mut config = json!({
            "kind": "ConfigMap", "data": { "a": "b" },
            "metadata": { "annotations": { LAST_APPLIED: copy }, "managedFields": [] },
        });
        let redacted = Redactor::default().mask(config.clone()).into_redacted();
        config["metadata"]
            .as_object_mut()
            .expect("there")
            .remove("managedFields");
        assert_eq!(redacted, config);
    }

    #[test]
    fn changed_secret_value_is_reported_redacted() {
        let redactor = Redactor::default();
        let mut later = secret();
        later["data"]["token"] = json!("n3w c4n4ry");
        let (old, new) = (redactor.mask(secret()), redactor.mask(later));
        let changes: Vec<_> = diff(&old, &new, false)
            .into_iter()
            .map(super::redact_change)
            .collect();
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
        #[test]
        fn secret_values_are_redacted_at_any_depth(
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
            prop_assert!(!redacted_text(object).contains(CANARY));
        }
    }
}

//! Secrets.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use windlass_api::naming;

use super::{
    config_map::{MAX_DATA_BYTES, decoded_len},
    defaulting::{DefaultValue::Text, set_if_absent},
    error_list::{ErrorList, text},
    immutable::check_immutable_data,
    row::Row,
    selectable::SelectableField,
    strategy::{Facts, Strategy, Write},
};
use crate::{field_path::FieldPath, golang, json, object::Object, schema::Problem};

pub(super) struct Secret;

impl Strategy for Secret {
    fn facts(&self) -> Facts {
        Facts {
            defaults: &[("type", Text("Opaque"))],
            immutable_fields: &["type"],
            selectable_fields: const { &[SelectableField::text("type")] },
            columns: Some("Name Type Data Age"),
            ..Facts::DEFAULT
        }
    }

    fn set_defaults(&self, secret: &mut Object) {
        move_string_data(secret.tree_mut());
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check(write.value(), errors);
    }

    fn validate_changes(&self, write: &Write<'_>, old: &Value, errors: &mut ErrorList) {
        check_immutable_data(write.value(), old, errors);
    }

    fn warn(&self, write: &Write<'_>, warnings: &mut Vec<String>) {
        warn_tls(write.value(), warnings);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![
            row.name(),
            row.text("/type").into(),
            row.count("/data").into(),
            row.age(),
        ]
    }
}

/// Moves `stringData`, which is write-only, into `data`.
fn move_string_data(secret: &mut Value) {
    let Some(Value::Object(texts)) = secret
        .as_object_mut()
        .and_then(|fields| fields.remove("stringData"))
    else {
        return;
    };
    set_if_absent(secret, "data", json!({}));
    for (key, text) in texts {
        let text = text.as_str().unwrap_or_default();
        secret["data"][key] = STANDARD.encode(text).into();
    }
}

fn check(secret: &Value, errors: &mut ErrorList) {
    let mut size = 0;
    for (key, value) in secret["data"].as_object().into_iter().flatten() {
        let field = FieldPath::from_root("data");
        errors.invalid_each(field.key(key), key, naming::config_key(key));
        size += decoded_len(value);
    }
    if size > MAX_DATA_BYTES {
        errors.add("data", Problem::TooLong(MAX_DATA_BYTES as u64));
    }
    let missing = |key: &str| secret["data"].get(key).is_none();
    let empty = |key: &str| text(&secret["data"][key]).is_empty();
    match text(&secret["type"]) {
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            if text(&secret["metadata"]["annotations"][name]).is_empty() {
                errors.required(format!("metadata.annotations[{name}]"), "");
            }
        }
        "kubernetes.io/dockercfg" => check_json(".dockercfg", secret, errors),
        "kubernetes.io/dockerconfigjson" => check_json(".dockerconfigjson", secret, errors),
        "kubernetes.io/basic-auth" if missing("username") && missing("password") => {
            errors.required("data[username]", "");
            errors.required("data[password]", "");
        }
        "kubernetes.io/ssh-auth" if empty("ssh-privatekey") => {
            errors.required("data[ssh-privatekey]", "");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"].into_iter().filter(|key| missing(key)) {
                errors.required(format!("data[{key}]"), "");
            }
        }
        _ => {}
    }
}

fn check_json(key: &str, secret: &Value, errors: &mut ErrorList) {
    let field = format!("data[{key}]");
    match secret["data"].get(key) {
        None => errors.required(field, ""),
        Some(value) => {
            let why = match json::read(&decoded(value)) {
                Ok((Value::Object(_) | Value::Null, _)) => return,
                Ok((other, _)) => format!(
                    "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                    golang::json_type(&other)
                ),
                Err(why) => why,
            };
            errors.invalid(field, "<secret contents redacted>", &why);
        }
    }
}

fn decoded(value: &Value) -> Vec<u8> {
    STANDARD.decode(text(value)).unwrap_or_default()
}

/// Warns about a TLS secret without PEM data.
fn warn_tls(secret: &Value, warnings: &mut Vec<String>) {
    if secret["type"] != "kubernetes.io/tls" {
        return;
    }
    for (key, name) in [("tls.crt", "certificate"), ("tls.key", "key")] {
        let bytes = decoded(&secret["data"][key]);
        if !String::from_utf8_lossy(&bytes).contains("-----BEGIN") {
            warnings.push(format!("tls: failed to find any PEM data in {name} input"));
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_data_moves_into_data() {
        let mut secret = json!({"stringData": {"a": "hi"}, "data": {"a": "eA==", "b": "eQ=="}});
        move_string_data(&mut secret);
        assert_eq!(secret, json!({"data": {"a": "aGk=", "b": "eQ=="}}));
    }
}

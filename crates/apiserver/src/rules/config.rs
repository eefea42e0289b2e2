//! ConfigMaps, Secrets, leases and events.

use base64::Engine;
use serde_json::Value;
use windlass_api::naming;

use super::error_list::{ErrorList, list, text};
use crate::{
    field_path::FieldPath, golang, json, object::Object, schema::Problem, validation::STANDARD_FINALIZERS,
};

/// Limit on the data of a `ConfigMap` or Secret, in bytes.
const MAX_DATA_BYTES: usize = 1024 * 1024;

pub(super) fn check_config_map(map: &Value, errors: &mut ErrorList) {
    let mut size = 0;
    let (data, binary) = (map["data"].as_object(), map["binaryData"].as_object());
    for (key, value) in data.into_iter().flatten() {
        let field = FieldPath::from_root("data");
        errors.invalid_each(field.key(key), key, naming::config_key(key));
        if binary.is_some_and(|binary| binary.contains_key(key)) {
            let why = "duplicate of key present in binaryData";
            errors.invalid(field.key(key), key.as_str(), why);
        }
        size += text(value).len();
    }
    for (key, value) in binary.into_iter().flatten() {
        let field = FieldPath::from_root("binaryData");
        errors.invalid_each(field.key(key), key, naming::config_key(key));
        size += decoded_len(value);
    }
    if size > MAX_DATA_BYTES {
        errors.add("[]", Problem::TooLong(MAX_DATA_BYTES as u64));
    }
}

pub(super) fn check_secret(secret: &Value, errors: &mut ErrorList) {
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

/// The decoded length of a base64 string.
fn decoded_len(value: &Value) -> usize {
    let text = text(value);
    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

fn decoded(value: &Value) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD
        .decode(text(value))
        .unwrap_or_default()
}

pub(super) fn check_lease(spec: &Value, errors: &mut ErrorList) {
    if let Some(seconds) = spec["leaseDurationSeconds"]
        .as_i64()
        .filter(|seconds| *seconds <= 0)
    {
        errors.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0");
    }
    errors.not_negative("spec.leaseTransitions", &spec["leaseTransitions"]);
}

/// Immutable fields of `events.k8s.io` events, and their names in errors.
const IMMUTABLE_EVENT_FIELDS: [(&str, &str); 13] = [
    ("regarding", "involvedObject"),
    ("reason", "reason"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("related", "related"),
    ("reportingController", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

pub(super) fn check_event(group: &str, event: &Value, old: Option<&Object>, errors: &mut ErrorList) {
    let about = if group.is_empty() {
        "involvedObject"
    } else {
        "regarding"
    };
    let namespace = text(&event["metadata"]["namespace"]);
    let of = text(&event[about]["namespace"]);
    // Events about cluster-scoped objects are in the default namespace.
    if of != namespace && !(of.is_empty() && namespace == "default") {
        errors.invalid("involvedObject.namespace", of, "does not match event.namespace");
    }
    // A `v1` event is validated only if it has `eventTime`, like an `events.k8s.io` event.
    if group.is_empty() {
        if old.is_none() && !event["eventTime"].is_null() {
            check_reporter(event, "reportingComponent", errors);
        }
        return;
    }
    if let Some(old) = old {
        for (field, name) in IMMUTABLE_EVENT_FIELDS {
            if event.get(field) != old.fields().get(field) {
                errors.invalid(name, event[field].clone(), "field is immutable");
            }
        }
        return;
    }
    if event["eventTime"].is_null() {
        errors.required("eventTime", "");
    } else {
        check_reporter(event, "reportingController", errors);
    }
    if !matches!(text(&event["type"]), "Normal" | "Warning") {
        let why = format!("has invalid value: {}", text(&event["type"]));
        errors.invalid("type", "", &why);
    }
}

/// Checks the fields about the reporter and what happened.
fn check_reporter(event: &Value, who: &str, errors: &mut ErrorList) {
    let controller = text(&event[who]);
    errors.require(who, &event[who]);
    errors.invalid_each(who, controller, naming::qualified(controller));
    for key in ["reportingInstance", "action", "reason"] {
        errors.require(key, &event[key]);
    }
}

/// Namespace finalizers must be qualified names.
pub(super) fn check_namespace(spec: &Value, errors: &mut ErrorList) {
    for finalizer in list(&spec["finalizers"]).iter().map(text) {
        let field = "spec.finalizers";
        errors.invalid_each(field, finalizer, naming::qualified(finalizer));
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(field, finalizer, why);
        }
    }
}
